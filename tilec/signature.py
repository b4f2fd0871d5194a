"""A kernel's first line: its parameters, dimensions, scalar arguments and outputs."""

from __future__ import annotations

from collections.abc import Mapping

from tilec import syntax
from tilec.builder import Builder
from tilec.dtypes import SIZES as DTYPES
from tilec.dtypes import DType, Kind
from tilec.elaborate import Elaborator
from tilec.errors import Span
from tilec.ir import Argument, Kernel, Tensor
from tilec.scalar import Scalar
from tilec.scope import CONSTANTS, SCALAR_TYPES, Names, Report, Term
from tilec.syntax import Expr, Item, Name
from tilec.wording import near

DIMS = 32
"""How many dimensions a tensor may have."""

_ALIASES = {
    **{
        "float64": "f64",
        "double": "f64",
        "float32": "f32",
        "float16": "f16",
        "half": "f16",
        "bfloat16": "bf16",
    },
    **{
        "int64": "i64",
        "int32": "i32",
        "int16": "i16",
        "int8": "i8",
        "uint8": "u8",
        "fp8": "f8e4m3",
    },
    **{
        "float8_e4m3fn": "f8e4m3",
        "float8_e5m2": "f8e5m2",
        "int": "i32",
        "float": "f32",
        "fp32": "f32",
        "fp16": "f16",
    },
}


