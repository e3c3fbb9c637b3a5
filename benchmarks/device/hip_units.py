"""The device kernels' units for AMD: what a compiler needs, and compiling one. Needs no GPU."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from strata.core.errors import UsageError
from strata.kernels.device_source import FOLDER, source
from strata.kernels.shared_memory import shared_memory

ARCHITECTURES = ("gfx1100", "gfx90a")
"""A wave of 32 lanes, and one of 64."""
OPTIONS = ("-std=c++17", "-O3", "-ffp-contract=off", "-fno-fast-math", "-fhip-fp32-correctly-rounded-divide-sqrt")
"""Every rounding is a written one (docs/numerics.md), as nvrtc.OPTIONS say it for CUDA."""
DEFINES = shared_memory(64 << 10).defines
"""A work group has 64 KB of local memory on both."""
COMPILERS = ("amdclang++", "clang++", *(f"clang++-{n}" for n in range(22, 16, -1)))
PLACES = (Path("/opt/rocm"), Path("/usr"))
CONSTANT = "const __attribute__((address_space(4))) unsigned __oclc_ISA_version"
ISA = f'__attribute__((visibility("hidden"))) extern {CONSTANT};\n{CONSTANT} = {{}};\n'
"""All that a device library says of one architecture, for those that are younger than the library."""


@dataclass(frozen=True, slots=True)
class HipCompiler:
    """A clang that knows AMD's GPUs, HIP's headers and device libraries below `rocm`."""

    clang: Path
    rocm: Path

    @classmethod
    def found(cls, clang: Path | None = None, rocm: Path | None = None) -> "HipCompiler":
        """The one that was named, or that this machine has. UsageError saying what is missing."""
        tried = [clang] if clang else [Path(p) for name in COMPILERS if (p := shutil.which(name))]
        usable = next((p for p in tried if "amdgcn" in said([str(p), "--print-targets"])), None)
        if usable is None:
            raise UsageError("no clang with AMD's target (amdgcn) was found", "Debian: clang-19, lld-19; or --clang")
        homes = [rocm] if rocm else list(PLACES)
        home = next((p for p in homes if (p / "include" / "hip" / "hip_runtime.h").is_file() and libraries(p)), None)
        if home is None:
            raise UsageError(
                f"no HIP headers and device libraries below {', '.join(map(str, homes))}",
                "Debian: libamdhip64-dev, rocm-device-libs; or --rocm",
            )
        return cls(usable, home)

    def compile_unit(self, unit: str, architecture: str) -> tuple[int, str]:
        """(bytes of the linked code object, the compiler's warnings). UsageError with its log when it does not."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "unit.hip").write_text(f"#include <hip/hip_runtime.h>\n{source(unit)}")
            command = [
                str(self.clang),
                "-x",
                "hip",
                "--cuda-device-only",
                "--no-gpu-bundle-output",
                f"--offload-arch={architecture}",
                *OPTIONS,
                *DEFINES,
            ]
            command += [f"--rocm-path={self.rocm}", "-D__HIP_PLATFORM_AMD__", f"-I{self.rocm / 'include'}"]
            command += [f"--hip-device-lib-path={self.library_for(architecture, folder)}"]
            command += [f"-I{FOLDER}", f"-I{FOLDER.parent}", str(folder / "unit.hip"), "-o", str(folder / "unit.co")]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            if ran.returncode:
                raise UsageError(f"the kernels of '{unit}' do not compile for {architecture}:\n{ran.stderr[-4000:]}")
            return (folder / "unit.co").stat().st_size, ran.stderr

    def library_for(self, architecture: str, folder: Path) -> Path:
        """The device libraries; in `folder`, with the architecture's number beside them, when they lack it."""
        found = libraries(self.rocm)
        assert found is not None
        version = architecture.removeprefix("gfx")
        if (found / f"oclc_isa_version_{version}.bc").is_file():
            return found
        here = folder / "bitcode"
        here.mkdir()
        for file in found.glob("*.bc"):
            (here / file.name).symlink_to(file)
        (folder / "isa.c").write_text(ISA.format(isa_number(architecture)))
        command = [str(self.clang), "-x", "c", "--target=amdgcn-amd-amdhsa", "-nogpulib", "-emit-llvm", "-c"]
        said([*command, str(folder / "isa.c"), "-o", str(here / f"oclc_isa_version_{version}.bc")])
        return here


def isa_number(architecture: str) -> int:
    """gfx1100 -> 11000: a decimal generation, then one hexadecimal digit each of minor version and stepping."""
    version = architecture.removeprefix("gfx")
    return int(version[:-2]) * 1000 + int(version[-2], 16) * 100 + int(version[-1], 16)


def libraries(rocm: Path) -> Path | None:
    """The folder of device libraries below `rocm`."""
    places = (rocm / "amdgcn" / "bitcode", *sorted(rocm.glob("lib/*/amdgcn/bitcode")))
    return next((place for place in places if (place / "ockl.bc").is_file()), None)


def said(command: Sequence[str]) -> str:
    """What a command printed; "" when it cannot be run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
