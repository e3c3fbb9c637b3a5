"""What a machine needs to run models well, looked at one by one: what was found, and what to do about it."""

import os
import resource
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from strata.kernels.native import Native
from strata.kernels.topology import Topology, read_topology
from strata.plan.machine import available_memory
from strata.plan.placement import place_threads
from strata.runtime.on_device import no_cuda

GIB = 1 << 30
LEAST_PYTHON, LATEST_PYTHON = (3, 11), (3, 13)
LITTLE_MEMORY, LITTLE_DISK = 4 * GIB, 20 * GIB

State = Literal["ok", "note", "bad"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    state: State
    """ "bad": models do not run; "note": they run, something could be better."""
    found: str
    advice: str = ""


def look(port: int, folders: Sequence[Path]) -> list[Finding]:
    """Everything; `folders` are where models, kernels and conversations are kept."""
    topology = read_topology()
    looks: list[Callable[[], Finding]] = [
        lambda: python(sys.version_info[:3]),
        extension,
        lambda: cores(topology),
        lambda: memory(available_memory()),
        lambda: pinned(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]),
        gpu,
        *(lambda folder=folder: disk(folder) for folder in dict.fromkeys(folders)),
        lambda: listening(port),
    ]
    return [each() for each in looks]


def python(version: tuple[int, int, int]) -> Finding:
    """The interpreter, with torch's version."""
    said = f"{'.'.join(map(str, version))}, torch {torch.__version__}"
    if not LEAST_PYTHON <= version[:2] <= LATEST_PYTHON:
        return Finding("python", "note", said, "tested are Python 3.11 to 3.13")
    return Finding("python", "ok", said)


def extension() -> Finding:
    """The C++ kernels and the instruction set that they choose."""
    try:
        native = Native(1, "auto")
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it is what is asked for
        return Finding("kernels", "bad", f"{type(error).__name__}: {error}"[:200], "build them: scripts/build")
    if native.isa == "portable":
        return Finding("kernels", "note", "portable", "this processor has neither AVX2 nor AVX-512: decoding is slow")
    return Finding("kernels", "ok", native.isa)


def cores(topology: Topology) -> Finding:
    """Threads that will compute."""
    placed = place_threads(topology, None, 0)
    return Finding("processor", "ok", f"{placed.threads} threads: {placed.reason}")


def memory(free: int) -> Finding:
    """What models may lie in."""
    if free < LITTLE_MEMORY:
        return Finding("memory", "note", f"{free / GIB:.1f} GiB free", "larger models will be read from disk")
    return Finding("memory", "ok", f"{free / GIB:.1f} GiB free")


def pinned(limit: int) -> Finding:
    """What may be locked; a GPU reads experts in place from locked memory only."""
    if limit == resource.RLIM_INFINITY:
        return Finding("locked memory", "ok", "unlimited")
    advice = "with a GPU, experts outside VRAM are pinned by its driver; a container may need ulimit -l unlimited"
    return Finding("locked memory", "ok" if limit >= GIB else "note", f"{limit >> 20} MiB", advice)


def gpu() -> Finding:
    """The GPU that --device auto would take."""
    missing = no_cuda()
    if not missing:
        free, total = torch.cuda.mem_get_info()
        named = f"{torch.cuda.get_device_name()}, {free / GIB:.1f} of {total / GIB:.1f} GiB free"
        return Finding("gpu", "ok", f"{named}, CUDA {torch.version.cuda}")
    driver = Path("/proc/driver/nvidia/version").is_file()
    if not driver:
        return Finding("gpu", "ok", f"none: {missing}")
    advice = "there is a driver: install torch for CUDA, and the package cuda-bindings that comes with it"
    return Finding("gpu", "note", f"not used: {missing}", advice)


def disk(folder: Path) -> Finding:
    """Room where things are kept, and whether they can be."""
    there = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    free = shutil.disk_usage(there).free
    if not os.access(there, os.W_OK):
        return Finding(str(folder), "bad", f"{there} cannot be written", "choose another with HF_HOME or --cache-dir")
    if free < LITTLE_DISK:
        return Finding(
            str(folder), "note", f"{free / GIB:.1f} GiB free", "a model takes 10 to 80: strata list, strata rm"
        )
    return Finding(str(folder), "ok", f"{free / GIB:.1f} GiB free")


def listening(port: int) -> Finding:
    """Whether the server's port can be had."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", port))
        except OSError as error:
            return Finding(f"port {port}", "note", str(error.strerror), "a server runs there already, or choose --port")
    return Finding(f"port {port}", "ok", "free")
