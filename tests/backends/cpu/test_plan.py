"""Which values are computed together, which are kept, and what is known of them."""

from __future__ import annotations

import pytest

from tests.backends.cpu.lowering import kernel
from tests.backends.cpu.test_lower import ATTENTION
from tilec.backends.cpu.facts import Facts
from tilec.backends.cpu.jit import PROCESSORS, Machine
from tilec.backends.cpu.plan import Planner, Segment
from tilec.backends.cpu.registers import row_tiles, rows_for, spread_for
from tilec.backends.cpu.task import grows
from tilec.backends.cpu.trim import Bound, bounds
from tilec.dataflow import uses
from tilec.ir import For, Grid, Kernel, Map, Op, Operand, Yield


def loop_of(k: Kernel) -> For:
    grid = next(op for op in k.body if isinstance(op, Grid))
    return next(op for op in grid.body if isinstance(op, For))


def axes_in(k: Kernel, x: Operand) -> tuple[str, ...]:
    if isinstance(x, str) and x in k.values:
        return k.values[x].type.axes
    return (x,) if isinstance(x, str) and x in "ijde" else ()


def is_free(k: Kernel, x: Operand) -> bool:
    if not isinstance(x, str) or x not in k.values:
        return True
    return k.values[x].type.dtype in ("i64", "bool")


def straight(loop: For) -> tuple[list[Op], set[str]]:
    ops = [op for op in loop.body if not isinstance(op, Yield)]
    return ops, set(uses([loop.body[-1]]))


def planned(text: str) -> Segment:
    k = kernel(text)
    ops, later = straight(loop_of(k))
    return Planner(ops, "i", later, lambda x: axes_in(k, x), lambda x: is_free(k, x)).plan()


def test_a_block_of_attention_takes_five_stages_on_each_panel() -> None:
    plan = planned(ATTENTION)
    stages = {n: plan.stages[n] for step in plan.steps if step.panel for n in step.stages}
    assert [set(s.domain) for s in stages.values()] == [
        {"i", "j"},
        {"i"},
        {"i", "j"},
        {"i"},
        {"i", "e"},
    ]
    first, _, weights, _, last = stages.values()
    assert first.root is not None
    assert first.root.result.name == "s"
    assert [r.result.name for r in first.reduces] == ["r"]
    # the scores are kept masked and scaled, not as they come from the contraction
    assert first.kept == ["x"]
    assert weights.kept == ["p"]
    assert [r.result.name for r in weights.reduces] == ["r_2"]
    assert last.kept == ["a_1"]


def test_blocks_of_keys_and_values_come_before_the_panels() -> None:
    plan = planned(ATTENTION)
    assert [step.panel for step in plan.steps] == [False, False, True]
    assert {plan.stages[n].kept[0] for step in plan.steps[:2] for n in step.stages} == {"k", "v"}
    assert {"p", "x", "al"} <= plan.local
    assert not {"k", "v", "a_1", "m_1"} & plan.local


def test_a_costly_value_without_lanes_is_kept_once_per_block() -> None:
    text = ATTENTION.replace(
        "w: bool[j:16, i:32] = le(j, t_2)",
        "jd: i64[j:16] = floordiv(j, 3)\n      jm: i64[j:16] = mul(jd, 3)\n"
        "      w: bool[j:16, i:32] = le(jm, t_2)",
    )
    k = kernel(text)
    ops, later = straight(loop_of(k))

    def cheap(x: Operand) -> bool:
        return is_free(k, x) and x not in ("jd", "jm", "w")

    plan = Planner(ops, "i", later, lambda x: axes_in(k, x), cheap).plan()
    assert ["jm"] in [s.kept for s in plan.stages]


# ---- facts


def test_attention_has_relaxed_and_exact_code() -> None:
    k = kernel(ATTENTION)
    facts = Facts(k)
    (grid,) = (op for op in k.body if isinstance(op, Grid))
    assert facts.modes(grid) == (False, True)
    assert {"p", "al"} <= facts.absent
    assert "l_1" not in facts.absent
    assert "p" in facts.relaxed(grid)


def test_a_program_that_can_drop_nan_is_exact_only() -> None:
    text = ATTENTION.replace(
        "    o: f32[i:32, e] = div(a, l)",
        "    big: bool[i:32, e] = gt(a, 0.5)\n    o: f32[i:32, e] = select(big, a, 0.0)",
    )
    k = kernel(text)
    (grid,) = (op for op in k.body if isinstance(op, Grid))
    assert Facts(k).modes(grid) == (True,)


def test_sums_are_plain_where_infinities_cannot_meet() -> None:
    text = """
kernel f(X: f32[N], Y: f32[N]) -> O: f32[i] {
  axis i < N
  grid(axes=[i:16]) {
    x: f32[i:16] = load(X, i)
    y: f32[i:16] = load(Y, i)
    t: f32[i:16] = max(y, -1e30)
    a: f32[i:16] = sub(x, y)
    b: f32[i:16] = sub(x, t)
    c: f32[i:16] = add(x, 1.0)
    d: f32[i:16] = add(x, t)
    e: f32[i:16] = add(a, b)
    f: f32[i:16] = add(c, d)
    o: f32[i:16] = add(e, f)
    store(O, i, value=o)
  }
}"""
    facts = Facts(kernel(text))
    plain = {
        n: facts.plain(op) for n, op in facts.defs.items() if isinstance(op, Map) and n in "abcd"
    }
    assert plain == {"a": False, "b": True, "c": True, "d": False}


