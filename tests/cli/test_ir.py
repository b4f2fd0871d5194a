"""`tilec ir` and `tilec opt`: the IR along the pipeline, and passes over its text."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_ir(tile):
    status, out, err = tile("ir", "causal.tile", "--tile", "i=16,j=8")
    assert (status, err) == (0, "")
    assert "grid(axes=[b:1, h:1, i:16])" in out
    assert "tile=8" in out
    status, out, _ = tile("ir", "causal.tile", "--after", "fuse")
    assert "group(" in out
    assert "for(" not in out


def test_ir_along_the_pipeline(tile):
    _, out, _ = tile("ir", "causal.tile", "--list")
    names = [line.split()[0] for line in out.splitlines()]
    assert names[0] == "expand"
    assert not any(f"{name}:" in out for name in names)
    _, out, _ = tile("ir", "causal.tile", "--all")
    assert [x.split()[-1] for x in out.splitlines() if x.startswith("# after")] == ["lower", *names]
    _, out, _ = tile("ir", "causal.tile", "--diff", "--passes", "expand,simplify")
    assert "+++ after expand" in out
    assert any(line.startswith("-") and "softmax" in line for line in out.splitlines())
    _, out, _ = tile("ir", "causal.tile", "--bytes", "--after", "fuse")
    assert "total" in out
    _, out, _ = tile("ir", "causal.tile", "--bytes", "--after", "fuse", "--json")
    found = json.loads(out)
    assert found["total"]["read"] == sum(x["read"] for x in found["ops"]) > 0
    assert found["total"]["written"] == sum(x["written"] for x in found["ops"]) > 0
    assert found["sizes"]["D"] == 8
    _, out, _ = tile("ir", "causal.tile", "--all", "--after", "expand", "--locations")
    assert [x for x in out.splitlines() if x.startswith("# after")] == [
        "# after lower",
        "# after expand",
    ]
    assert "# causal.tile:3:" in out
    _, out, _ = tile("ir", "causal.tile", "--diff", "--after", "expand", "--locations")
    assert out.count("+++ after") == 1
    assert "# causal.tile:4:" in out
    status, _, err = tile("ir", "causal.tile", "--json")
    assert (status, "only --bytes has figures" in err) == (2, True)
    status, _, err = tile("ir", "causal.tile", "--passes", "expand,fuze")
    assert (status, "did you mean fuse?" in err) == (1, True)
    status, _, err = tile("ir", "causal.tile", "--after", "fuze")
    assert (status, "did you mean fuse?" in err) == (1, True)


def test_the_seed_draws_the_data_that_decides_what_runs(tile):
    """A bound that is drawn: how many blocks are read depends on it."""
    Path("drawn.tile").write_text(
        "kernel drawn(Q[B, N, D], K[B, N, D], part: f32[B]) -> O[b, i]:\n"
        "    S = sum[d](Q[b, i, d] * K[b, j, d])\n"
        "    O = sum[j](exp(S) if j < i32(abs(part[b]) * N) else 0)\n"
        "sizes B=3, N=512, D=8\n"
    )
    read = {
        (command[0], seed): tile(*command, "--seed", seed, "--target", "cpu", "--json")[1]
        for command in (("ir", "drawn.tile", "--bytes"), ("traffic", "drawn.tile"))
        for seed in ("0", "1")
    }
    assert read["ir", "0"] != read["ir", "1"]
    assert read["traffic", "0"] != read["traffic", "1"]
    status, _, err = tile("ir", "drawn.tile", "--bytes", "--seed", "-1")
    assert (status, "seed: expected an integer of 0 or more" in err) == (1, True)


def test_a_page_is_refused_before_the_work(tile):
    for file, words in (("none/a.html", "no such folder"), (".", "it is a folder")):
        status, _, err = tile("ir", "none.tile", "--html", file)
        assert (status, words in err) == (1, True)


def test_ir_lists_and_shows_the_passes_that_run_for_the_sizes(tile):
    few = ["ir", str(ROOT / "examples/paged.tile"), "--target", "cuda:sm_90a", "--size", "M=4"]
    listed = [line.split()[0] for line in tile(*few, "--list")[1].splitlines()]
    shown = tile(*few, "--all")[1].splitlines()
    assert [f"# after {n}" for n in ("lower", *listed)] == [x for x in shown if x[:1] == "#"]
    assert "fold" in listed
    assert "i_r < M * 4" in tile(*few, "--after", "fold")[1]
    status, _, err = tile(*few[:-2], "--after", "fold")
    assert (status, "not in this pipeline" in err, "--passes names others" in err) == (
        1,
        True,
        True,
    )


def test_ir_writes_a_page_and_a_graph(tile):
    status, _, err = tile("ir", "causal.tile", "--html", "x.html")
    assert (status, "wrote x.html" in err) == (0, True)
    assert Path("x.html").read_text().startswith("<!doctype html>")
    status, out, _ = tile("ir", "causal.tile", "--dot", "--after", "fuse")
    assert (status, out.startswith("digraph")) == (0, True)


def test_opt_reads_what_ir_prints(tile):
    _, tensor, _ = tile("ir", "causal.tile", "--after", "lower")
    Path("causal.ir").write_text(tensor)
    status, out, err = tile("opt", "causal.ir")
    assert (status, out, err) == (0, tensor, "")
    pipeline = "expand,simplify,exp2,contract,fuse,online"
    _, out, _ = tile("opt", "causal.ir", "--passes", pipeline)
    _, online, _ = tile("ir", "causal.tile", "--after", "online")
    assert out == online
    _, tiles, _ = tile("opt", "causal.ir", "--passes", f"{pipeline},specialise:D=8,tile:i=4:j=5")
    assert "grid(axes=[b:1, h:1, i:4])" in tiles


def test_opt_names_the_place_of_a_mistake(tile):
    Path("bad.ir").write_text("kernel f() -> Y: f32[] {\n  x: f32 = add(1.0,\n}\n")
    status, out, err = tile("opt", "bad.ir")
    assert (status, out) == (1, "")
    assert "bad.ir:" in err


def test_opt_of_no_kernel_is_a_mistake(tile):
    Path("empty.ir").write_text("\n")
    status, out, err = tile("opt", "empty.ir")
    assert (status, out) == (1, "")
    assert err.startswith("error: empty.ir holds no kernel")


def test_opt_names_the_op_that_breaks_a_rule(tile):
    _, tensor, _ = tile("ir", "causal.tile", "--after", "contract")
    Path("bad.ir").write_text(tensor.replace("over=d", "over=z"))
    status, out, err = tile("opt", "bad.ir")
    assert (status, out) == (1, "")
    assert err.startswith("error: bad.ir: causal is not valid IR: no axis is called z")
    assert "a bug in tilec" not in err


def test_opt_of_a_program(tile):
    status, out, err = tile("opt", "causal.tile", "--passes", "tile")
    assert (status, out) == (1, "")
    assert "causal.tile is a program, and opt takes IR text: `tilec ir causal.tile`" in err
