"""The verifier: it passes valid kernels of every level, and finds each kind of broken rule."""

from __future__ import annotations

import pytest

from tests.kernels import GROUPED, LENGTHS, LEVELS, TILED, WHOLE
from tilec.errors import CompilerBug
from tilec.reader import read
from tilec.verify import verify


@pytest.mark.parametrize("text", [*LEVELS.values(), LENGTHS])
def test_valid(text: str) -> None:
    verify(read(text)[0])


# what is replaced in a valid kernel, by what, and what the verifier says
BROKEN = [
    (WHOLE, "  axis e < E\n", "  axis e < E\n  axis e < E\n", "listed twice"),
    (WHOLE, "axis e < E", "axis M < E", "axis M has the name of"),
    (WHOLE, "axis e < E", "axis e < F", "F, in the header"),
    (WHOLE, "O: f32[b, h, i, e]", "O: f32[b, h, i, f]", "no axis is called f"),
    (WHOLE, "  store(O, b, h, i, e, value=o)\n", "", "nothing is stored to output O"),
    (WHOLE, "s0: f32[b, h, i, j] = sum(qk", "s0: f32[b, h, i, j] = sum(zz", "zz is not defined"),
    (WHOLE, "  t: i64[i] = sub(t0, M)", "  t0: i64[i] = sub(t0, M)", "t0 is defined twice"),
    (WHOLE, "  r: f32 = sqrt(D)", "  Q: f32 = sqrt(D)", "the name of something in the header"),
    (WHOLE, "t: i64[i] = sub(t0, M)", "t: f32[i] = sub(t0, M)", "t should be i64[i]"),
    (WHOLE, "t: i64[i] = sub(t0, M)", "t: i64[j] = sub(t0, M)", "t should be i64[i]"),
    (WHOLE, "c: bool[j, i] = le(j, t)", "c: bool[j, i] = le(j, t, t)", "does not take 3 operands"),
    (
        WHOLE,
        "x: f32[b, h, i, j] = select(c,",
        "x: f32[b, h, i, j] = select(t,",
        "select needs a bool",
    ),
    (WHOLE, "t: i64[i] = sub(t0, M)", "t: i64[i] = bitand(t0, 1.5)", "bitand of 1.5 is a float"),
    (WHOLE, "r: f32 = sqrt(D)", "r: f32 = ipow(1.5, M)", "literal power"),
    (WHOLE, "load(Q, b, h, i, d)", "load(Q, b, h, i)", "Q has 4 dimensions, not 3"),
    (WHOLE, "load(Q, b, h, i, d)", "load(Q, b, h, i, 0.5)", "index 0.5 is a float"),
    (WHOLE, "load(Q, b, h, i, d)", "load(W, b, h, i, d)", "no tensor W"),
    (WHOLE, "store(O, b, h, i, e", "store(O, b, h, e, i", "stored by its axes, (b, h, i, e)"),
    (WHOLE, "value=o)", "value=x)", "has axis j too"),
    (WHOLE, "O: f32[b, h, i, e]", "O: i32[b, h, i, e]", "it needs a cast"),
    (WHOLE, "sum(pv, over=j)", "sum(pv, over=f)", "no axis is called f"),
    (WHOLE, "sum(qk, over=d)", "sum(qk, over=e)", "no operand has axis e"),
    (WHOLE, "sum(qk, over=d)", "sum(qk, over=[d, d])", "listed twice"),
    (WHOLE, "sum(qk, over=d)", "sum(qk, q, over=d)", "takes one operand"),
    (WHOLE, "softmax(x, over=j)", "softmax(x, x, over=j)", "a further logit has the axis"),
    (WHOLE, "  store(O", "  yield()\n  store(O", "a yield that does not end"),
    (GROUPED, "    yield(o)\n", "", "does not end in a yield"),
    (GROUPED, "    yield(a, l)\n", "    yield(a)\n", "1 values are given where 2"),
    (GROUPED, "    yield(a, l)\n", "    yield(a, a)\n", "a: f32[b, h, i, e] cannot become L"),
    (
        GROUPED,
        "    o: f32[b, h, i, e] = div(O_1, L)",
        "    o: f32[b, h, i, e] = div(O_1, m)",
        "m is not defined here",
    ),
    (GROUPED, "over=j, init=a1)", "over=j, init=p)", "the initial value has the axis"),
    (
        GROUPED,
        "for(-inf, 0.0, 0.0, axis=j)",
        "for(-inf, 0.0, 0.0, axis=j, stop=3)",
        "without a tile",
    ),
    (
        GROUPED,
        "for(-inf, 0.0, 0.0, axis=j)",
        "for(-inf, true, 0.0, axis=j)",
        "true: bool cannot become l_0",
    ),
    (
        TILED,
        "as (m_0, l_0, a_0)",
        "as (m_0: f32, l_0: f32[i:32], a_0: f32[i:32, e])",
        "have the same types",
    ),
    (TILED, "load(K, b, h, j, d)", "load(K, b, h, i, d)", "k should be f32[i:32, d]"),
    (TILED, "axis=j, tile=16", "axis=j, tile=0", "the tile of j is 0"),
    (TILED, "axis=j, tile=16", "axis=i, tile=16", "i has a window here already"),
    (TILED, "axis=j, tile=16, stop=u2", "axis=j, tile=16, start=3", "a multiple of the tile"),
    (TILED, "axis=j, tile=16, stop=u2", "axis=j, tile=16, stop=q", "stop q is a float"),
    (TILED, "axis=j, tile=16, stop=u2", "axis=j, tile=16, stop=i", "stop i has axes"),
    (TILED, "q: f32[i:32, d] @sram", "q: f32[i:16, d] @sram", "q should be f32[i:32, d]"),
    (TILED, "grid(axes=[b:1, h:1, i:8])", "grid(axes=[b:1, h:1, i:8, i:8])", "listed twice"),
    (TILED, "grid(axes=[b:1, h:1, i:8])", "grid(axes=[b:1, h:0, i:8])", "the tile of h is 0"),
    (TILED, "L: f32[b, h, i] @hbm = buffer()", "L: f32[b, h, i] = buffer()", "a buffer is @hbm"),
    (TILED, "    i1: i64 = last(i)", "    i1: i64 = last(k)", "no axis is called k"),
    (LENGTHS, "if(big)", "if(c)", "the condition of an if"),
    (LENGTHS, "        yield(z_0)\n", "        yield(y_0)\n", "y_0: f32 cannot become z_1"),
    (LENGTHS, "    n3: i64 = load(T, b)", "    n3: i64 = add(n2, 0)", "n2 is not defined here"),
]


