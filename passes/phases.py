"""phases: loops over an axis, one after the other, as grids of their own.

Requires: tiles (after tile; best after prune). Changes: a grid whose loops carry different values becomes a grid for each
run of loops that carry the same ones. What a run gives is a buffer, which the grids behind it load.

    grid(axes=[b:1, i:128]) {                    grid(axes=[b:1, i:128]) {
      l = for(0.0, axis=j, tile=64) {…}            l = for(0.0, axis=j, tile=64) {…}
      m = div(l, N)                                store(l_all, b, i, value=l) }
      o = for(0.0, axis=j, tile=64) {… m …}      grid(axes=[b:1, i:128]) {
      store(O, b, i, value=o) }            ->      l_1 = load(l_all, b, i)
                                                   m = div(l_1, N)
                                                   o = for(0.0, axis=j, tile=64) {… m …}
                                                   store(O, b, i, value=o) }

Each then is a kernel that keeps one thing in its registers, as tensor cores want it. What is computed before the loops is
computed in each grid.
"""

from __future__ import annotations

from dataclasses import replace

from tilec.dataflow import live, uses
from tilec.ir import Body, Buffer, For, Grid, Kernel, Load, Op, Store, Type, Value
from tilec.renaming import copy_fresh, fresh, substitute, used_names


def phases(kernel: Kernel) -> Kernel:
    """The kernel with a grid for each run of loops."""
    taken = used_names(kernel)
    return replace(kernel, body=tuple(x for op in kernel.body for x in _apart(op, taken)))


def _apart(op: Op, taken: set[str]) -> list[Op]:
    """What an op at the top level becomes."""
    if not isinstance(op, Grid):
        return [op]
    first, *more = _runs(op.body) or [[]]
    cut = _cut(op, first[-1], taken) if more else None
    if cut is None:
        return [op]
    *done, rest = cut
    return [*done, *_apart(rest, taken)]


def _runs(body: Body) -> list[list[For]]:
    """The loops of a grid, those together that carry on the same values."""
    out: list[list[For]] = []
    for op in body:
        if not isinstance(op, For):
            continue
        follows = bool(out) and op.init == tuple(v.name for v in out[-1][-1].results)
        if follows and op.axis == out[-1][-1].axis:
            out[-1].append(op)
        else:
            out.append([op])
    return out


def _cut(grid: Grid, last: For, taken: set[str]) -> list[Op] | None:
    """The buffers for what the loops up to `last` give, the grid of these, and the one that goes on; None where a tile gives
    one number for all of its rows."""
    at = grid.body.index(last) + 1
    before, after = grid.body[:at], grid.body[at:]
    read = uses(after)
    given = [v for op in before if isinstance(op, For) for v in op.results if v.name in read]
    windowed = {a for a, n in grid.axes if n > 1}
    if any(not windowed <= set(v.type.axes) for v in given):
        return None
    buffers = {v.name: _buffer(v, grid, taken) for v in given}
    stores = [Store((), b.name, b.type.axes, n, span=grid.span) for n, b in buffers.items()]
    first = replace(grid, body=live((*before, *stores)))
    again = [op for op in before if not isinstance(op, (For, Store))]
    loads = [_load(v, buffers[v.name], taken) for v in given]
    names = {v.name: op.result.name for v, op in zip(given, loads, strict=True)}
    goes_on = live((*again, *loads, *substitute(after, names)))
    (second,) = copy_fresh((replace(grid, body=goes_on),), taken)
    return [*(Buffer((b,), span=grid.span) for b in buffers.values()), first, second]


def _buffer(state: Value, grid: Grid, taken: set[str]) -> Value:
    """A buffer for what all tiles have of a value."""
    own = [a for a in state.type.axes if a not in dict(grid.axes)]
    type = Type(state.type.dtype, (*dict(grid.axes), *own), (), "hbm")
    return Value(fresh(f"{state.name}_all", taken), type)


def _load(state: Value, buffer: Value, taken: set[str]) -> Load:
    """What the present tile has of it."""
    return Load((replace(state, name=fresh(state.name, taken)),), buffer.name, buffer.type.axes)
