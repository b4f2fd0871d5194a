"""Runs the text of a Hopper kernel on the CPU: `emulate.h` takes the place of the device header."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tilec.backends.cuda.hopper.launch import blocks
from tilec.backends.cuda.hopper.sections import late, section
from tilec.backends.cuda.hopper.source import CopyMap, Facts, Launched, Source
from tilec.scalar import Number

HERE = Path(__file__).parent
SHARED = (
    "clear",
    "scale",
    "turn_by",
    "sigmoid_",
    "tanh_scaled",
    "tanh_",
    "tanh_reach",
    "regular",
    "divisor_scale",
    "divide",
    "floor_div",
    "floor_mod",
    "coordinate",
    "least",
    "greatest",
    "narrow",
    "product_within",
    "nearest_number",
    "quotient_low",
    "quotient_high",
    "quotients_from",
    "quotients_to",
    "within",
    "sum_stopped",
    "difference_stopped",
    "period_number",
    "period_size",
    "period_end",
    "period_from",
    "period_to",
    "columns_of_period",
    "columns_to",
    "bits_together",
    "position_mod",
    "real_mod",
    "real_floor_div",
    "shift_left",
    "shift_right",
    "repeated",
    "finite",
    "whole_power",
    "random_word",
    "uniform",
    "word_from",
    "push",
    "push_reached",
    "pushed",
    "gather_row",
    "quad_sum",
    "quad_max",
    "quad_min",
    "quad_max_nan",
    "quad_min_nan",
    "upper",
    "without_upper",
    "split",
    "all_bits",
    "is_whole",
    "whole_piece",
    "piece_place",
    "widen_bf16",
    "widen_f16",
    "side_by_side",
    "pairs_of",
    "diagonals_of",
)
"""What the emulator takes from the device header as it is."""


class Description(ctypes.Structure):
    """A tensor map as the emulator reads it."""

    _fields_ = [
        ("base", ctypes.c_void_p),
        ("rank", ctypes.c_int),
        ("size", ctypes.c_int64 * 5),
        ("step", ctypes.c_int64 * 5),
        ("box", ctypes.c_int * 5),
    ]


class TensorMap(ctypes.Structure):
    """The argument: a pointer to the description."""

    _fields_ = [("description", ctypes.POINTER(Description)), ("rest", ctypes.c_char * 120)]


def picked(header: str) -> list[str]:
    """The lines of the device header that the emulator takes as they are."""
    lines = header.split("\n")
    kept: list[str] = []
    k = 0
    while k < len(lines):
        m = re.match(r"(template<.*?> )?DEVICE [\w<>]+ (\w+)\(", lines[k])
        if m and m[2] in SHARED:
            n = k
            while lines[n].count("}") == 0 or not (
                lines[n].rstrip().endswith("}") and (n > k or lines[k].rstrip().endswith("}"))
            ):
                n += 1
            body = lines[k : n + 1]
            while sum(x.count("{") - x.count("}") for x in body):
                n += 1
                body = lines[k : n + 1]
            kept += body
            k = n
        k += 1
    return kept


def translate(source: Source) -> str:
    """The kernel's text for the CPU."""
    header, _, kernel = source.text.partition('extern "C" __global__')
    kernel = kernel.replace("extern __shared__ __align__(1024) unsigned char memory[];", "")
    # stage offsets are in descriptor units of 16 bytes
    kernel = re.sub(
        r"\(u64\)\(\(turn & 1\) \* (\d+)\)",
        lambda m: f"(u64)((turn & 1) * {int(m[1]) * 16})",
        kernel,
    )
    kernel = re.sub(
        r"_(rows|columns) \+ \(u64\)\((\w+\.stage) \* (\d+)\)",
        lambda m: f"_{m[1]} + (u64)({m[2]} * {int(m[3]) * 16})",
        kernel,
    )
    return (
        '#include "emulate.h"\n'
        + "\n".join(picked(header))
        + '\nextern "C"'
        + kernel
        + entry(source)
    )


def entry(source: Launched | Facts) -> str:
    """The function that runs a launch."""
    calls: list[str] = []
    for n, p in enumerate(source.parameters):
        kind = re.sub(r"__\w+__|const |__restrict__", "", p.ctype).strip()
        calls.append(f"*({kind}*)a[{n}]")
    return (
        f'extern "C" int launch(void** a, int blocks, u64 seed) {{\n'
        f"  return run_blocks(blocks, {source.threads}, seed, [=] {{ {source.name}({', '.join(calls)}); }});\n}}\n"
    )


