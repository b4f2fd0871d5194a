"""A pass that comes too early or too late is refused, with the pass that must come first."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tests.programs import CAUSAL
from tilec import levels, pipeline
from tilec.check import lower
from tilec.errors import ArgumentError, CompilerBug
from tilec.parse import parse


def tensors():
    program = parse(CAUSAL, "causal.tile")
    return lower(program, "causal", dict.fromkeys(("Q", "K", "V"), "f32"))


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ("fuse", "pass fuse needs softmax, logsumexp and mean in primitives; run expand before it"),
        ("online", "pass online needs groups; run fuse before it"),
        ("expand,tile", "pass tile needs groups; run fuse before it"),
        ("expand,fuse,online,prune", "pass prune needs grids; run fuse and tile before it"),
        ("place", "pass place needs grids; run fuse and tile before it"),
        ("expand,fuse,contract", "this kernel has groups or grids already: leave it out"),
        ("expand,fuse,online,tile,tile", "this kernel has grids already: leave it out"),
    ],
)
def test_the_pass_that_is_missing_is_named(steps, words):
    with pytest.raises(ArgumentError, match=words):
        pipeline.run(tensors(), pipeline.parse(steps))


def test_every_pass_of_the_default_pipeline_finds_its_level():
    kernel = tensors()
    for name in pipeline.PASSES:
        levels.require(name, kernel)
        kernel = pipeline.apply(kernel, pipeline.Step(name))


def test_two_passes_either_run_or_are_refused():
    """No order of passes ends in a bug of tilec."""
    for names in itertools.permutations(pipeline.PASSES, 2):
        try:
            pipeline.run(tensors(), tuple(map(pipeline.Step, names)))
        except ArgumentError as e:
            assert str(e).startswith("pass ")  # noqa: PT017


def test_a_kernel_of_scalars_runs_through_every_pass():
    program = parse("kernel f(X[N], n: int) -> A: i32[]:\n    A = 2 * n + N\n", "f.tile")
    pipeline.run(lower(program, "f", {"X": "f32"}), tuple(map(pipeline.Step, pipeline.PASSES)))


def test_a_pass_that_breaks_the_ir_is_found(monkeypatch):
    sound = pipeline.apply

    def apply(kernel, s):
        made = sound(kernel, s)
        if s.name != "fuse":
            return made
        return replace(made, outputs=(*made.outputs, *made.outputs))

    monkeypatch.setattr(pipeline, "apply", apply)
    with pytest.raises(CompilerBug, match="listed twice"):
        pipeline.run(tensors(), pipeline.tensor_pipeline())
