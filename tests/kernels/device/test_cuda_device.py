"""CudaDevice and the run-time compiler over stand-ins of CUDA's bindings: what is compiled, kept, packed, launched."""

import ctypes
import importlib
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from enum import IntEnum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

import strata.kernels
from strata.core.errors import EngineError
from strata.kernels.device import Kernel
from strata.kernels.views import Weight
from strata.quant.formats import FORMATS

DIVIDE = Kernel("elementwise", "divide")


class Status(IntEnum):
    SUCCESS = 0
    ERROR_NOT_FOUND = 500


class Driver(ModuleType):
    """Does nothing, and keeps what it was asked."""

    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="shared")
    CUlaunchAttributeID = SimpleNamespace(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION="early")
    CUlaunchConfig = SimpleNamespace

    def CUlaunchAttribute(self) -> SimpleNamespace:
        return SimpleNamespace(value=SimpleNamespace())

    def __init__(self) -> None:
        super().__init__("driver")
        self.calls: list[tuple[Any, ...]] = []
        self.contexts = 0

    def cuDeviceGet(self, index: int) -> tuple[Status, int]:
        return Status.SUCCESS, index

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[Status, str]:
        return Status.SUCCESS, f"context {device}"

    def cuCtxPushCurrent(self, context: str) -> tuple[Status]:
        self.contexts += 1
        return (Status.SUCCESS,)

    def cuCtxPopCurrent(self) -> tuple[Status, str]:
        self.contexts -= 1
        return Status.SUCCESS, "context"

    def cuModuleLoadData(self, cubin: bytes) -> tuple[Status, bytes]:
        self.calls.append(("load", cubin))
        return Status.SUCCESS, cubin

    def cuModuleGetFunction(self, module: bytes, name: bytes) -> tuple[Status, bytes]:
        return (Status.SUCCESS if name != b"nothing" else Status.ERROR_NOT_FOUND), name

    def cuFuncSetAttribute(self, function: bytes, attribute: str, value: int) -> tuple[Status]:
        self.calls.append((attribute, value))
        return (Status.SUCCESS,)

    def cuLaunchKernelEx(self, config: SimpleNamespace, function: bytes, params: int, extra: int) -> tuple[Status]:
        (attribute,) = config.attrs
        assert config.numAttrs == attribute.value.programmaticStreamSerializationAllowed == 1
        self.calls.append((attribute.id,))
        grid, block = ([getattr(config, f"{kind}Dim{axis}") for axis in "XYZ"] for kind in ("grid", "block"))
        return self.cuLaunchKernel(function, *grid, *block, config.sharedMemBytes, config.hStream, params, extra)

    def cuLaunchKernel(self, function: bytes, *rest: int) -> tuple[Status]:
        assert self.contexts == 1
        *where, params, extra = rest
        pointers = (ctypes.c_void_p * 3).from_address(params)
        first = ctypes.c_int64.from_address(pointers[0] or 0).value
        second = ctypes.c_float.from_address(pointers[1] or 0).value
        third = ctypes.c_int64.from_address(pointers[2] or 0).value
        self.calls.append((function, *where, (first, second, third), extra))
        return (Status.SUCCESS,)


class Compiler(ModuleType):
    """Compiles anything but a unit with the define BROKEN."""

    def __init__(self) -> None:
        super().__init__("nvrtc")
        self.compiled: list[str] = []
        self.options: list[bytes] = []

    def nvrtcVersion(self) -> tuple[Status, int, int]:
        return Status.SUCCESS, 13, 0

    def nvrtcCreateProgram(self, source: bytes, *_: object) -> tuple[Status, str]:
        return Status.SUCCESS, source.decode()

    def nvrtcCompileProgram(self, program: str, _: int, options: list[bytes]) -> tuple[Status]:
        self.compiled.append(program)
        self.options = options
        return (Status.ERROR_NOT_FOUND if "BROKEN" in program else Status.SUCCESS,)

    def nvrtcGetProgramLogSize(self, program: str) -> tuple[Status, int]:
        return Status.SUCCESS, 16

    def nvrtcGetProgramLog(self, program: str, buffer: bytes) -> tuple[Status]:
        ctypes.memmove(buffer, b"line 3: no", 10)
        return (Status.SUCCESS,)

    def nvrtcGetCUBINSize(self, program: str) -> tuple[Status, int]:
        return Status.SUCCESS, 5

    def nvrtcGetCUBIN(self, program: str, buffer: bytes) -> tuple[Status]:
        ctypes.memmove(buffer, b"cubin", 5)
        return (Status.SUCCESS,)

    def nvrtcDestroyProgram(self, program: str) -> tuple[Status]:
        return (Status.SUCCESS,)


