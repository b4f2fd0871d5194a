"""What to say about a name that means nothing where it stands.

Each function reports one such name, in terms of what it is elsewhere and of names like it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tilec import scalar, syntax
from tilec.scope import BUILT_IN, CONSTANTS, FAILED, REDUCTIONS, Frame, Term
from tilec.syntax import Name
from tilec.wording import FOREIGN_FUNCTIONS, FOREIGN_NAMES, count, near

if TYPE_CHECKING:
    from tilec.elaborate import Elaborator


def not_seen(el: Elaborator, e: Name, frame: Frame) -> Term:
    """A name that a function at the top of a file does not see; gives the value of a mistake."""
    known = (*BUILT_IN, *REDUCTIONS, *FOREIGN_NAMES)
    if e.name == frame.function or e.name in known:
        no_such_name(el, e, frame)
        return FAILED
    hint = near(e.name, [*frame.params, *CONSTANTS])
    el.report(
        e.span,
        f"'{e.name}' is not a parameter of '{frame.function}': a function at the top of a file sees only its own",
        hint or f"pass '{e.name}' as an argument, or move the def line into the kernel",
    )
    return FAILED


def no_such_name(el: Elaborator, e: Name, frame: Frame, among: Iterable[str] | None = None) -> None:
    """A name that is used alone. `among`: the names that could stand here, where not every name could."""
    name = e.name
    if name in el.unknown:
        return
    if name in el.names.lets:
        el.names.incomplete = True
        hint = "move that line up, or give this index another name: a name that a line defines is never an axis"
        el.report(
            e.span,
            f"'{name}' is used before line {el.names.lets[name].line} defines it",
            hint,
        )
    elif name in el.names.tensors:
        el.names.incomplete = True
        dims = ", ".join(["…"] * len(el.names.tensors[name].dims))
        message = f"'{name}' is a tensor: its elements are written {name}[{dims}]"
        el.report(e.span, message, "write an index for each of its dimensions")
    elif name in FOREIGN_NAMES:
        el.report(e.span, f"'{name}' is not in the language", FOREIGN_NAMES[name])
    elif el.names.function(name, frame.top) or name in BUILT_IN or name in REDUCTIONS:
        axes = "[j]" if name in REDUCTIONS and name not in BUILT_IN else ""
        el.report(e.span, f"'{name}' is a function", f"write {name}{axes}(…)")
    else:
        el.unknown.add(name)
        hint = near(name, [*frame.params, *(el.names.known() if among is None else among)])
        if el.names.incomplete and not hint:
            return
        if not hint and el.may:
            hint = f"this can only be made of {el.may}"
        elif not hint and name.isupper():
            hint = f"axes are written in lower case: did you mean '{name.lower()}'?"
        el.report(
            e.span,
            f"nothing says what '{name}' is: it is neither defined nor the index of a tensor's dimension",
            hint or (f"say what it ranges over: axis {name} < …" if name[0].islower() else None),
        )


def wrong_rank(el: Elaborator, e: syntax.Index, name: str) -> None:
    """A tensor with more or fewer indices than dimensions."""
    dims = [scalar.show(d) for d in el.names.tensors[name].dims]
    given = count(len(e.index), "index is", "indices are")
    message = f"{name} has {count(len(dims), 'dimension')}, but {given} given"
    el.report(e.span, message, f"it is declared {name}[{', '.join(dims)}]")


def no_tensor(el: Elaborator, e: syntax.Index, frame: Frame) -> None:
    """A name with indices that is no tensor parameter."""
    name, span, names = e.tensor.name, e.tensor.span, el.names
    names.incomplete = True
    if said := _elsewhere(el, e, frame):
        el.report(span, *said)
    elif name in REDUCTIONS:
        el.report(span, f"'{name}' has nothing to reduce", f"write {name}[j](…)")
    elif name in names.broken:
        return
    elif why := names.no_axis(name):
        hint = f"declare it {_declared(e)}: a dimension for each index"
        el.report(
            span,
            f"'{name}' is {why}, not a tensor parameter",
            hint if name in names.arguments else None,
        )
    elif not names.tensors and not names.lets:
        el.report(span, "no tensor can be read here", "only sizes and scalars are known here")
    elif name not in el.unknown:
        el.unknown.add(name)
        hint = near(name, names.tensors) or f"declare it in the kernel's first line: {_declared(e)}"
        el.report(span, f"no tensor parameter is called '{name}'", hint)


def _elsewhere(el: Elaborator, e: syntax.Index, frame: Frame) -> tuple[str, str] | None:
    """What to say where the name stands for a number or a value, or no tensor can be seen."""
    name, names = e.tensor.name, el.names
    if name in frame.params:
        return (
            f"'{name}' is a parameter of '{frame.function}': a number, which has no elements",
            "functions take numbers; inside a kernel they see its tensors by name",
        )
    if frame.top:
        return (
            f"'{frame.function}' cannot see tensors: it is defined at the top of the file",
            "pass the element as an argument, or move the def line into the kernel",
        )
    if name in names.values:
        return (
            f"'{name}' is a value, not a tensor parameter",
            f"write {name} alone: it keeps its axes",
        )
    if name in names.lets:
        within = e.tensor.span.line == names.lets[name].line
        return (
            f"'{name}' is a value, which has no elements",
            "a value cannot be made of its own elements: there are no recurrences"
            if within
            else f"write {name} below the line that defines it",
        )
    return None


def _declared(e: syntax.Index) -> str:
    """How a tensor with as many dimensions is declared."""
    return f"{e.tensor.name}[{', '.join(['…'] * len(e.index))}]"


def no_function(el: Elaborator, e: syntax.Call, frame: Frame) -> None:
    """A name that is called and is no function."""
    name, span = e.fn.name, e.fn.span
    if name in REDUCTIONS:
        el.report(span, f"'{name}' needs the axes it reduces over", f"write {name}[j](…)")
    elif name in el.names.local:
        line = el.names.local[name].span.line
        where = (
            "in a kernel, which this function does not see" if frame.top else f"only in line {line}"
        )
        el.report(span, f"the function '{name}' is defined {where}", "move its def line up")
    elif name in el.names.tensors:
        el.names.incomplete = True
        el.report(span, f"'{name}' is a tensor, not a function", f"write {name}[…]")
    elif name in ("int", "float"):
        el.report(
            span, f"'{name}' is not a function", f"write {'i32' if name == 'int' else 'f32'}(…)"
        )
    elif name in el.names.known() or name in frame.params:
        el.report(span, f"'{name}' is not a function", f"write {name} * (…) to multiply")
    else:
        functions = [*el.names.functions, *el.names.seen, *BUILT_IN, *REDUCTIONS]
        hint = FOREIGN_FUNCTIONS.get(name) or near(name, functions)
        el.report(span, f"no function is called '{name}'", hint)


def no_reduction(el: Elaborator, e: syntax.Reduction) -> None:
    """A name with axes in brackets that is no reduction."""
    name = e.fn.name
    if name in BUILT_IN or el.names.function(name, False):
        el.report(e.fn.span, f"'{name}' is no reduction", f"write {name}(…), without axes")
    elif name in el.names.tensors:
        el.report(
            e.span, f"'{name}' is a tensor: an element cannot be called", "write * to multiply"
        )
    else:
        hint = FOREIGN_FUNCTIONS.get(name) or near(name, REDUCTIONS)
        el.report(e.fn.span, f"no reduction is called '{name}'", hint)
