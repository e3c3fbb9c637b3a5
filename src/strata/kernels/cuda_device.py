"""An NVIDIA GPU: torch's memory and streams, our kernels through the driver. Imported only when one is asked for."""

import ctypes
import os
import struct
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver

from strata.core.errors import EngineError
from strata.kernels import nvrtc
from strata.kernels.branch import Branch
from strata.kernels.compiling import Compiling
from strata.kernels.cubins import cached
from strata.kernels.cuda_program import CudaProgram, GraphPool, new_pool
from strata.kernels.device import Kernel
from strata.kernels.prepared import Prepared
from strata.kernels.residency import Residency
from strata.kernels.shared_memory import shared_memory
from strata.kernels.views import Weight

LEAST_SHARED = 64 << 10
"""Bytes of a block's shared memory where torch does not know them."""

STATIC_SHARED_BYTES = 48 << 10
"""Dynamic shared memory up to here needs no leave."""


def checked(result: tuple[Any, ...], what: str = "") -> Any:
    """The value of a driver's call that gives (status, value...); EngineError, about `what`, for an error."""
    status, *values = result
    if int(status):
        raise EngineError(f"{what}CUDA: {status.name}")
    return values[0] if values else None


def architecture_of(major: int, minor: int) -> str:
    """What the compiler is asked for: of 9.0 everything that it has, and later ones do not run it (registers.h)."""
    return f"sm_{major}{minor}{'a' if (major, minor) == (9, 0) else ''}"


class CudaDevice:
    """Implements `Device`; launches go to torch's current stream, so torch captures them into its graphs.

    `cache` is where compiled kernels are kept (cubins.default_folder). EngineError when a kernel does not compile.
    """

    def __init__(self, cache: Path, index: int = 0) -> None:
        self.torch_device = torch.device("cuda", index)
        torch.empty(1, device=self.torch_device)  # torch makes the context that everything shares
        properties = torch.cuda.get_device_properties(self.torch_device)
        self.name = str(properties.name)
        self.processors = int(properties.multi_processor_count)
        self.architecture = architecture_of(properties.major, properties.minor)
        self.shared = shared_memory(int(getattr(properties, "shared_memory_per_block_optin", LEAST_SHARED)))
        self.starts_early = properties.major >= 9
        self.cache = cache
        self.launches = 0
        self._pool: GraphPool | None = None
        self._side: torch.cuda.Stream | None = None
        self.meets = False
        """The next launch waits for work of another stream, so it cannot start before that has ended."""
        self.residency = Residency(self.torch_device)
        self.prepared = Prepared()
        self._context = checked(driver.cuDevicePrimaryCtxRetain(checked(driver.cuDeviceGet(index))))
        self._compiling = Compiling(self._cubin, max(1, len(os.sched_getaffinity(0))))
        self._modules: dict[str, Any] = {}
        self._functions: dict[Kernel, Any] = {}
        self._shared: dict[Kernel, int] = {}

    @property
    def resident_bytes(self) -> int:
        """See Device.resident_bytes."""
        return self.residency.nbytes

    def launch(self, kernel: Kernel, grid: tuple[int, int, int], block: int, shared: int, *args: int | float) -> None:
        """See Device.launch; EngineError when the kernel does not compile or the driver refuses."""
        self.launches += 1
        function = self._functions.get(kernel) or self.function(kernel)
        values = (ctypes.c_int64 * len(args))(*map(word, args))
        at, step = ctypes.addressof(values), ctypes.sizeof(ctypes.c_int64)
        pointers = (ctypes.c_void_p * len(args))(*range(at, at + step * len(args), step))
        stream, given = torch.cuda.current_stream(self.torch_device).cuda_stream, ctypes.addressof(pointers)
        with self.current():
            if shared > self._shared.get(kernel, STATIC_SHARED_BYTES):
                attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                what = f"{kernel.name} with {shared} of {self.shared.most} bytes of shared memory: "
                checked(driver.cuFuncSetAttribute(function, attribute, shared), what)
                self._shared[kernel] = shared
            early, self.meets = kernel.early and self.starts_early and not self.meets, False
            if early:
                config = early_launch(grid, block, shared, stream)
                result = driver.cuLaunchKernelEx(config, function, given, 0)
            else:
                result = driver.cuLaunchKernel(
                    function, *grid, block, 1, 1, shared, stream, ctypes.addressof(pointers), 0
                )
            checked(result, f"kernel {kernel.name} of {kernel.unit}, grid {grid}, {block} threads: ")

    @contextmanager
    def current(self) -> Iterator[None]:
        """This device's context, for the calling thread; the one before comes back, which torch may rely on."""
        checked(driver.cuCtxPushCurrent(self._context))
        try:
            yield
        finally:
            checked(driver.cuCtxPopCurrent())

    def function(self, kernel: Kernel) -> Any:
        """The kernel's handle; its unit is compiled or taken from the cache, and loaded, when it is first used."""
        if kernel.unit not in self._modules:
            cubin = self._compiling.cubin(kernel.unit)
            with self.current():
                self._modules[kernel.unit] = checked(driver.cuModuleLoadData(cubin))
        what = f"kernel {kernel.name} of {kernel.unit}: "
        found = checked(driver.cuModuleGetFunction(self._modules[kernel.unit], kernel.name.encode()), what)
        self._functions[kernel] = found
        return found

    def _cubin(self, unit: str) -> bytes:
        more = self.shared.defines
        key = nvrtc.key(unit, self.architecture, *more)
        return cached(self.cache, key, lambda: nvrtc.compile_unit(unit, self.architecture, *more)[0])

    def compile_ahead(self, units: Sequence[str]) -> None:
        """See Device.compile_ahead; as many threads as there are processors."""
        self._compiling.begin(units)

    def compiled(self, units: Sequence[str], told: Callable[[int, int], None]) -> None:
        """See Device.compiled."""
        self._compiling.wait(units, told)

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """See Device.empty."""
        return torch.empty(shape, dtype=dtype, device=self.torch_device)

    def resident(self, tensor: torch.Tensor) -> torch.Tensor:
        """See Device.resident."""
        return self.residency.tensor(tensor)

    def weight(self, weight: Weight) -> tuple[int, int]:
        """See Device.weight."""
        return self.residency.weight(weight)

    def leave(self, weight: Weight) -> None:
        """See Device.leave."""
        self.residency.leave(weight, tuple(pinned_copy(plane) for plane in weight.planes))

    def constants(self, values: Sequence[int]) -> torch.Tensor:
        """See Device.constants."""
        return self.residency.constants(values)

    def counters(self, count: int) -> torch.Tensor:
        """See Device.counters."""
        return self.residency.counters(count)

    def program(self, timed: bool) -> CudaProgram:
        """See Device.program; all of them share one pool of memory."""
        if self._pool is None:
            self._pool = new_pool()
        return CudaProgram(self, self._pool, timed)

    def branch(self) -> Branch:
        """See Device.branch; one stream serves all branches, one after the other."""
        if self._side is None:
            self._side = torch.cuda.Stream(self.torch_device)  # type: ignore[no-untyped-call]
        return SideBranch(self, self._side)

    def synchronize(self) -> None:
        """See Device.synchronize."""
        torch.cuda.synchronize(self.torch_device)


