"""Compiles every unit of device kernels and says what each kernel takes. Needs NVRTC and cuda-bindings, but no GPU.

python benchmarks/device/compile_all.py [--arch sm_90] [--all] [UNIT-PREFIX...]

Prints a line for each kernel that spills, or for all with --all; exits with 1 when something does not compile.
"""

import argparse
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from strata.core.errors import EngineError
from strata.kernels import nvrtc
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


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("prefix", nargs="*")
    wanted = parser.parse_args()
    failed = 0
    for unit in units():
        if wanted.prefix and not unit.startswith(tuple(wanted.prefix)):
            continue
        try:
            cubin, log = nvrtc.compile_unit(unit, wanted.arch, "--ptxas-options=-v")
        except EngineError as error:
            failed += 1
            print(error)
            continue
        print(f"{unit}: {len(cubin)} bytes")
        for line in report(log, wanted.all):
            print(line)
    print(f"{failed} units failed" if failed else "all units compile")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
