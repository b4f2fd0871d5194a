"""From LLVM IR to machine code: the only part of a target for processors that loads LLVM.

The IR that tilec emits holds its final loops, so no IR pass runs by default: LLVM only selects instructions and
registers.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import functools
import re
from typing import Any

import llvmlite.binding as llvm

from tilec.backends.cpu import image
from tilec.backends.cpu.processor import Machine, Options
from tilec.errors import CompilerBug


@functools.cache
def host() -> tuple[str, str, str]:
    """This machine, as LLVM sees it: its triple, its name and its features."""
    _initialize()
    features = llvm.get_host_cpu_features().flatten()
    # The name alone is not enough: a hypervisor may mask features that LLVM derives from it.
    return llvm.get_process_triple(), llvm.get_host_cpu_name(), features


@functools.cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@functools.cache
def _initialize_others() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _target_machine(machine: Machine, options: Options) -> Any:
    _initialize()
    if machine.arm != Machine(*host()).arm:
        _initialize_others()
    target = llvm.Target.from_triple(machine.triple)
    # constants lie beside the code, which is then shorter than with addresses of 64 bits; `image` sees to it that they do
    near = image.known(machine.triple)
    return target.create_target_machine(
        cpu=machine.cpu,
        features=machine.features,
        opt=options.codegen,
        reloc="pic" if near else "default",
        codemodel="small" if near else "jitdefault",
    )


def _excerpt(text: str, message: str) -> str:
    """The lines around the place that an LLVM message names, or the beginning."""
    lines = text.split("\n")
    found = re.search(r":(\d+):\d+: error", message)
    at = int(found.group(1)) - 1 if found else 0
    first = max(0, at - 6)
    shown = lines[first : at + 7 if found else 40]
    return "\n".join(
        f"{'>' if found and n == at else ' '} {line}" for n, line in enumerate(shown, first)
    )


def _module(text: str, machine: Machine, options: Options, tm: Any) -> Any:
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as e:
        raise CompilerBug(f"LLVM refuses the emitted IR: {e}\n{_excerpt(text, str(e))}") from e
    module.triple = machine.triple
    if options.passes:
        tuning = llvm.create_pipeline_tuning_options(speed_level=options.passes)
        tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = False
        builder = llvm.create_pass_builder(tm, tuning)
        builder.getModulePassManager().run(module, builder)
    return module


def compile(text: str, machine: Machine, options: Options) -> bytes:
    """The object file of an LLVM module. Raises CompilerBug, with the place in the IR, where LLVM refuses it."""
    tm = _target_machine(machine, options)
    return bytes(tm.emit_object(_module(text, machine, options, tm)))


def assembly(text: str, machine: Machine, options: Options) -> str:
    """The assembly text of an LLVM module."""
    tm = _target_machine(machine, options)
    return str(tm.emit_assembly(_module(text, machine, options, tm)))


class Engine:
    """An object file that LLVM has loaded."""

    def __init__(self, object: bytes) -> None:
        machine = Machine(*host())
        empty = llvm.parse_assembly(f'target triple = "{machine.triple}"\n')
        self._engine = llvm.create_mcjit_compiler(empty, _target_machine(machine, Options()))
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(object))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """The entry address of a function; KeyError where there is none of that name."""
        found = int(self._engine.get_function_address(name))
        if not found:
            raise KeyError(name)
        return found