class SideBranch:
    """Implements `Branch` on a stream of its own.

    Memory of the branch comes from its stream and is used again by later branches only, which begin after all that was
    asked for before them.
    """

    def __init__(self, device: CudaDevice, side: torch.cuda.Stream) -> None:
        self.device = device
        self.side = side

    @contextmanager
    def work(self) -> Iterator[None]:
        """See Branch.work."""
        self.side.wait_stream(torch.cuda.current_stream(self.device.torch_device))
        with torch.cuda.stream(self.side):
            self.device.meets = True
            yield
        self.device.meets = False

    def join(self) -> None:
        """See Branch.join."""
        torch.cuda.current_stream(self.device.torch_device).wait_stream(self.side)
        self.device.meets = True


def pinned_copy(plane: torch.Tensor) -> torch.Tensor:
    """The same bytes in pinned memory, which the GPU sees at the same address; EngineError when that is refused.

    Memory is pinned where it lies: torch's own pinned memory comes in powers of two.
    """
    copy = plane.contiguous().to("cpu", copy=True)
    cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address = copy.data_ptr()
    status = int(cudart.cudaHostRegister(address, copy.nbytes, 0)) if copy.nbytes else 0
    if status:
        raise EngineError(
            f"the system refused to pin {copy.nbytes >> 20} MiB of rows that the GPU reads in place (error {status})",
            "raise the limit of locked memory (ulimit -l), or use --device cpu",
        )
    if copy.nbytes:
        weakref.finalize(copy, cudart.cudaHostUnregister, address).atexit = False
    return copy


def early_launch(grid: tuple[int, int, int], block: int, shared: int, stream: int) -> Any:
    """A launch that may begin while the one before it still runs (programmatic dependent launch)."""
    config, attribute = driver.CUlaunchConfig(), driver.CUlaunchAttribute()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block, 1, 1
    config.sharedMemBytes, config.hStream = shared, stream
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    config.attrs, config.numAttrs = [attribute], 1
    return config


def word(value: int | float) -> int:
    """An argument's eight bytes: an integer, or a float32 in the first four."""
    return struct.unpack("<i", struct.pack("<f", value))[0] if isinstance(value, float) else value
