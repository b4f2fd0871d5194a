"""expand: softmax, logsumexp and mean into primitives.

Requires: tensor IR. Changes: no `softmax`, `logsumexp` or `mean` is left, and an integer that may be an absent zero is a
float where a float meets it: from here on, only floats are absent.

    P: f32[i, j] = softmax(x, over=j)
    ->
    m = maxnum(x, over=j); r = max(min(m, 3.4e38), -3.4e38); p = exp(sub(x, r)); l = sum(p, over=j); P = div(p, l)

The reference `r` is a finite number, whatever the row: an empty row has only absent terms and l = 0, so that
its softmax is 0 and its log-sum-exp -inf; a row that holds NaN has l = NaN, and its masked places stay absent.
Further logits (`softmax(x, a)`) raise the reference and the sum, and give no term.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tilec.builder import Builder
from tilec.dataflow import definitions
from tilec.dtypes import DType, kind
from tilec.ir import Cast, Kernel, Load, Map, Op, Operand, Reduce, operands, rebuild
from tilec.lowering import lower_scalar
from tilec.passes.absent import real
from tilec.rewrite import Rewrite

LIMITS: dict[DType, float] = {"f32": 3.4028234663852886e38, "f64": 1.7976931348623157e308}
"""The largest finite number of each compute type."""


def expand(kernel: Kernel) -> Kernel:
    """Softmax, log-sum-exp and mean, spelled out."""
    b = Rewrite(kernel)
    for op in kernel.body:
        match op:
            case Reduce(fn="softmax"):
                b.replace(op, _softmax(b, op))
            case Reduce(fn="logsumexp"):
                b.replace(op, _logsumexp(b, op))
            case Reduce(fn="mean"):
                b.replace(op, _mean(b, op))
            case Map(fn="uniform"):  # of integers
                b.keep(op)
            case Map() | Cast() if kind(op.result.type.dtype) == "float":
                b.add(rebuild(op, lambda x: real(b, b.of(x))))
            case _:
                b.keep(op)
    return replace(kernel, body=tuple(b.ops))


def clamp_finite(b: Builder, x: Operand, name: str = "r") -> str:
    """x, with infinities replaced by the largest finite numbers; NaN stays."""
    top = LIMITS[b.kernel.compute]
    return b.map("max", b.map("min", x, top), -top, name=name)


def _terms(b: Rewrite, op: Reduce) -> tuple[str, str, str]:
    """The reference, the exponentials and their sum."""
    x, *more = b.all_of(op.args)
    m = b.reduce("maxnum", x, over=op.over, name="m")
    for a in more:  # a NaN must not become the reference: masked places would no longer be absent
        m = b.map("select", b.map("gt", a, m), a, m, name="m")
    r = clamp_finite(b, m)
    p = b.map("exp", b.map("sub", x, r), name="p")
    total = b.reduce("sum", p, over=op.over, name="l")
    for a in more:
        total = b.map("add", total, b.map("exp", b.map("sub", a, r)), name="l")
    return r, p, total


def _softmax(b: Rewrite, op: Reduce) -> str:
    name = b.begin(op)
    _, p, total = _terms(b, op)
    if len(op.args) == 1 and not _only_weighs(b.kernel, op):
        # a score of infinity makes the sum infinite, and by the definition all weights of the row NaN
        total = b.map("add", total, b.map("sub", total, total), name="l")
    return b.map("div", p, total, name=name)


def _only_weighs(kernel: Kernel, op: Reduce) -> bool:
    """Whether all that is asked of the weights are sums of their products with data: one NaN among them is then enough."""
    made = definitions(kernel.body)

    def loaded(x: Operand) -> bool:
        source = made.get(x) if isinstance(x, str) else None
        return loaded(source.x) if isinstance(source, Cast) else isinstance(source, Load)

    def uses(x: str) -> list[Op]:
        return [use for use in kernel.body if x in operands(use)]

    def weighs(use: Op) -> bool:
        if not isinstance(use, Map) or use.fn != "mul":
            return False
        others = [x for x in use.args if x != op.result.name]
        sums = uses(use.result.name)
        return (
            all(map(loaded, others))
            and len(others) == 1
            and all(
                isinstance(s, Reduce) and s.fn == "sum" and set(op.over) <= set(s.over)
                for s in sums
            )
        )

    return all(map(weighs, uses(op.result.name)))


def _logsumexp(b: Rewrite, op: Reduce) -> str:
    name = b.begin(op)
    r, _, total = _terms(b, op)
    return b.map("add", r, b.map("log", total), name=name)


def _mean(b: Rewrite, op: Reduce) -> str:
    name = b.begin(op)
    (x,) = b.all_of(op.args)
    count: Operand = 1
    for axis in op.over:
        n = lower_scalar(b, b.kernel.extents[axis])
        count = n if count == 1 else b.map("mul", count, n)
    # the mean of nothing is NaN, not 0 / 0 = 0
    count = b.map("select", b.map("gt", count, 0), count, math.nan)
    return b.map("div", b.reduce("sum", x, over=op.over), count, name=name)