@pytest.mark.parametrize(("text", "old", "new", "message"), BROKEN, ids=[b[3] for b in BROKEN])
def test_broken(text: str, old: str, new: str, message: str) -> None:
    assert text.count(old) >= 1
    (kernel,) = read(text.replace(old, new, 1))
    with pytest.raises(CompilerBug) as e:
        verify(kernel)
    assert message in str(e.value)


def test_the_failing_op_is_marked() -> None:
    (kernel,) = read(TILED.replace("maxnum(x, over=j)", "maxnum(x, over=e)"))
    with pytest.raises(CompilerBug) as e:
        verify(kernel)
    (line,) = [x for x in str(e.value).split("\n") if x.endswith("# <-- here")]
    assert line.strip().startswith("mb: f32[i:32] = maxnum(x, over=e)")


def test_groups_and_grids_stand_at_the_top() -> None:
    for inner in (
        "grid(axes=[]) {\n}",
        "B: f32 @hbm = buffer()",
        "g: f32 = group(axes=[]) {\nyield(1.0)\n}",
    ):
        (kernel,) = read(f"kernel f() -> {{\n  grid(axes=[]) {{\n{inner}\n}}\n}}")
        with pytest.raises(CompilerBug, match="at the top level only"):
            verify(kernel)


def test_a_window_does_not_leak() -> None:
    # x spans all of j; in the loop j has a window of 4
    text = """kernel f(X: f32[N]) -> Y: f32[] {
  axis j < N
  x: f32[j] = load(X, j)
  y: f32 = for(0.0, axis=j, tile=4) as (y_0) {
    s: f32 = sum(x, over=j)
    y_1: f32 = add(y_0, s)
    yield(y_1)
  }
  store(Y, value=y)
}"""
    with pytest.raises(CompilerBug, match="x has j:all, but the window of j is 4"):
        verify(read(text)[0])
    verify(read(text.replace(", tile=4", ""))[0])
