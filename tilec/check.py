"""Syntax tree to tensor IR, and the check that it can be: one walk does both.

`check` reads every kernel with the element types of untyped tensors left open and raises all mistakes of the file
together; `lower` reads one kernel with its types known and gives its IR.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias

from tilec import scalar, syntax
from tilec.axes import AxisFinder, apart, in_order
from tilec.builder import Builder
from tilec.dtypes import DType, kind
from tilec.elaborate import Elaborator
from tilec.errors import SourceError, Span
from tilec.ir import Argument, Assertion, Axis, Kernel, Op, Output, Store, Tensor, Value
from tilec.scope import (
    CONSTANTS,
    FAILED,
    MISTAKES,
    Names,
    Range,
    Report,
    Stop,
    Term,
    always_used,
    in_call_order,
)
from tilec.signature import Signature, output_axes, output_dtype
from tilec.syntax import Broken, Def, Expr, Item, KernelDef, Name, Program
from tilec.wording import count, near

_Params: TypeAlias = tuple[Tensor | Argument, ...]
Assumed: TypeAlias = Mapping[str, Mapping[str, DType]]
"""Kernel to tensor to element type."""


def check(program: Program) -> Assumed:
    """Checks every kernel and function of a program. Raises SourceError with all mistakes, those of parsing included.

    Gives, for each kernel, element types for those untyped tensors whose use asks for integers or booleans.
    """
    report = Report(program.text)
    assumed: dict[str, dict[str, DType]] = {}
    report.diagnostics.extend(program.diagnostics)
    with suppress(Stop):
        names = _functions(program, report)
        _check_functions(names, report)
        for node in program.kernels.values():
            if not node.broken:
                kernel = _Kernel(node, names, report, None)
                kernel.build()
                assumed[node.name.name] = kernel.names.assumed
        for sample in program.samples.values():
            _check_sample(sample, program, names, report)
    _raise(report, program)
    return assumed


def lower(program: Program, name: str, dtypes: Mapping[str, DType]) -> Kernel:
    """The tensor IR of the kernel `name`. `dtypes`: the element types of its untyped tensor parameters.

    Raises SourceError where the program is wrong, or wrong for these element types.
    """
    report = Report(program.text)
    report.diagnostics.extend(program.diagnostics)
    _raise(report, program)
    kernel: Kernel | None = None
    with suppress(Stop):
        names = _functions(program, report)
        kernel = _Kernel(program.kernels[name], names, report, dtypes).build()
    _raise(report, program)
    assert kernel is not None
    return kernel


def _raise(report: Report, program: Program) -> None:
    if report.diagnostics:
        raise SourceError(report.diagnostics[:MISTAKES], program.text)


# ---- samples


def _check_sample(sample: syntax.Sample, program: Program, top: Names, report: Report) -> None:
    """Checks a `sample` line: its indices are axes, its names the dimensions of the kernels with that parameter."""
    name = sample.name.name
    names = replace(top, dims=dict.fromkeys(program.sizes), axes={})
    found = [k for k in program.kernels.values() if any(p.name.name == name for p in k.params)]
    if not found and not any(k.broken for k in program.kernels.values()):
        known = [p.name.name for k in program.kernels.values() for p in k.params]
        report(sample.name.span, f"no kernel has a parameter '{name}'", near(name, known))
    for node in found:
        _check_sample_rank(sample, node, report)
        names.dims.update(
            dict.fromkeys(d.name for p in node.params for d in p.dims or () if isinstance(d, Name))
        )
    for index in sample.index:
        if index.name in names.axes:
            report(
                index.span,
                f"the index '{index.name}' is there twice",
                "name each dimension's index once",
            )
        names.axes[index.name] = Range(1, None)
        names.dims.pop(index.name, None)
    axes = tuple(Axis(a, 1) for a in names.axes)
    builder = Builder(Kernel("", (Tensor("", "f32", tuple(names.dims)),), (), axes, ()))
    Elaborator(names, builder, report).term(sample.value)


def _check_sample_rank(sample: syntax.Sample, node: KernelDef, report: Report) -> None:
    name, given = sample.name.name, len(sample.index)
    item = next(p for p in node.params if p.name.name == name)
    if item.dims is None:
        report(
            sample.name.span,
            f"'{name}' is a scalar parameter",
            "give it a default in the kernel's first line",
        )
    elif len(item.dims) != given:
        has, here = count(len(item.dims), "dimension"), count(given, "index", "indices")
        message = f"'{name}' has {has} in '{node.name.name}', and {here} here"
        report(sample.name.span, message, "write one index per dimension")


# ---- functions


def _functions(program: Program, report: Report) -> Names:
    """The names of a program: its functions alone."""
    functions = in_call_order(program.functions, report)
    return Names(functions=functions, always=always_used(functions, {}))


def _check_functions(names: Names, report: Report) -> None:
    """Checks the functions of the file. A wrong one gets a Broken body, so that its calls are not reported as well."""
    functions = names.functions
    for name, node in functions.items():
        before = len(report.diagnostics)
        _check_params(node, report)
        if not isinstance(node.body, Broken):
            Elaborator(names, Builder(Kernel("", (), (), (), ())), report).check_function(
                node, True
            )
        if len(report.diagnostics) > before:
            functions[name] = replace(node, body=Broken(node.body.span))


def _check_params(node: Def, report: Report) -> None:
    seen: set[str] = set()
    for p in node.params:
        if p.name in seen:
            report(
                p.span,
                f"'{node.name.name}' has the parameter '{p.name}' twice",
                "give one another name",
            )
        seen.add(p.name)


# ---- one kernel


class _Kernel:
    """Builds one kernel. `dtypes` is None for a check with the types of untyped tensors left open."""

    def __init__(
        self, node: KernelDef, top: Names, report: Report, dtypes: Mapping[str, DType] | None
    ) -> None:
        self.node, self.report, self.open = node, report, dtypes is None
        self.names = Names(functions=top.functions)
        self.top = top
        self.signature = Signature(node, self.names, report, dtypes or {})
        self.assertions: list[Assertion] = []

    def build(self) -> Kernel | None:
        """The kernel, or None where it is wrong; that is reported."""
        before = len(self.report.diagnostics)
        params = self.signature.read()
        self.names.incomplete = self.node.incomplete or self.signature.failed
        self._collect_names()
        self._axis_lines(params)
        finder = AxisFinder(self.names, Report() if self.signature.failed else self.report)
        finder.find(self.node.body)
        self.names.axes = in_order(self.names.axes, self.node)
        self.builder = Builder(self._header(params, self._outputs(Report())))
        self.reserved = set(self.names.lets) - self.builder.taken
        self.builder.taken |= self.reserved
        self.elaborator = Elaborator(self.names, self.builder, self.report)
        self._statements()
        self._unused_functions(finder)
        outputs = self._outputs(self.report)
        stores = [self._store(item, o) for item, o in outputs]
        if len(self.report.diagnostics) > before:
            return None
        header = self._header(params, outputs)
        body = (*self.builder.ops, *(s for s in stores if s is not None))
        axes = self.builder.kernel.axes
        kernel = replace(header, axes=axes, body=body, assertions=tuple(self.assertions))
        return apart(kernel)

    def _header(self, params: _Params, outputs: list[tuple[Item, Output | None]]) -> Kernel:
        axes = tuple(Axis(name, r.extent, r.span) for name, r in self.names.axes.items())
        known = tuple(o for _, o in outputs if o is not None)
        return Kernel(self.node.name.name, params, known, axes, ())

    # ---- names

    def _collect_names(self) -> None:
        """What the statements define, before any is read: a name that one defines is nowhere an axis."""
        for s in self.node.body:
            if isinstance(s, syntax.Let):
                if s.name.name in CONSTANTS:
                    message = f"'{s.name.name}' is a constant, and cannot be defined"
                    self.report(s.name.span, message, "choose another name")
                self.names.lets.setdefault(s.name.name, s.name.span)
                bare = (e.name for e in syntax.walk(s.value) if isinstance(e, Name))
                # a tensor without its indices will be reported: what is an axis then is not known
                self.names.incomplete |= any(name in self.names.tensors for name in bare)
            elif isinstance(s, Def):
                if s.name.name in self.names.local:
                    message = f"the function '{s.name.name}' is defined twice in this kernel"
                    self.report(s.name.span, message, "give one another name")
                _check_params(s, self.report)
                self.names.local[s.name.name] = s
        self.names.local = in_call_order(self.names.local, self.report)
        self.names.always = always_used(self.names.local, self.top.always)

    def _axis_lines(self, params: _Params) -> None:
        builder = Builder(Kernel("", params, (), (), ()))
        elaborator = Elaborator(replace(self.names, values={}), builder, self.report)
        for s in self.node.body:
            if not isinstance(s, syntax.AxisLine):
                continue
            name = s.name.name
            if why := self.names.no_axis(name):
                self.report(
                    s.name.span, f"'{name}' is {why}: it cannot be an axis", "choose another name"
                )
                continue
            if name in self.names.axes:
                self.report(s.name.span, f"the axis '{name}' has two axis lines", "remove one")
                continue
            if self._uses_data(name, s.bound):
                continue
            term = elaborator.scalar(
                s.bound, "the bound of an axis", "dimensions and scalar arguments"
            )
            if term is not None and term.kind != "int":
                self.report(
                    s.bound.span,
                    "the bound of an axis must be an integer",
                    "write // for a whole quotient",
                )
            extent = 1 if term is None or term.scalar is None else term.scalar
            self.names.axes[name] = Range(extent, None, span=s.bound.span)

    def _uses_data(self, axis: str, bound: Expr) -> bool:
        message = "the bound of an axis can only be made of dimensions and scalar arguments"
        for n in syntax.walk(bound):
            if isinstance(n, Name) and n.name in self.names.lets and n.name not in self.names.dims:
                self.report(n.span, message, f"'{n.name}' is a value: write out what it is")
                return True
            if isinstance(n, syntax.Index) and n.tensor.name in self.names.tensors:
                mask = f"… if {axis} < {self.report.quote(bound.span, '…')} else 0"
                self.report(n.span, message, f"let it run over a dimension, and mask: {mask}")
                return True
        return False

    # ---- statements

    def _statements(self) -> None:
        for s in self.node.body:
            match s:
                case syntax.Let():
                    self._let(s)
                case Def():
                    self.names.seen.add(s.name.name)
                case syntax.Assert():
                    self._assert(s)
                case syntax.AxisLine():
                    pass

    def _let(self, s: syntax.Let) -> None:
        before = len(self.builder.ops)
        term = self.elaborator.term(s.value)
        if not term.failed and len(self.builder.ops) > before:
            term = self._named(s.name.name, term)
        self.names.values[s.name.name] = replace(term, mentions=frozenset(), bare=None)

    def _named(self, name: str, term: Term) -> Term:
        """The term, with the op that makes it renamed to the user's name."""
        op = self.builder.ops[-1]
        old = op.result
        if term.operand != old.name:
            return term
        self.builder.taken.discard(old.name)
        if name in self.reserved:
            self.reserved.discard(name)
            new = name
        else:
            new = self.elaborator.new_name(name)
            self.builder.taken.add(new)
        self.builder.ops[-1] = replace(op, results=(Value(new, old.type),))
        self.builder.types[new] = self.builder.types.pop(old.name)
        return replace(term, operand=new)

    def _assert(self, s: syntax.Assert) -> None:
        may = "dimensions and scalar arguments: it is checked at the call"
        term = self.elaborator.scalar(s.condition, "an assert", may)
        if term is None or term.scalar is None:
            return
        if term.kind != "bool":
            self.report(s.condition.span, "an assert needs a condition", "compare it: write x != 0")
            return
        message = s.message or f"{scalar.show(term.scalar)} does not hold"
        self.assertions.append(Assertion(term.scalar, message, s.condition.span))

    def _unused_functions(self, finder: AxisFinder) -> None:
        """Functions of the kernel that nothing calls are checked too."""
        for node in self.names.local.values():
            if (
                not self.open
                or node.name.name in self.elaborator.called
                or isinstance(node.body, Broken)
            ):
                continue
            finder.add_function(node)
            ops = len(self.builder.ops)
            axes = tuple(Axis(name, r.extent, r.span) for name, r in self.names.axes.items())
            self.builder.kernel = replace(self.builder.kernel, axes=axes)
            self.elaborator.check_function(node, top=False)
            del self.builder.ops[ops:]

    # ---- outputs

    def _outputs(self, report: Report) -> list[tuple[Item, Output | None]]:
        floats: list[DType] = [
            t.dtype for t in self.names.tensors.values() if kind(t.dtype) == "float"
        ]
        seen: set[str] = set()
        out: list[tuple[Item, Output | None]] = []
        for item in self.node.outputs:
            name = item.name.name
            if name in seen or name in self.names.tensors or name in self.names.arguments:
                what = "two outputs are" if name in seen else "a parameter and an output are both"
                report(item.name.span, f"{what} called '{name}'", "give one another name")
                continue
            seen.add(name)
            axes = output_axes(item, self.names, report)
            dtype = output_dtype(item, report)
            defined = self._is_defined(item, report)
            if axes is None or not defined:
                out.append((item, None))
            else:
                out.append((item, Output(name, dtype or (floats[0] if floats else "f32"), axes)))
        return out

    def _is_defined(self, item: Item, report: Report) -> bool:
        name = item.name.name
        if name in self.names.lets:
            return True
        if self.node.incomplete:
            return False
        hint = near(name, self.names.lets) or f"add a line {name} = …"
        report(item.name.span, f"the output '{name}' is never defined", hint)
        return False

    def _made(self, item: Item) -> Span:
        """The expression that an output has its value from."""
        lets = (s for s in reversed(self.node.body) if isinstance(s, syntax.Let))
        return next((s.value.span for s in lets if s.name.name == item.name.name), item.span)

    def _over(self, axes: list[str]) -> str:
        """Axes as the program names them."""
        names = {twin: name for name, twins in self.elaborator.twins.items() for twin in twins}
        return " and ".join(
            f"a '{names[a]}' that a function has for itself" if a in names else f"'{a}'"
            for a in axes
        )

    def _reduced(self, more: list[str], output: Output) -> str:
        """What to do about an output that varies over more axes than it has."""
        axis = more[0]
        for name, twins in self.elaborator.twins.items():
            if axis == name or axis in twins:
                return (
                    f"a function that names '{name}' itself does not reduce over the '{name}' of an "
                    "argument: give the argument a name in a line above, and pass the name"
                )
        size = axis.upper()
        meant = f"write {size} for its size, " if size in self.names.dims else ""
        wider = f"{output.name}[{', '.join((*output.axes, *more))}]"
        return f"reduce over {axis}, as in sum[{axis}](…), {meant}or write {wider}"

    def _store(self, item: Item, output: Output | None) -> Op | None:
        term = self.names.values.get(item.name.name, FAILED)
        if output is None or term.failed:
            return None
        name = output.name
        more = [a for a in term.axes if a not in output.axes]
        if more:
            over, hint = self._over(more), self._reduced(more, output)
            self.report(self._made(item), f"the output '{name}' also varies over {over}", hint)
            return None
        declared = kind(output.dtype)
        if (
            declared != "float"
            and term.kind == "float"
            or declared == "bool"
            and term.kind == "int"
        ):
            hint = f"write {output.dtype}(…)" if declared == "int" else "compare it: write x != 0"
            what = "an integer" if term.kind == "int" else "a float"
            message = f"the output '{name}' is declared {output.dtype}, and its value is {what}"
            self.report(item.type.span if item.type else item.span, message, hint)
            return None
        if declared != "float":
            self.elaborator.assume(term, "bool" if declared == "bool" else "i32")
        return Store((), name, output.axes, term.operand, span=item.span)
