"""The device kernels' units for AMD: compiled where there is a compiler, for a wave of 32 lanes and one of 64."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "device"))

import hip_units
from hip_units import ARCHITECTURES, HipCompiler, isa_number, libraries

from strata.core.errors import UsageError

FEW = ("norm", "rendezvous", "route")
"""All of them take minutes: benchmarks/device/compile_all.py --hip."""


@pytest.fixture(scope="module")
def compiler() -> HipCompiler:
    try:
        return HipCompiler.found()
    except UsageError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("unit", FEW)
def test_units_compile_for_amd(compiler: HipCompiler, unit: str, architecture: str) -> None:
    size, _ = compiler.compile_unit(unit, architecture)
    assert size > 1000


def test_what_does_not_compile_is_an_error(compiler: HipCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hip_units, "source", lambda unit: 'extern "C" __global__ void bad() { asm("no.such;"); }\n')
    with pytest.raises(UsageError, match=r"'bad' do not compile for gfx1100:[^$]*no\.such"):
        compiler.compile_unit("bad", "gfx1100")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    other = tmp_path / "clang++"
    other.write_text("#!/bin/sh\necho x86-64\n")
    other.chmod(0o755)
    with pytest.raises(UsageError, match="no clang with AMD's target"):
        HipCompiler.found(clang=other)
    other.write_text("#!/bin/sh\necho amdgcn\n")
    with pytest.raises(UsageError, match="no HIP headers and device libraries below"):
        HipCompiler.found(clang=other, rocm=tmp_path)
    for file in ("include/hip/hip_runtime.h", "lib/x/amdgcn/bitcode/ockl.bc"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    assert HipCompiler.found(clang=other, rocm=tmp_path) == HipCompiler(other, tmp_path)
    assert libraries(tmp_path) == tmp_path / "lib/x/amdgcn/bitcode"


def test_the_numbers_of_architectures() -> None:
    """As ROCm's device libraries have them in oclc_isa_version_*.bc."""
    assert [isa_number(a) for a in ("gfx1100", "gfx90a", "gfx942", "gfx1036")] == [11000, 9010, 9402, 10306]
