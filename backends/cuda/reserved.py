"""C names that a program's own must not have: those of the language, of its compiler, and of the headers."""

from __future__ import annotations

import re

_LANGUAGE = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class co_await
co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do double
dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace new
noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires return short
signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef typeid
typename union unsigned using virtual void volatile wchar_t while xor xor_eq
"""
_COMPILER = """
CUDART_VERSION INFINITY NAN NULL assert blockDim blockIdx cudaStreamLegacy gridDim linux main offsetof size_t threadIdx
unix va_arg va_copy va_end va_start warpSize
"""
LANGUAGE = frozenset(_LANGUAGE.split())
COMPILER = frozenset(_COMPILER.split())
"""Macros, and what each kernel has."""


def is_private(name: str) -> bool:
    """Whether a name is one of those that C keeps for compilers."""
    return re.match(r"_[_A-Z]", name) is not None


def macros(header: str) -> frozenset[str]:
    """The macros of a header."""
    return frozenset(re.findall(r"#define (\w+)", header))


def declared(header: str) -> frozenset[str]:
    """The macros, functions and types of a header."""
    code = re.sub(r"//.*", "", header)
    functions = re.findall(r"\bDEVICE\b[^;{}()=]*?(\w+)\(", code)
    return macros(code).union(
        functions, re.findall(r"\b(?:struct|using)(?: alignas\(\w+\))? (\w+)", code)
    )