class Signature:
    """Reads the parameters of a kernel into `names`. `dtypes`: the element types of the untyped tensors."""

    def __init__(
        self, node: syntax.KernelDef, names: Names, report: Report, dtypes: Mapping[str, DType]
    ) -> None:
        self.node, self.names, self.report, self.dtypes = node, names, report, dtypes
        self.failed = False

    def read(self) -> tuple[Tensor | Argument, ...]:
        """The parameters in order. What is wrong with them is reported; `failed` says whether something was."""
        before = len(self.report.diagnostics)
        items = self._unique()
        self._find_dims(items)
        tensors = {id(p): self._tensor(p) for p in items if p.dims is not None}
        self.names.tensors.update((t.name, t) for t in tensors.values() if t is not None)
        found: list[Tensor | Argument | None] = []
        for p in items:
            found.append(tensors[id(p)] if p.dims is not None else self._argument(p))
        self._check_kinds_of_names(items)
        self.failed = len(self.report.diagnostics) > before
        return tuple(p for p in found if p is not None)

    def _unique(self) -> list[Item]:
        seen: set[str] = set()
        out: list[Item] = []
        for p in self.node.params:
            if p.name.name in seen:
                message = f"the parameter '{p.name.name}' is declared twice"
                self.report(p.name.span, message, "give one another name")
                continue
            if p.name.name == "out":
                self.report(
                    p.name.span,
                    "a parameter cannot be called 'out': calls use that word",
                    "choose another name",
                )
            if p.name.name in CONSTANTS:
                message = f"a parameter cannot be called '{p.name.name}': that is a constant"
                self.report(p.name.span, message, "choose another name")
            seen.add(p.name.name)
            out.append(p)
        return out

    # ---- tensors and their dimensions

    def _find_dims(self, items: list[Item]) -> None:
        """The dimensions that stand alone: an expression may use these."""
        for p in items:
            for d in p.dims or ():
                if isinstance(d, Name) and d.name not in CONSTANTS:
                    self.names.dims.setdefault(d.name)

    def _tensor(self, p: Item) -> Tensor | None:
        if p.default is not None:
            self.report(
                p.default.span,
                f"the tensor '{p.name.name}' cannot have a default",
                "only scalars can",
            )
        dims = [self._dim(d) for d in p.dims or ()]
        if not dims:
            hint = f"a single number is declared {p.name.name}: float"
            self.report(p.span, f"the tensor '{p.name.name}' has no dimension", hint)
            return None
        if len(dims) > DIMS:
            self.report(
                p.span,
                f"the tensor '{p.name.name}' has {len(dims)} dimensions; the most is {DIMS}",
                "let some of them be one",
            )
            return None
        dtype = self._dtype(p)
        return Tensor(p.name.name, dtype, tuple(dims))

    def _dtype(self, p: Item) -> DType:
        if p.type is not None and p.type.name in DTYPES:
            return p.type.name
        self.names.untyped.add(p.name.name)
        if p.type is not None:
            _bad_element_type(p.type, self.report)
            return "f32"
        if p.name.name in self.dtypes:
            self.names.untyped.discard(p.name.name)
        return self.dtypes.get(p.name.name, "f32")

    def _dim(self, e: Expr) -> Scalar:
        if isinstance(e, syntax.Number):
            return self._literal_dim(e)
        if isinstance(e, Name) and e.name not in CONSTANTS:
            return e.name
        for n in syntax.walk(e):
            if isinstance(n, Name) and n.name not in self.names.dims and n.name not in CONSTANTS:
                message = f"the dimension '{n.name}' never stands alone, so no argument says how large it is"
                hint = (
                    near(n.name, self.names.dims)
                    or f"declare some tensor with {n.name} as a dimension of its own, or give this one a plain name"
                )
                self.report(n.span, message, hint)
                return 1
        term = self._scalar(e, "a dimension", "integers and other dimensions")
        if term is None or term.scalar is None:
            return 1
        if term.kind != "int":
            self.report(e.span, "a dimension must be an integer", "write // for a whole quotient")
            return 1
        if isinstance(term.scalar, int) and term.scalar < 0:
            self.report(e.span, "a dimension cannot be negative", "give it a name, such as N")
            return 1
        return term.scalar

    def _literal_dim(self, e: syntax.Number) -> int:
        if isinstance(e.value, int):
            return e.value
        self.report(e.span, "a dimension must be an integer", "write a whole number, or a name")
        return 1

    def _scalar(self, e: Expr, what: str, may: str) -> Term | None:
        """A scalar expression over the names read so far."""
        names = Names(
            dims=self.names.dims, arguments=self.names.arguments, functions=self.names.functions
        )
        builder = Builder(Kernel("", self._so_far(), (), (), ()))
        return Elaborator(names, builder, self.report).scalar(e, what, may)

    def _so_far(self) -> tuple[Tensor | Argument, ...]:
        return (Tensor("", "f32", tuple(self.names.dims)), *self.names.arguments.values())

    # ---- scalar arguments

    def _argument(self, p: Item) -> Argument | None:
        name = p.name.name
        type = self._scalar_type(p)
        default = None
        if p.default is not None and type is not None:
            term = self._scalar(
                p.default, f"the default of '{name}'", "dimensions, numbers and earlier scalars"
            )
            default = None if term is None else self._default(p, type, term)
        argument = Argument(name, type or "float", default)
        self.names.arguments[name] = argument
        return argument

    def _scalar_type(self, p: Item) -> Kind | None:
        name = p.name.name
        if p.type is not None and p.type.name in SCALAR_TYPES:
            return p.type.name
        self.names.broken.add(name)
        if p.type is None:
            given = "" if p.default is None else " = …"
            hint = self._declared(name, name, f"{name}: float{given}")
            self.report(p.span, f"the parameter '{name}' has neither dimensions nor a type", hint)
        elif p.type.name in DTYPES:
            typed = f"{name}: {p.type.name}"
            hint = self._declared(name, typed, f"{name}: {_number_type(p.type.name)}")
            self.report(
                p.type.span,
                f"'{p.type.name}' is the element type of a tensor, and '{name}' has no dimensions",
                hint,
            )
        else:
            self.report(
                p.type.span, f"no type is called '{p.type.name}'", "a scalar is int, float or bool"
            )
        return None

    def _declared(self, name: str, tensor: str, number: str) -> str:
        """How to declare a parameter: with the dimensions that its indices ask for, where elements of it are read."""
        dims = self._read_over(name)
        if dims is None:
            return f"write {tensor}[B, H] for a tensor, {number} for a number"
        return f"its elements are read: write {tensor}[{', '.join(dims)}]"

    def _read_over(self, name: str) -> list[str] | None:
        """The dimensions of the axes in the first element of a tensor that is read; `…` for other indices. None: nowhere."""
        read = list(syntax.elements(self.node.body))
        over: dict[str, str] = {}
        for e in read:
            dims = (
                self.names.tensors[e.tensor.name].dims
                if e.tensor.name in self.names.tensors
                else ()
            )
            over |= {
                i.name: d
                for i, d in zip(e.index, dims, strict=False)
                if isinstance(i, Name) and isinstance(d, str) and i.name not in over
            }
        index = next((e.index for e in read if e.tensor.name == name), None)
        if index is None:
            return None
        return [over.get(i.name, "…") if isinstance(i, Name) else "…" for i in index]

    def _default(self, p: Item, type: Kind, term: Term) -> Scalar | None:
        assert p.default is not None
        value, span, name = term.scalar, p.default.span, p.name.name
        if (type == "bool") != (term.kind == "bool"):
            hint = (
                "write true or false"
                if type == "bool"
                else "a bool parameter is declared with : bool"
            )
            self.report(span, f"'{name}' is declared {type}, and its default is another kind", hint)
            return None
        if type == "int" and isinstance(value, float):
            if not value.is_integer():
                self.report(
                    span,
                    f"'{name}' is declared int, and its default is {value}",
                    f"write {name}: float",
                )
                return None
            return int(value)
        if type == "float" and isinstance(value, int):
            return float(value)
        return value

    def _check_kinds_of_names(self, items: list[Item]) -> None:
        for p in items:
            if p.dims is None and p.name.name in self.names.dims:
                message = f"'{p.name.name}' is a scalar parameter and a dimension"
                self.report(
                    p.name.span,
                    message,
                    "give one another name; a dimension may be used as a number as it is",
                )