def build(text: str, headers: Path = HERE, folder: Path | None = None) -> ctypes.CDLL:
    """A kernel's text for the CPU as a library of this machine. `headers`: where its header is."""
    folder = folder or Path(tempfile.gettempdir()) / "tilec_emulator"
    folder.mkdir(exist_ok=True)
    key = hashlib.sha256(
        (text + "".join((h / "emulate.h").read_text() for h in {HERE, headers})).encode()
    ).hexdigest()[:24]
    library = folder / f"{key}.so"
    if not library.exists():
        made = folder / f"{key}.{os.getpid()}"  # another process may build the same text
        flags = [
            "-O1",
            "-std=c++17",
            "-shared",
            "-fPIC",
            "-w",
            "-fno-strict-aliasing",
            "-I",
            str(headers),
        ]
        done = subprocess.run(
            ["g++", *flags, "-x", "c++", "-", "-o", str(made)],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr[:4000])
        made.replace(library)
    return ctypes.CDLL(str(library))


def description(m: CopyMap, array: np.ndarray) -> Description:
    """What a tensor map of an array says."""
    others = [k for k in range(array.ndim) if k not in (m.feature, m.row)]
    if m.slabs:
        size = [64, array.shape[m.row], m.width // 64, *(array.shape[k] for k in others)]
        step = [2, array.strides[m.row], 128, *(array.strides[k] for k in others)]
        box = [64, m.rows, m.width // 64, *(1 for _ in others)]
    else:
        size = [array.shape[m.feature], array.shape[m.row], *(array.shape[k] for k in others)]
        step = [2, array.strides[m.row], *(array.strides[k] for k in others)]
        box = [64, m.rows, *(1 for _ in others)]
    pad = [0] * (5 - len(size))
    return Description(
        array.ctypes.data,
        len(size),
        (ctypes.c_int64 * 5)(*size, *pad),
        (ctypes.c_int64 * 5)(*step, *pad),
        (ctypes.c_int * 5)(*box, *pad),
    )


def run(
    source: Source,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, Number],
    *,
    seed: int = 1,
    processors: int = 2,
) -> bool:
    """Runs the kernel on NumPy arrays: it writes the outputs among them, and says whether it asks to be redone.

    Raises RuntimeError where it hangs, or writes a word that is being read.
    """
    return launch(
        build(translate(source)),
        source,
        arrays,
        sizes,
        blocks(source.facts, sizes, processors),
        seed,
    )


def launch(
    library: ctypes.CDLL,
    source: Launched,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, Number],
    blocks: int,
    seed: int,
) -> bool:
    """Runs a kernel that is built, as `run` does."""
    kept: list[object] = []
    kernel = source.structure.kernel
    plain = {source.names[n]: n for n in (*kernel.dims, *kernel.arguments)}
    counter = np.zeros(2, np.uint32)
    last = ""
    for p in source.parameters:
        match p.kind:
            case "map":
                assert p.map is not None
                d = description(p.map, arrays[p.map.tensor])
                kept += [d]
                kept.append(TensorMap(ctypes.pointer(d)))
                continue
            case "pointer":
                last = p.name
                kept.append(ctypes.c_void_p(arrays[last].ctypes.data))
            case "stride":
                a = arrays[last]
                kept.append(ctypes.c_int64(a.strides[p.dim] // a.itemsize))
            case "dim":
                kept.append(ctypes.c_int(int(sizes[plain[p.name]])))
            case "scalar":
                value = sizes[plain[p.name]]
                kept.append(
                    ctypes.c_float(value)
                    if "float" in p.ctype
                    else ctypes.c_bool(value)
                    if "bool" in p.ctype
                    else ctypes.c_int64(int(value))
                )
            case "section":
                kept.append(ctypes.c_int(section(source.structure, sizes, p.dim)))
            case "late":
                kept.append(ctypes.c_int(late(source.structure, sizes, p.dim)))
            case "counter":
                kept.append(ctypes.c_void_p(counter.ctypes.data))
            case _:
                kept.append(ctypes.c_void_p(counter.ctypes.data + 4))
    given = [x for x in kept if not isinstance(x, Description)]
    args = (ctypes.c_void_p * len(given))(*(ctypes.addressof(x) for x in given))  # type: ignore[arg-type]
    ended = library.launch(args, blocks, ctypes.c_uint64(seed))
    if ended:
        raise RuntimeError(
            "the kernel hangs" if ended == 1 else "a word is written while it is read"
        )
    assert counter[0] == 0 or all(p.kind != "counter" for p in source.parameters)
    return bool(counter[1])
