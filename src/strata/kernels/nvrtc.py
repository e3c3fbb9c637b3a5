"""CUDA's run-time compiler: a unit of device kernels -> a cubin. Needs no GPU; imported only where one is asked for."""

from typing import Any

from cuda.bindings import nvrtc

from strata.core.errors import EngineError
from strata.kernels.device_source import STRATA_INCLUDES, digest, source

OPTIONS = ("--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")
"""Every rounding is a written one (docs/numerics.md)."""


def checked(result: tuple[Any, ...]) -> Any:
    """The values of a call that gives (status, values...); EngineError when the status is an error."""
    status, *values = result
    if int(status):
        raise EngineError(f"NVRTC: {status.name}")
    return values[0] if len(values) == 1 else tuple(values)


def version() -> str:
    """The compiler's version."""
    return ".".join(map(str, checked(nvrtc.nvrtcVersion())))


def key(unit: str, architecture: str, *more: str) -> str:
    """The name of a unit's cubin in a cache; `more` as for `compile_unit`."""
    return digest(unit, architecture, version(), *OPTIONS, *more) + ".cubin"


def compile_unit(unit: str, architecture: str, *more: str) -> tuple[bytes, str]:
    """(cubin, log) for an architecture such as sm_90; `more` are options such as --ptxas-options=-v.

    EngineError with the compiler's log when it does not compile.
    """
    options = [f"--gpu-architecture={architecture}", *OPTIONS, *more]
    options += [f"--include-path={folder}" for folder in STRATA_INCLUDES]
    program = checked(nvrtc.nvrtcCreateProgram(source(unit).encode(), f"{unit}.cu".encode(), 0, [], []))
    try:
        encoded = [option.encode() for option in options]
        failed = int(nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)[0])
        log = text(checked(nvrtc.nvrtcGetProgramLogSize(program)), lambda b: nvrtc.nvrtcGetProgramLog(program, b))
        if failed:
            raise EngineError(f"the kernels of '{unit}' do not compile for {architecture}:\n{log}")
        cubin = bytes(checked(nvrtc.nvrtcGetCUBINSize(program)))
        checked(nvrtc.nvrtcGetCUBIN(program, cubin))
        return cubin, log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def text(size: int, fill: Any) -> str:
    """The text that `fill` writes into a buffer of `size` bytes."""
    buffer = bytes(size)
    checked(fill(buffer))
    return buffer.rstrip(b"\0").decode(errors="replace").strip()
