"""Maps of blocks, held against masks that NumPy makes."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

import tilec
from tilec.blocks import Blocks, maps
from tilec.cli import main
from tilec.errors import ArgumentError

HEAD = "kernel f(Q[B, H, M, D], K[B, H, N, D], V[B, H, N, E]{more}) -> O[b, h, i, e]:\n"
BODY = """    S = sum[d](Q[b, h, i, d] * K[b, h, j, d])
    O = sum[j](softmax[j](S if {seen} else -inf) * V[b, h, j, e])
sizes B=2, H=3, M=300, N=333, D=16, E=16
"""
DOCUMENTS = "sample doc[b, t] = (t + 20 * b) // 70\n"
Mask = Callable[[np.ndarray, np.ndarray, int, int], np.ndarray]


def drawn(seen: str, more: str = "", rest: str = "", tile=(32, 16), **at: int) -> Blocks:
    kernel = tilec.compile(
        HEAD.format(more=more) + BODY.format(seen=seen) + rest,
        tile=dict(zip("ij", tile, strict=True)),
    )
    sizes, scalars = kernel.environment({})
    *_, (_, ir) = kernel.stages(sizes=sizes)
    arrays = kernel.deciding([ir], "f32", sizes)
    (found,) = maps(ir, sizes, scalars, arrays, at)
    return found


def expected(mask: np.ndarray, tall: int, wide: int) -> dict[tuple[int, int], bool]:
    """The blocks in which a pair is seen, and whether one is not."""
    m, n = mask.shape
    return {
        (r, c): not block.all()
        for r in range(-(-m // tall))
        for c in range(-(-n // wide))
        if (block := mask[r * tall : (r + 1) * tall, c * wide : (c + 1) * wide]).any()
    }


PROGRAMS: dict[str, tuple[str, str, str, Mask]] = {
    "causal": ("j <= i + N - M", "", "", lambda i, j, b, h: j <= i + 33),
    "window": ("i - 64 < j <= i", "", "", lambda i, j, b, h: (i - 64 < j) & (j <= i)),
    "by head": ("j <= 40 * h + 7", "", "", lambda i, j, b, h: j + 0 * i <= 40 * h + 7),
    "nothing": ("j + N < i", "", "", lambda i, j, b, h: j + 333 < i),
    "documents": (
        "doc[b, j] == (i + 20 * b) // 70",
        ", doc: i32[B, N]",
        DOCUMENTS,
        lambda i, j, b, h: (i + 20 * b) // 70 == (j + 20 * b) // 70,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("b", "h"), [(0, 0), (1, 2)])
@pytest.mark.parametrize("tile", [(32, 16), (64, 128)])
def test_the_blocks_are_those_of_the_mask(name, b, h, tile):
    seen, more, rest, mask = PROGRAMS[name]
    blocks = drawn(seen, more, rest, tile, b=b, h=h)
    pairs = mask(np.arange(300)[:, None], np.arange(333)[None, :], b, h)
    assert blocks.masked.keys() == expected(pairs, *tile).keys()
    asked = {block for block, masked in blocks.masked.items() if masked}
    assert asked >= {block for block, masked in expected(pairs, *tile).items() if masked}
    if name in ("causal", "window"):
        # a window that the end cuts short is never one without a mask
        whole = {k for k, masked in blocks.masked.items() if not masked}
        assert whole == {
            k for k, m in expected(pairs, *tile).items() if not m and k[1] < 333 // tile[1]
        }
    assert (blocks.rows, blocks.columns) == (("i", 300, tile[0]), ("j", 333, tile[1]))
    assert blocks.at == {"b": b, "h": h}


def test_a_sign_stands_for_as_many_blocks_as_it_takes():
    blocks = drawn("j <= i")
    assert blocks.shape == (10, 21)
    assert blocks.picture(21, 10, "#+.")[:2] == ["++" + 19 * ".", "##++" + 17 * "."]
    assert blocks.scale(6, 5) == (2, 4)
    assert blocks.picture(6, 5, "#+.")[:2] == ["+.....", "#+...."]


def test_a_position_that_is_not_there():
    with pytest.raises(ArgumentError, match="no h = 3: the axis has 3 positions"):
        drawn("j <= i", h=3)


@pytest.fixture
def tile(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = HEAD.format(more=", doc: i32[B, N]") + BODY.format(seen="doc[b, j] == i // 64")
    (tmp_path / "f.tile").write_text(text + DOCUMENTS)

    def call(*argv: str) -> tuple[int, str, str]:
        status = main(["blocks", "f.tile", "--tile", "i=64,j=64", *argv])
        return status, *capsys.readouterr()

    return call


def test_the_command_draws_data_of_the_users(tile, tmp_path):
    np.savez("doc.npz", doc=np.repeat(np.arange(2, dtype=np.int32), 64).reshape(1, 128))
    status, out, err = tile("--input", "doc.npz", "--size", "M=128")
    assert (status, err) == (0, "")
    assert out.splitlines()[1:5] == [
        "i downwards in tiles of 64, j across in tiles of 64, b = 0, h = 0",
        "       0 █·",
        "      64 ·█",
        "2 of 4 blocks are looked at (50.0%), 0 of them with a mask",
    ]
    status, out, _ = tile("--input", "doc.npz", "--size", "M=128", "--json")
    (facts,) = json.loads(out)
    assert (facts["map"], facts["looked_at"], facts["masked"]) == (["#.", ".#"], 2, 0)


def test_long_sizes_are_printed_whole(tile):
    status, out, _ = tile("--size", "M=1,N=1048577")
    assert status == 0
    assert "N=1048577" in out.splitlines()[0]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--at", "g=1"], "--at: f has no axis 'g'; there are"),
        (["--at", "i=1"], "--at: the axis 'i' of f is drawn whole; those to choose on are b, h"),
        (["--at", "d=1"], "--at: the axis 'd' of f does not choose among blocks; those to choose on are b, h"),
        (["--input", "bad.npz"], "--input: f has no tensor 'docs'; did you mean doc?"),
        (["--input", "doc.npz", "--size", "N=5"], "--input: doc[B, N] has shape (1, 128), and B=1, N=5"),
    ],
)  # fmt: skip
def test_mistakes(tile, argv, said):
    np.savez("doc.npz", doc=np.zeros((1, 128), np.int32))
    np.savez("bad.npz", docs=np.zeros((1, 128), np.int32))
    status, out, err = tile(*argv)
    assert (status, out) == (1, "")
    assert said in err


def test_nothing_to_draw(tmp_path, capsys):
    file = tmp_path / "add.tile"
    file.write_text("kernel add(X[N], Y[N]) -> Z[i]:\n    Z = X[i] + Y[i]\nsizes N=100\n")
    assert main(["blocks", str(file)]) == 0
    assert "there are no blocks" in capsys.readouterr().out