def _number_type(dtype: str) -> str:
    return "bool" if dtype == "bool" else "float" if dtype[0] in "bf" else "int"


def _bad_element_type(type: Name, report: Report) -> None:
    alias = _ALIASES.get(type.name.lower())
    hint = (
        f"did you mean '{alias}'?"
        if alias
        else near(type.name, DTYPES) or f"element types: {' '.join(DTYPES)}"
    )
    message = f"no element type is called '{type.name}'"
    if type.name in SCALAR_TYPES:
        message = f"'{type.name}' is the type of a scalar, not of a tensor's elements"
    report(type.span, message, hint)


def output_dtype(item: Item, report: Report) -> DType | None:
    """The element type that an output declares, or None."""
    if item.type is None:
        return None
    if item.type.name in DTYPES:
        return item.type.name
    _bad_element_type(item.type, report)
    return None


def output_axes(item: Item, names: Names, report: Report) -> tuple[str, ...] | None:
    """The axes of an output, or None where they are wrong."""
    if item.default is not None:
        message = f"the output '{item.name.name}' cannot have a default"
        report(item.default.span, message, "define it by a line of the kernel")
    if item.dims is None:
        hint = f"write {item.name.name}[b, h, i], or {item.name.name}[] for a single number"
        report(item.span, f"the output '{item.name.name}' has no axes", hint)
        return None
    axes = [_output_axis(d, item, names, report) for d in item.dims]
    for k, a in enumerate(axes):
        if a is not None and a in axes[:k]:
            report(
                item.dims[k].span,
                f"the output '{item.name.name}' has the axis '{a}' twice",
                "name each axis once",
            )
            return None
    return tuple(a for a in axes if a is not None) if None not in axes else None


def _output_axis(e: Expr, item: Item, names: Names, report: Report) -> str | None:
    span: Span = e.span
    if not isinstance(e, Name):
        report(
            span,
            f"an output's brackets hold its axes, and '{item.name.name}' has something else",
            "write O[b, h, i]",
        )
        return None
    if why := names.no_axis(e.name):
        report(
            span,
            f"'{e.name}' is {why}, and an output's brackets hold axes",
            _lower_hint(e.name, names),
        )
        return None
    if e.name not in names.axes and names.incomplete:
        return None
    if e.name not in names.axes:
        hint = (
            near(e.name, names.axes)
            or f"use {e.name} as an index of a tensor, or add axis {e.name} < …"
        )
        report(
            span,
            f"nothing says what the axis '{e.name}' of the output '{item.name.name}' ranges over",
            hint,
        )
        return None
    return e.name


def _lower_hint(name: str, names: Names) -> str | None:
    over = [a for a, r in names.axes.items() if r.extent == name]
    if not over and name.islower() and name in names.dims:
        return f"a dimension called {name.upper()} leaves {name} free for the axis over it"
    return f"the axis over {name} is '{over[0]}'" if over else None
