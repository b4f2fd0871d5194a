"""What a launch of a kernel needs to know of its tensors."""

from __future__ import annotations

from collections.abc import Mapping

from tilec.backends.cuda.call import View
from tilec.backends.cuda.hopper.expression import POSITION
from tilec.backends.cuda.hopper.launch import blocks, parameters
from tilec.backends.cuda.hopper.source import Facts
from tilec.scalar import Number

STEP = 1 << 31
"""Steps between rows of 16-byte pieces are below this, in elements."""


def in_pieces(
    facts: Facts, views: Mapping[str, View], sizes: Mapping[str, Number]
) -> frozenset[str]:
    """The parameters of the program that cannot be copied 16 bytes at a time."""
    given = facts.header.tensors
    wide = {n: f for n, f in facts.wide.items() if n in given}
    return frozenset(n for n, feature in wide.items() if _narrow(n, views[n], feature))


def refusal(facts: Facts, views: Mapping[str, View], sizes: Mapping[str, Number]) -> str | None:
    """Why the kernel cannot take these tensors, or None."""
    lengths = [n for v in views.values() for n in v.shape]
    if max(lengths, default=0) >= 1 << POSITION:
        return f"a dimension is {max(lengths):,}; positions must be below 2 ** {POSITION}"
    whys = (_narrow(n, views[n], feature) for n, feature in facts.wide.items())
    return next((w for w in whys if w), None)


def _narrow(name: str, view: View, feature: int) -> str | None:
    """Why a tensor cannot be read or written 16 bytes at a time."""
    if view.strides[feature] != 1 and view.shape[feature] > 1:
        return f"{name}: the elements of a row are not adjacent"
    if view.pointer % 16:
        return f"{name}: it does not begin at a multiple of 16 bytes"
    for k, (n, step) in enumerate(zip(view.shape, view.strides, strict=True)):
        if k != feature and n > 1 and (step % 8 or abs(step) >= STEP):
            return f"{name}: the step of dimension {k} is {step} elements, no multiple of 8 below 2 ** 31"
    return None


__all__ = ["blocks", "in_pieces", "parameters", "refusal"]