def forget() -> None:
    """What was imported over stand-ins, or over the real bindings, is imported again when it is next asked for."""
    for name in ("nvrtc", "cuda_device"):
        sys.modules.pop(f"strata.kernels.{name}", None)
        vars(strata.kernels).pop(name, None)


@pytest.fixture
def bindings() -> Iterator[SimpleNamespace]:
    """The stand-ins in the place of cuda.bindings, and the two modules that import them."""
    parts = SimpleNamespace(driver=Driver(), nvrtc=Compiler())
    package = ModuleType("cuda.bindings")
    package.driver, package.nvrtc = parts.driver, parts.nvrtc  # type: ignore[attr-defined]
    properties = SimpleNamespace(name="card", multi_processor_count=132, major=9, minor=0)
    with (
        mock.patch.dict(sys.modules, {"cuda": ModuleType("cuda"), "cuda.bindings": package}),
        mock.patch.object(torch.cuda, "get_device_properties", lambda _: properties),
        mock.patch.object(torch.cuda, "current_stream", lambda _: SimpleNamespace(cuda_stream=77)),
        mock.patch.object(torch, "empty", lambda *_, **__: None),
    ):
        forget()
        parts.module = importlib.import_module("strata.kernels.cuda_device")
        parts.compiler = importlib.import_module("strata.kernels.nvrtc")
        yield parts
        forget()


def test_a_launch_carries_its_arguments(bindings: SimpleNamespace, tmp_path: Path) -> None:
    device = bindings.module.CudaDevice(tmp_path)
    assert (device.name, device.processors, device.architecture) == ("card", 132, "sm_90a")
    for _ in range(2):
        device.launch(DIVIDE, (3, 1, 2), 256, 64, 1 << 40, 0.5, -5)
    assert bindings.driver.calls == [
        ("load", b"cubin"),
        *[(b"divide", 3, 1, 2, 256, 1, 1, 64, 77, (1 << 40, 0.5, -5), 0)] * 2,
    ]
    assert device.launches == 2


def test_an_early_kernel_may_start_before_its_turn(bindings: SimpleNamespace, tmp_path: Path) -> None:
    device = bindings.module.CudaDevice(tmp_path)
    early = Kernel("elementwise", "divide", early=True)
    device.launch(early, (3, 1, 2), 256, 64, 1 << 40, 0.5, -5)
    launched = (b"divide", 3, 1, 2, 256, 1, 1, 64, 77, (1 << 40, 0.5, -5), 0)
    assert bindings.driver.calls[1:] == [("early",), launched]
    device.starts_early = False  # a GPU that has no such launches
    device.launch(early, (3, 1, 2), 256, 64, 1 << 40, 0.5, -5)
    assert bindings.driver.calls[3:] == [launched]


def test_a_branch_has_a_stream_of_its_own_and_its_ends_start_in_turn(bindings: SimpleNamespace, tmp_path: Path) -> None:
    """What waits for another stream's work cannot start early; what follows on the same stream can."""
    device, order = bindings.module.CudaDevice(tmp_path), list[tuple[str, str]]()
    main, side = (SimpleNamespace(name=name, cuda_stream=0) for name in ("main", "side"))
    for stream in (main, side):
        stream.wait_stream = lambda other, own=stream: order.append((own.name, other.name))
    early = Kernel("elementwise", "divide", early=True)

    def starts_early() -> bool:
        count = len(bindings.driver.calls)
        device.launch(early, (3, 1, 2), 256, 64, 1 << 40, 0.5, -5)
        return ("early",) in bindings.driver.calls[count:]

    with (
        mock.patch.object(torch.cuda, "current_stream", lambda _: main),
        mock.patch.object(torch.cuda, "Stream", lambda _: side),
        mock.patch.object(torch.cuda, "stream", lambda _: nullcontext()),
    ):
        assert starts_early()
        branch = device.branch()
        with branch.work():
            assert not starts_early() and starts_early()
        assert starts_early() and order == [("side", "main")]
        branch.join()
        assert not starts_early() and starts_early() and order[1:] == [("main", "side")]


