"""Compiles every unit of device kernels and says what each kernel takes. Needs no GPU.

python benchmarks/device/compile_all.py [--arch sm_90] [--all] [UNIT-PREFIX...]
python benchmarks/device/compile_all.py --hip [--arch gfx1100] [--clang PATH] [--rocm PATH] [UNIT-PREFIX...]

For CUDA with NVRTC and cuda-bindings: prints a line for each kernel that spills, or for all with --all. For AMD with
clang, HIP's headers and device libraries: for a wave of 32 lanes and one of 64 when no --arch is given. Without a
prefix, every unit that a GPU is asked for (shaped_units.py). Exits with 1 when something does not compile.
"""

import argparse
import importlib
import re
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from hip_units import ARCHITECTURES, HipCompiler
from shaped_units import launched

from strata.core.errors import StrataError
from strata.kernels.device_source import units

KERNEL = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers(?:.*?(?P<shared>\d+) bytes smem)?",
    re.DOTALL,
)


def report(log: str, everything: bool) -> list[str]:
    """A line for each kernel of a compiler's log that spills or has a stack, or for all."""
    lines = []
    for part in log.split("Compiling entry function")[1:]:
        match = KERNEL.search("Compiling entry function" + part.split("\n\n")[0])
        if match and (everything or match["stores"] != "0" or match["stack"] != "0"):
            lines.append(
                f"    {match['name']:40} {match['registers']:>3} registers  {match['shared'] or 0:>6} B shared  "
                f"{match['stack']:>5} B stack  {match['stores']:>5} B spilled"
            )
    return lines


def cuda_unit(unit: str, arch: str, everything: bool) -> str:
    """What became of a unit. EngineError when it does not compile."""
    # Not at the top: AMD's compiler is asked on machines without CUDA's.
    nvrtc = importlib.import_module("strata.kernels.nvrtc")
    cubin, log = nvrtc.compile_unit(unit, arch, "--ptxas-options=-v")
    return "\n".join([f"{unit}: {len(cubin)} bytes", *report(log, everything)])


def hip_unit(compiler: HipCompiler, unit: str, arch: str) -> str:
    """What became of a unit. UsageError when it does not compile."""
    size, log = compiler.compile_unit(unit, arch)
    warnings = [line for line in log.splitlines() if "warning:" in line]
    return "\n".join([f"{unit} for {arch}: {size} bytes", *(f"    {line.split('warning: ')[-1]}" for line in warnings)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", action="append")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--hip", action="store_true")
    parser.add_argument("--clang", type=Path)
    parser.add_argument("--rocm", type=Path)
    parser.add_argument("prefix", nargs="*")
    wanted = parser.parse_args()
    if wanted.hip:
        make = partial(hip_unit, HipCompiler.found(wanted.clang, wanted.rocm))
    else:
        make = partial(cuda_unit, everything=wanted.all)
    known = dict.fromkeys([*launched(), *units()]) if wanted.prefix else launched()
    chosen = [unit for unit in known if unit.startswith(tuple(wanted.prefix) or "")]
    if not chosen:
        parser.error(f"no unit begins with {' or '.join(wanted.prefix)}")
    failed = 0
    for unit in chosen:
        for arch in wanted.arch or (ARCHITECTURES if wanted.hip else ["sm_90"]):
            try:
                print(make(unit, arch), flush=True)
            except StrataError as error:
                failed += 1
                print(error, flush=True)
    print(f"{failed} units failed" if failed else f"{len(chosen)} units compile")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
