"""The structure of a file: lines, blocks, comments, and what is kept of a file with mistakes."""

from __future__ import annotations

import contextlib
import random
import time

import pytest

from tilec.check import check
from tilec.errors import SourceError
from tilec.parse import parse
from tilec.syntax import (
    Binary,
    Broken,
    Compare,
    Conditional,
    Expr,
    Let,
    Logic,
    Name,
    Number,
    Reduction,
    Unary,
    walk,
)

HEAD = "kernel f(X[N], n: int) -> O[i]:\n"


def value(text: str) -> Expr:
    program = parse(f"{HEAD}    O = {text}\n")
    assert program.diagnostics == ()
    (let,) = program.kernels["f"].body
    assert isinstance(let, Let)
    return let.value


def shape(e: Expr) -> str:
    """The expression with all its brackets."""
    match e:
        case Name():
            return e.name
        case Number():
            return str(e.value)
        case Unary():
            return f"({e.fn} {shape(e.x)})"
        case Binary():
            return f"({shape(e.x)} {e.sign} {shape(e.y)})"
        case Logic() | Compare():
            return f"({e.fn if isinstance(e, Logic) else ' '.join(e.fns)}: {', '.join(map(shape, e.parts))})"
        case Conditional():
            return f"({shape(e.x)} if {shape(e.condition)} else {shape(e.y)})"
        case _:
            return type(e).__name__


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + b * c", "(a + (b * c))"),
        ("a - b - c", "((a - b) - c)"),
        ("-a ** -b", "(neg (a ** (neg b)))"),
        ("a ** b ** c", "(a ** (b ** c))"),
        ("~a & b | c ^ d", "(((invert a) & b) | (c ^ d))"),
        ("a << 1 + b", "(a << (1 + b))"),
        ("a // b % c / d", "(((a // b) % c) / d)"),
        ("a & 3 != 2", "(ne: (a & 3), 2)"),
        ("a < b <= c", "(lt le: a, b, c)"),
        ("not a == b and c or d", "(or: (and: (not (eq: a, b)), c), d)"),
        ("a if b else c if d else e", "(a if b else (c if d else e))"),
        ("(a if b else c) if d else e", "((a if b else c) if d else e)"),
        ("0x1F + 1_000 + 1e-5 + .5 + 2.", "((((31 + 1000) + 1e-05) + 0.5) + 2.0)"),
    ],
)
def test_precedence(text, expected):
    assert shape(value(text)) == expected


def test_reduction_and_index():
    e = value("sum[t, u](X[t], ) + X[i,]")
    assert [type(x).__name__ for x in walk(e)] == [
        "Binary",
        "Reduction",
        "Index",
        "Name",
        "Index",
        "Name",
    ]
    assert isinstance(e, Binary)
    assert isinstance(e.x, Reduction)
    assert [a.name for a in e.x.axes] == ["t", "u"]


def test_all_kinds_of_lines():
    program = parse(
        """
        # A program may be indented as a whole, with comments
    # anywhere.
        def twice(x) = 2 * x   # here too: "no text"
        sizes N=3, M=4,
        kernel f(X[N, M], page: i32[N, N // 2],   # a tensor
                 w: int = N // 2,
                 flag: bool = true) -> O: f16[i], L[]:
            assert N > 0, "text # with \\"marks\\""
            axis c < M - 1
            def local(x, y) = x + (
        y)
            O = twice(
              X[i, c])

            L = 1
        sample X[a, b] = a + b
        sizes N=5
        """
    )
    assert program.diagnostics == ()
    kernel = program.kernels["f"]
    assert [type(s).__name__ for s in kernel.body] == ["Assert", "AxisLine", "Def", "Let", "Let"]
    assert kernel.body[0].message == 'text # with "marks"'
    assert [p.name.name for p in kernel.params] == ["X", "page", "w", "flag"]
    assert [p.type and p.type.name for p in kernel.params] == [None, "i32", "int", "bool"]
    assert [(o.name.name, o.type and o.type.name) for o in kernel.outputs] == [
        ("O", "f16"),
        ("L", None),
    ]
    assert program.sizes == {"N": 5, "M": 4}
    assert list(program.samples) == ["X"]
    assert list(program.functions) == ["twice"]


def test_spans_are_those_of_the_file():
    program = parse(f"\n{HEAD}    O = X[i] + (\n      n)\n")
    let = program.kernels["f"].body[0]
    assert (let.span.line, let.span.column, let.span.end_line, let.span.end_column) == (3, 5, 4, 9)
    assert isinstance(let.value, Binary)
    assert (let.value.y.span.line, let.value.y.span.column) == (4, 7)


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_of_other_systems(end):
    program = parse(f"# first\n{HEAD}    O = X[i]\n".replace("\n", end))
    assert program.diagnostics == ()
    assert program.kernels["f"].body[0].span.line == 3


def test_what_a_broken_line_would_define_is_kept():
    program = parse(f"{HEAD}    a = X[i] *\n    def g(x) = (\n    O = a + g(1)\n")
    assert [d.span.line for d in program.diagnostics] == [2, 3]
    a, g, o = program.kernels["f"].body
    assert isinstance(a.value, Broken)
    assert isinstance(g.body, Broken)
    assert isinstance(o.value, Binary)
    with pytest.raises(SourceError) as caught:
        check(program)
    assert len(caught.value.diagnostics) == 2