def test_more_shared_memory_is_asked_for_once(bindings: SimpleNamespace, tmp_path: Path) -> None:
    device = bindings.module.CudaDevice(tmp_path)
    for shared in (49152, 50000, 49160, 60000):
        device.launch(DIVIDE, (1, 1, 1), 32, shared, 0, 0.0, 0)
    assert [call for call in bindings.driver.calls if call[0] == "shared"] == [("shared", 50000), ("shared", 60000)]


def test_a_unit_is_compiled_once_per_machine(bindings: SimpleNamespace, tmp_path: Path) -> None:
    for _ in range(2):
        bindings.module.CudaDevice(tmp_path).launch(DIVIDE, (1, 1, 1), 32, 0, 0, 0.0, 0)
    assert bindings.nvrtc.compiled == ['#include "elementwise.h"\n']
    assert {b"--fmad=false", b"--ftz=false", b"--gpu-architecture=sm_90a"} < set(bindings.nvrtc.options)
    other = mock.patch.object(bindings.nvrtc, "nvrtcVersion", lambda: (Status.SUCCESS, 13, 1))
    with other:
        bindings.module.CudaDevice(tmp_path).launch(DIVIDE, (1, 1, 1), 32, 0, 0, 0.0, 0)
    assert len(bindings.nvrtc.compiled) == 2


def test_only_one_generation_is_asked_for_all_that_it_has(bindings: SimpleNamespace) -> None:
    asked = [bindings.module.architecture_of(*version) for version in ((8, 0), (8, 9), (9, 0), (10, 0), (12, 0))]
    assert asked == ["sm_80", "sm_89", "sm_90a", "sm_100", "sm_120"]


def test_errors_name_what_failed(bindings: SimpleNamespace, tmp_path: Path) -> None:
    device = bindings.module.CudaDevice(tmp_path)
    with pytest.raises(EngineError, match=r"'elementwise BROKEN=1' do not compile for sm_90a:\nline 3: no"):
        device.launch(Kernel("elementwise BROKEN=1", "divide"), (1, 1, 1), 32, 0)
    with pytest.raises(EngineError, match="kernel nothing of elementwise: CUDA: ERROR_NOT_FOUND"):
        device.launch(Kernel("elementwise", "nothing"), (1, 1, 1), 32, 0)
    assert list(tmp_path.iterdir()) != [] and len(bindings.nvrtc.compiled) == 2


class Runtime:
    """What pins memory, and keeps what it was asked."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.pinned: dict[int, int] = {}

    def cudaHostRegister(self, address: int, nbytes: int, flags: int) -> int:
        if not self.status:
            self.pinned[address] = nbytes
        return self.status

    def cudaHostUnregister(self, address: int) -> int:
        del self.pinned[address]
        return 0


def test_rows_that_stay_in_the_hosts_memory_are_pinned_where_they_lie(
    bindings: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = Runtime(0)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    device = bindings.module.CudaDevice(tmp_path)
    plane = torch.arange(3 * 34, dtype=torch.uint8).view(3, 34)
    weight = Weight(FORMATS["Q8_0"], 3, 32, (plane,))
    device.leave(weight)
    address, scales = device.weight(weight)
    assert runtime.pinned == {address: plane.nbytes} and address != plane.data_ptr() and scales == 0
    assert ctypes.string_at(address, plane.nbytes) == plane.numpy().tobytes()
    assert device.resident_bytes == 0  # none of it is on the device
    del weight
    assert runtime.pinned == {}


def test_memory_that_cannot_be_pinned_is_said(bindings: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "cudart", lambda: Runtime(2))
    with pytest.raises(EngineError, match=r"the system refused to pin 1 MiB of rows .* \(error 2\)"):
        bindings.module.pinned_copy(torch.zeros(1 << 20, dtype=torch.uint8))
