"""The text form: what is printed reads back as the same kernel, at every level."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.kernels import LENGTHS, LEVELS
from tilec import ir
from tilec.errors import Span
from tilec.ir import ABSENT, Argument, Assertion, Axis, For, Kernel, Map, Tensor, Type, Value
from tilec.reader import read
from tilec.scalar import Scalar
from tilec.text import show, show_op

TEXTS = {**LEVELS, "lengths": LENGTHS}


@pytest.mark.parametrize("name", TEXTS)
def test_text_reads_back(name: str) -> None:
    (kernel,) = read(TEXTS[name])
    assert show(kernel) == TEXTS[name]
    # repr tells 1 from True and 0.0 from -0.0, which == does not
    assert repr(read(show(kernel))) == repr([kernel])
    assert read(show(kernel)) == [kernel]


def test_several_kernels_and_comments() -> None:
    text = "# first\n\n" + LEVELS["whole"] + "\n# between\n" + LENGTHS + "# last"
    assert [k.name for k in read(text)] == ["causal", "lengths"]
    assert read("# nothing") == []


def test_locations_are_comments() -> None:
    (kernel,) = read(LENGTHS)
    placed = replace(
        kernel, body=tuple(replace(op, span=Span("a.tile", 3, 5, 3, 9)) for op in kernel.body)
    )
    text = show(placed, locations=True)
    assert "  T: i64[b] @hbm = buffer()  # a.tile:3:5\n" in text
    assert "  grid(axes=[b:1]) {  # a.tile:3:5\n" in text
    assert read(text) == [kernel]


def test_mark_points_at_one_op() -> None:
    (kernel,) = read(LEVELS["tiled"])
    op = next(o for o in ir.walk(kernel.body) if o.results and o.results[0].name == "mb")
    (line,) = [x for x in show(kernel, mark=op).split("\n") if "<--" in x]
    assert line == "      mb: f32[i:32] = maxnum(x, over=j)  # <-- here"


def test_show_op_leaves_regions_out() -> None:
    (kernel,) = read(LENGTHS)
    assert show_op(kernel.body[1]) == "grid(axes=[b:1]) {…}"


OPERANDS: list[ir.Operand] = [
    0,
    -7,
    2**70,
    True,
    False,
    0.5,
    -0.0,
    1e300,
    -1e-300,
    math.inf,
    -math.inf,
    ABSENT,
    "i",
]


@pytest.mark.parametrize("x", OPERANDS, ids=repr)
def test_operands(x: ir.Operand) -> None:
    kernel = _kernel(Map((Value("t", Type("i64")),), "neg", (x,)))
    assert repr(read(show(kernel))) == repr([kernel])


def test_nan_is_one_object() -> None:
    kernel = _kernel(Map((Value("t", Type("f32")),), "neg", (math.nan,)))
    assert read(show(kernel)) == [kernel]


@pytest.mark.parametrize("name", ["absent", "nan", "axis", "else", "if", "größe", "a b", "j'"])
def test_any_name_can_be_written(name: str) -> None:
    kernel = _kernel(
        Map((Value(name, Type("f32", (name,))),), "neg", (name,)),
        axes=(Axis(name, 3),),
        assertion=name,
    )
    assert read(show(kernel)) == [kernel]


SCALARS: list[Scalar] = [
    ("sub", ("sub", "M", "N"), ("sub", "N", 1)),
    ("mul", ("add", "M", 1), ("neg", "N")),
    ("neg", ("neg", "M")),
    ("neg", 2),
    ("neg", -2),
    -2,
    ("pow", -2.0, "M"),
    ("neg", ("pow", "M", "N")),
    ("pow", ("neg", "M"), ("neg", "N")),
    ("pow", ("pow", "M", "N"), ("pow", "M", "N")),
    ("pow", "M", 2),
    ("ipow", "M", 2),
    ("ipow", "M", "N"),
    ("lt", ("lt", "M", "N"), ("lt", "M", "N")),
    ("and", ("and", ("lt", "M", 1), "w"), ("and", "w", ("not", ("or", "w", "w")))),
    ("not", ("not", ("eq", "M", 1))),
    ("eq", ("not", "w"), True),
    (
        "select",
        ("select", "w", "w", "w"),
        ("select", "w", 1, 2),
        ("select", "w", 1, ("add", "M", 1)),
    ),
    ("floordiv", ("mod", ("div", "M", "N"), "N"), ("floordiv", "M", "N")),
    ("bitor", ("bitxor", ("bitand", "M", "N"), 1), ("shl", "M", ("shr", "N", 1))),
    ("invert", ("bitand", ("invert", "M"), 255)),
    ("max", ("min", "M", "N"), ("sqrt", ("f32", "D"))),
    math.inf,
    ("neg", math.inf),
    -math.inf,
    1e-5,
]


@pytest.mark.parametrize("e", SCALARS, ids=repr)
def test_scalar_expressions_keep_their_structure(e: Scalar) -> None:
    kernel = _kernel(
        axes=(Axis("i", e),), argument=e, assertion="say \"no\" to \\ and\n'ß'", condition=e, dim=e
    )
    assert repr(read(show(kernel))) == repr([kernel])


def test_python_precedence() -> None:
    def extent(text: str) -> Scalar:
        return read(f"kernel f() -> {{\n  axis i < ({text})\n}}")[0].axes[0].extent

    assert extent("a + b * c ** -d % 2") == (
        *("add", "a", ("mod", ("mul", "b", ("pow", "c", ("neg", "d"))), 2)),
    )
    assert extent("-2 ** 2") == ("neg", ("ipow", 2, 2))
    assert extent("not a < b or c and d") == ("or", ("not", ("lt", "a", "b")), ("and", "c", "d"))
    assert extent("a | b ^ c & d << e") == (
        "bitor",
        "a",
        ("bitxor", "b", ("bitand", "c", ("shl", "d", "e"))),
    )
    assert extent("a if b else c if d else e") == ("select", "b", "a", ("select", "d", "c", "e"))


def test_loop_arguments_may_have_their_own_types() -> None:
    value = Value("m", Type("f32", ("i",), (32,), "reg"))
    plain = Value("m_0", Type("f32", ("i",), (32,)))
    loop = For((value,), (0.0,), (), axis="i", args=(plain,), note='why: a "reason" | `x`')
    assert read(show(_kernel(loop))) == [_kernel(loop)]
    assert "as (m_0: f32[i:32])" in show(_kernel(loop))
    same = replace(loop, args=(replace(value, name="m_0"),))
    assert read(show(_kernel(same))) == [_kernel(same)]
    assert "as (m_0)" in show(_kernel(same))


def _kernel(
    *body: ir.Op,
    axes: tuple[Axis, ...] = (),
    argument: Scalar = 1,
    assertion: str = "message",
    condition: Scalar = True,
    dim: Scalar = "M",
) -> Kernel:
    params = (
        Tensor("X", "f16", (dim, 3)),
        Tensor("S", "bool", ()),
        Argument("w", "bool", argument),
        Argument("n", "int"),
    )
    return Kernel("k", params, (), axes, body, (Assertion(condition, assertion),))