# ---- no input takes long, goes too deep or ends in a traceback


def refused(text: str) -> str:
    """The message for a program, found soon. The limit is generous: the machine may be busy."""
    start = time.process_time()
    with pytest.raises(SourceError) as caught:
        check(parse(text, "a.tile"))
    message = str(caught.value)
    assert time.process_time() - start < 10
    return message


DEEP = {
    "brackets": "(" * 10_000 + "n" + ")" * 10_000,
    "indices": "X[" * 10_000 + "n" + "]" * 10_000,
    "signs": "-" * 9_000 + "n",
    "not": "not " * 2_000 + "true",
    "sum": "n + " * 2_000 + "1",
    "powers": "2 ** " * 1_500 + "2",
    "ifs": "n if true else " * 500 + "0",
    "arguments": "min(" + "n, " * 3_000 + "1)",
    "digits": "9" * 9_900,
    "line": "n + " * 10_000 + "1",
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_and_long_expressions(name):
    assert "a.tile:2:" in refused(f"{HEAD}    O = X[i] + {DEEP[name]}\n")


def test_large_numbers():
    check(parse(f"{HEAD}    O = X[i] + 2 ** 10**9 + 1e308 + 1e-400 + 9223372036854775807\n"))
    assert "larger than any float" in refused(f"{HEAD}    O = X[i] + 1e400\n")
    assert "64 bits" in refused(f"{HEAD}    O = X[i] + 9223372036854775808\n")
    assert "64 bits" in refused(f"{HEAD}    O = X[i] + 2 ** 1000000000\n")


def chain(count: int, body: str) -> str:
    return (
        "".join(f"def f{k}(x) = {body.format(f'f{k + 1}')}\n" for k in range(count))
        + f"def f{count}(x) = x\n"
    )


@pytest.mark.parametrize(
    ("count", "body", "word"),
    [
        (40, "{0}(x) + {0}(x)", "too large"),
        (60, "{0}({0}(x))", "too large"),
        (1000, "{0}(x)", "deep"),
    ],
)
def test_functions_that_grow(count, body, word):
    functions = chain(count, body)
    assert word in refused(f"{functions}{HEAD}    O = f0(X[i])\n")
    local = "".join(f"    {line}\n" for line in reversed(functions.splitlines()))
    assert word in refused(f"{HEAD}{local}    O = f0(X[i])\n")


def test_functions_may_call_functions():
    check(parse(f"{chain(60, '{0}(x) + 1')}{HEAD}    O = f0(X[i])\n"))


def test_dimensions_that_grow():
    text = f"{chain(30, '{0}(x) + {0}(x)')}kernel g(X[N], n: int = f0(N)) -> O[i]:\n    O = X[i]\n"
    assert "too large" in refused(text)


def test_many_names():
    lines = "".join(f"    a{k} = X[i] + zz{k}\n" for k in range(1_500))
    assert refused(f"{HEAD}{lines}    O = X[i]\n").count("error:") == 50
    axes = " + ".join(f"X[a{k}]" for k in range(150))
    assert "at most 100 axes" in refused(f"{HEAD}    O = X[i] + {axes}\n")
    dims = ", ".join(f"N{k}" for k in range(40))
    assert "dimensions" in refused(f"kernel f(X[{dims}], Y[N]) -> O[i]:\n    O = Y[i]\n")


def test_large_files():
    assert "characters" in refused("#" * 100_000)
    refused("x = (\n" * 10_000)
    refused("\0" * 10_000)


def test_noise_is_refused_with_a_message():
    rng = random.Random(0)
    alphabets = [
        [chr(k) for k in range(256)],
        [chr(k) for k in (*range(9, 14), *range(32, 127))],
        [*"kernel f(X[N])->O: \n="],
    ]
    for k in range(30):
        refused("".join(rng.choices(alphabets[k % 3], k=2_000)))


def test_mutated_programs_give_no_traceback():
    rng = random.Random(1)
    good = (
        "def soft(x, cap) = cap * tanh(x / cap)\n\n"
        "kernel f(Q[B, M, D], K[B, N, D], len: i32[B], w: int = 4) -> O[b, i], L: f32[b]:\n"
        '    assert D % 2 == 0, "even"\n    axis c < D // 2\n    def near(x, y) = x - w < y <= x\n'
        "    S = soft(sum[d](Q[b, i, d] * K[b, j, d]) / sqrt(D), 5.0) if near(i, j) and j < len[b] else -inf\n"
        "    O = max[j](S) + sum[c](Q[b, i, c])\n    L = logsumexp[i, j](S)\n\nsizes B=1\nsample len[b] = b + 1\n"
    )
    check(parse(good))
    for _ in range(250):
        text = list(good)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(text))
            text[at : at + rng.randrange(3)] = rng.choices(
                "()[]:,=+-*/<>ijnXQd0 1.\n\t\"'#&|", k=rng.randrange(3)
            )
        with contextlib.suppress(SourceError):
            check(parse("".join(text)))
