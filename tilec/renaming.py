"""Names of values: new ones that nothing has yet, and bodies with others in their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilec.ir import Body, Kernel, Operand, defined, rebuild, walk


def substitute(body: Body, names: Mapping[str, Operand]) -> Body:
    """The body with operand names replaced."""

    def operand(x: Operand) -> Operand:
        return names.get(x, x) if isinstance(x, str) else x

    return tuple(rebuild(op, operand, lambda b: substitute(b, names)) for op in body)


def copy_fresh(body: Body, taken: set[str]) -> Body:
    """A copy of a body in which each value it defines has a new name, not in `taken`; `taken` grows by these."""
    new: dict[str, str] = {}
    for op in walk(body):
        for v in defined(op):
            new[v.name] = fresh(v.name, taken)

    def again(body: Body) -> Body:
        return tuple(
            rebuild(
                op,
                lambda x: new.get(x, x) if isinstance(x, str) else x,
                again,
                lambda v: replace(v, name=new[v.name]),
            )
            for op in body
        )

    return again(body)


def fresh(name: str, taken: set[str]) -> str:
    """A name like `name` that is not taken; it is then."""
    new = name
    if name in taken:
        base, n = f"{stem(name)}_", 1
        while (new := f"{base}{n}") in taken:
            n += 1
    taken.add(new)
    return new


def stem(name: str) -> str:
    """What a name like this one begins with, before an underscore."""
    return name.rstrip("0123456789").removesuffix("_") if "_" in name else name


def used_names(kernel: Kernel) -> set[str]:
    """Every name of a kernel that a new value must not have."""
    out = (
        {p.name for p in kernel.params}
        | {o.name for o in kernel.outputs}
        | {a.name for a in kernel.axes}
    )
    return out | set(kernel.dims) | set(kernel.values)