# ---- bounds


def found(text: str) -> list[Bound]:
    k = kernel(text)
    ops, later = straight(loop_of(k))
    return bounds(ops, "j", later, lambda x: axes_in(k, x), lambda x: is_free(k, x))


def test_a_causal_mask_bounds_the_positions_from_above() -> None:
    assert found(ATTENTION) == [Bound("j", "t_2", True, 1)]


def test_a_window_bounds_the_positions_on_both_sides() -> None:
    text = ATTENTION.replace(
        "w: bool[j:16, i:32] = le(j, t_2)",
        "u: i64[i:32] = sub(t_2, 7)\n      up: bool[j:16, i:32] = le(j, t_2)\n"
        "      lo: bool[j:16, i:32] = gt(j, u)\n      w: bool[j:16, i:32] = and(up, lo)",
    )
    assert found(text) == [Bound("j", "t_2", True, 1), Bound("u", "j", False, 1)]


def test_a_part_of_a_mask_bounds_the_positions_where_the_rest_is_data() -> None:
    text = ATTENTION.replace(
        "w: bool[j:16, i:32] = le(j, t_2)",
        "g: f32[j:16] = load(K, b, h, j, 0)\n      up: bool[j:16, i:32] = le(j, t_2)\n"
        "      on: bool[j:16] = gt(g, 0.0)\n      w: bool[j:16, i:32] = and(up, on)",
    )
    assert found(text) == [Bound("j", "t_2", True, 1)]
    assert found(text.replace("and(up, on)", "or(up, on)")) == []


def test_quotients_are_relaxed_where_the_divisor_lacks_an_axis() -> None:
    capped, literal, rows, varying = (
        ATTENTION.replace("= mul(s, 0.36067376)", f"= div(s, {x})").replace(
            "V: f32[B, H, N, 24])", "V: f32[B, H, N, 24], cap: float)"
        )
        for x in ("cap", "50.0", "m_0", "s")
    )
    for text, relaxed in ((capped, True), (literal, True), (rows, True), (varying, False)):
        k = kernel(text)
        (grid,) = (op for op in k.body if isinstance(op, Grid))
        assert ("c" in Facts(k).relaxed(grid)) == relaxed


def test_a_value_that_masked_positions_reach_stops_it() -> None:
    text = ATTENTION.replace("r_2: f32[i:32] = sum(p, over=j)", "r_2: f32[i:32] = sum(c, over=j)")
    assert found(text) == []


# ---- register tiles


def test_rows_are_covered_once_by_tiles_that_are_not_too_short() -> None:
    for most in (3, 6, 12):
        for n in range(1, 140):
            tiles = row_tiles(n, most)
            at = 0
            for first, rows, count in tiles:
                assert first == at
                at += rows * count
                assert rows <= most
                assert rows >= min(n, 3, most // 2 + 1)
            assert at == n


@pytest.mark.parametrize("processor", list(PROCESSORS.values()), ids=list(PROCESSORS))
def test_a_register_tile_leaves_room_for_its_operands(processor: Machine) -> None:
    product = 0 if processor.fma else 1
    for kind, vectors in (("f32", 2), ("f64", 4)):
        rows = rows_for(processor, kind)
        assert rows * vectors + vectors + 1 + product <= processor.registers
        assert rows * vectors >= 8
        assert 1 <= spread_for(processor, kind) <= rows


# ---- the order of tasks


@pytest.mark.parametrize(
    ("bounds", "descending"),
    [
        ("axis=j, tile=16", False),
        ("axis=j, tile=16, stop=end", True),
        ("axis=j, tile=16, start=begin", False),
        ("axis=j, tile=16, start=begin, stop=end", False),
    ],
)
def test_tasks_that_look_at_more_come_first(bounds: str, descending: bool) -> None:
    k = kernel(f"""
kernel f(X: f32[M, N]) -> O: f32[i] {{
  axis i < M
  axis j < N
  grid(axes=[i:16]) {{
    i_first: i64 = first(i)
    i_last: i64 = last(i)
    begin: i64 = max(i_first, 0)
    end: i64 = min(N, i_last)
    t: f32[i:16] = for(0.0, {bounds}) as (t_0) {{
      x: f32[i:16, j:16] = load(X, i, j)
      s: f32[i:16] = sum(x, over=j)
      t_1: f32[i:16] = add(t_0, s)
      yield(t_1)
    }}
    store(O, i, value=t)
  }}
}}""")
    (grid,) = k.body
    assert isinstance(grid, Grid)
    assert grows(grid, "i", Facts(k).defs) == descending
