"""Reductions: which axes they bind, and how those of functions stay apart from those of their callers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec import syntax, unknown
from tilec.ir import Axis
from tilec.lacking import reduce
from tilec.renaming import fresh
from tilec.scope import CONSTANTS, FAILED, REDUCTIONS, Frame, Term
from tilec.syntax import Name

if TYPE_CHECKING:
    from tilec.elaborate import Elaborator


def reduction(el: Elaborator, e: syntax.Reduction, frame: Frame) -> Term:
    """A reduction over axes in brackets, with further logits of softmax and logsumexp."""
    fn = e.fn.name
    if fn not in REDUCTIONS:
        unknown.no_reduction(el, e)
    axes = _bound(el, e, frame)
    if not e.args or len(e.args) > 1 and fn not in ("softmax", "logsumexp"):
        axes_ = ", ".join(a.name for a in e.axes)
        el.report(
            e.span,
            f"'{fn}[…]' takes 1 argument, not {len(e.args)}",
            f"write {fn}[{axes_}](x); several axes stand in the brackets",
        )
        axes = None
    inner = frame if axes is None else _without_capture(el, e, axes, frame)
    x = el.term(e.args[0], inner) if e.args else FAILED
    logits = [el.term(a, frame) for a in e.args[1:]]
    if axes is None or fn not in REDUCTIONS or x.failed or any(a.failed for a in logits):
        return FAILED
    bound = tuple(inner.axes.get(name, axis) for name, axis in axes)
    if _captured(el, e, axes, inner, frame) or not _fit(el, e, bound, logits):
        return FAILED
    el.count(e.span)
    out = reduce(el, e.span, fn, x, logits, bound)
    gone: frozenset[str] = frozenset() if fn == "softmax" else frozenset(bound)
    mentions = frozenset[str]().union(x.mentions - gone, *(a.mentions for a in logits))
    return replace(out, mentions=mentions, bare=None, scalar=None)


def _bound(el: Elaborator, e: syntax.Reduction, frame: Frame) -> list[tuple[str, str]] | None:
    """The axes a reduction binds: the name it writes for each, and the axis. None: that is reported."""
    if not e.axes:
        el.report(e.span, f"'{e.fn.name}[]' says no axis", f"write {e.fn.name}[j](…)")
        return None
    out: list[tuple[str, str]] = []
    for name in e.axes:
        axis = _bound_axis(el, e, name, frame)
        if axis is None:
            return None
        if any(axis == a for _, a in out):
            el.report(
                name.span,
                f"'{e.fn.name}' reduces over '{name.name}' twice",
                "name each axis once",
            )
            return None
        out.append((name.name, axis))
    return out


def _bound_axis(el: Elaborator, e: syntax.Reduction, name: Name, frame: Frame) -> str | None:
    if name.name in frame.params:
        term = frame.params[name.name]
        if term.bare is None and not term.failed and not el.generic:
            message = f"'{name.name}' is a parameter of '{frame.function}', and here it is no axis"
            el.report(name.span, message, "pass an axis by its name")
        return term.bare
    if not (el.generic and frame.top) and (why := el.names.no_axis(name.name)):
        el.report(
            name.span,
            f"'{name.name}' is {why}: '{e.fn.name}' reduces over axes",
            _another(el, name.name),
        )
        return None
    if name.name in el.names.axes:
        return frame.axes.get(name.name, name.name)
    if not el.generic:
        unknown.no_such_name(el, name, frame, el.names.axes)
    return None


def _without_capture(
    el: Elaborator, e: syntax.Reduction, axes: list[tuple[str, str]], frame: Frame
) -> Frame:
    """The frame of a reduction's operand: an axis that the function's own text names, and an argument of it
    mentions, becomes one of its own."""
    own = {n.name for a in e.args[:1] for n in syntax.walk(a) if isinstance(n, Name)}
    mentioned = frozenset[str]().union(
        *(frame.params[n].mentions for n in own if n in frame.params)
    )
    renamed = {
        name: _twin(el, name, mentioned)
        for name, axis in axes
        if name not in frame.params and name in own and axis in mentioned
    }
    return replace(frame, axes={**frame.axes, **renamed}) if renamed else frame


def _twin(el: Elaborator, name: str, mentioned: frozenset[str]) -> str:
    """Another axis with the range of `name`, that no argument mentions."""
    twins = el.twins.setdefault(name, [])
    for twin in twins:
        if twin not in mentioned:
            return twin
    twin = fresh(name, el.builder.taken)
    twins.append(twin)
    el.names.axes[twin] = el.names.axes[name]
    kernel = el.builder.kernel
    el.builder.kernel = replace(kernel, axes=(*kernel.axes, Axis(twin, el.names.axes[name].extent)))
    return twin


def _captured(
    el: Elaborator, e: syntax.Reduction, axes: list[tuple[str, str]], inner: Frame, frame: Frame
) -> bool:
    """Reports a kernel's value that varies over an axis which had to be renamed here."""
    for name, axis in axes:
        if inner.axes.get(name) == frame.axes.get(name):
            continue
        for n in syntax.walk(e.args[0]):
            if not isinstance(n, Name) or n.name in frame.params or n.name not in el.names.values:
                continue
            if axis in el.names.values[n.name].axes:
                both = f"'{n.name}' varies over '{name}', and so does an argument of '{frame.function}'"
                el.report(n.span, both, f"use another index than '{name}' in the call")
                return True
    return False


def _fit(el: Elaborator, e: syntax.Reduction, bound: tuple[str, ...], logits: list[Term]) -> bool:
    for a, arg in zip(logits, e.args[1:], strict=True):
        over = [x for x in bound if x in a.axes]
        if over:
            message = f"a further logit of '{e.fn.name}' must not vary over '{over[0]}'"
            el.report(
                arg.span,
                message,
                "it is one more term of each row; add what varies to the first argument",
            )
            return False
    return True


def _another(el: Elaborator, name: str) -> str | None:
    """What to write in place of a name that is no axis."""
    if name in el.names.dims and not name.islower():
        over = [a for a, r in el.names.axes.items() if r.extent == name]
        near = name.lower() if name.lower() in el.names.axes else over[0] if over else None
        return f"did you mean '{near}'?" if near else "use an index over that dimension"
    if name in el.names.dims:
        return f"use another index; a dimension called {name.upper()} leaves {name} free for the axis over it"
    what = "value" if name in el.names.lets else "parameter"
    return f"give the {what} another name, or use another index" if name not in CONSTANTS else None
