"""The pointwise functions and the reductions of the IR: how many operands each takes, and what type it gives.

What a function computes is said in `docs/language.md`; the NumPy reading of it is
`backends/reference/functions.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Result = Literal["number", "float", "bool", "int", "bits", "select"]


@dataclass(frozen=True, slots=True)
class Function:
    """A pointwise function.

    `result` is its type rule: `number` (float if an operand is float, else i64), `float` (the kernel's compute type),
    `bool`, `int` (i64), `bits` (bool if all operands are bool, else i64) or `select` (of the last two operands: bool if
    both are, float if one is, else i64).
    """

    name: str
    least: int
    most: int
    result: Result


def _table(result: Result, arity: int, *names: str) -> dict[str, Function]:
    return {n: Function(n, arity, arity, result) for n in names}


FUNCTIONS: dict[str, Function] = {
    **_table("number", 2, "add", "sub", "mul", "floordiv", "mod", "min", "max"),
    **_table("number", 1, "neg", "abs"),
    **_table("float", 2, "div", "pow", "atan2"),
    **_table(
        "float",
        1,
        "exp",
        "exp2",
        "log",
        "log2",
        "tanh",
        "sigmoid",
        "sqrt",
        "rsqrt",
        "erf",
        "sin",
        "cos",
    ),
    **_table("float", 1, "floor", "ceil", "round", "relu", "silu"),
    # to a literal power >= 0, by multiplication: an integer stays one
    **_table("number", 2, "ipow"),
    **_table("bool", 2, "lt", "le", "gt", "ge", "eq", "ne", "and", "or"),
    **_table("bool", 1, "not", "isfinite"),
    **_table("bits", 2, "bitand", "bitor", "bitxor"),
    **_table("bits", 1, "invert"),
    **_table("int", 2, "shl", "shr"),
    **_table("select", 3, "select"),  # select(condition, where true, where false)
    "uniform": Function("uniform", 1, 5, "float"),  # uniform(seed, up to four integers)
}
"""Every pointwise function of the IR. `min` and `max` propagate NaN."""

REDUCTIONS: dict[str, Result] = {
    "sum": "number",
    "max": "number",
    "min": "number",
    "maxnum": "number",  # like max, but NaN operands are ignored: a reference point for exponentials
    "any": "bool",
    "all": "bool",
    "mean": "float",
    "softmax": "float",
    "logsumexp": "float",
}
"""Every reduction of the IR. `mean`, `softmax` and `logsumexp` are gone after the expand pass."""

VANISHING = frozenset({"exp", "exp2", "sigmoid", "relu", "silu"})
"""Functions whose value at -inf is an *absent* zero: a term that contributes nothing, NaN in its partner included."""
DECAYING = frozenset({"exp", "exp2", "sigmoid"})
"""Those of them whose value is absent nowhere else."""
ZERO_AT_ZERO = frozenset(
    {"neg", "abs", "sqrt", "tanh", "sin", "erf", "floor", "ceil", "round", "relu", "silu"}
)
"""Functions that keep an absent zero absent."""
