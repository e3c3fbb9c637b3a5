"""The C++ extension's state as a Python object, and the checks that stand before its bare addresses."""

import weakref
from typing import Literal, TypeVar

import torch

from strata.core.errors import UnsupportedError, UsageError
from strata.kernels import _native
from strata.kernels.buffers import Buffers
from strata.kernels.topology import default_threads, read_topology
from strata.kernels.views import ExpertBank, Weight

Isa = Literal["auto", "portable", "avx2", "avx512"]

K = TypeVar("K")
V = TypeVar("V")

WeightTuple = tuple[int, int, int, int, int, float]
"""Format code, rows, cols, address of planes[0], address of planes[1] or 0, scale."""

FORMAT_CODES: dict[str, int] = {row[0]: code for code, row in enumerate(_native.format_table())}
"""The extension's number of each format it can multiply by, by name."""


class Native:
    """Owns a pool of threads and scratch memory; every C++ operation runs on one.

    `threads` counts the calling thread; None means one per performance core that the process may use. `isa` is "auto"
    (the best the CPU has) or a name to force. Results never depend on either. UsageError for a thread count below 1 or
    an instruction set that the CPU lacks.
    """

    def __init__(self, threads: int | None = None, isa: Isa = "auto") -> None:
        if threads is not None and threads < 1:
            raise UsageError(f"a thread count of at least 1 is needed, got {threads}")
        try:
            self.handle = _native.Native(default_threads(read_topology()) if threads is None else threads, isa)
        except ValueError as error:
            raise UsageError(str(error)) from error
        self._banks: dict[int, tuple[weakref.ref[ExpertBank], _native.Bank]] = {}
        self._weights: dict[int, tuple[weakref.ref[Weight], WeightTuple]] = {}
        self.buffers: Buffers | None = None
        """Where results are allocated while a program is recorded."""

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """An uninitialised tensor for a result."""
        return torch.empty(shape, dtype=dtype) if self.buffers is None else self.buffers.empty(shape, dtype)

    @property
    def threads(self) -> int:
        """Threads that compute, the caller included."""
        return self.handle.threads

    @property
    def isa(self) -> str:
        """The instruction set in use."""
        return self.handle.isa

    @property
    def distinct_experts(self) -> int:
        """Experts read so far: each distinct expert of a call counts once."""
        return self.handle.distinct_experts

    @property
    def expert_bytes(self) -> int:
        """Bytes of expert weights read so far."""
        return self.handle.expert_bytes

    @property
    def missing_bytes(self) -> int:
        """Bytes of these that were not in memory when their call began, by what one call of 127 found."""
        return self.handle.missing_bytes

    @property
    def product_bytes(self) -> int:
        """Bytes of other weights read by products so far."""
        return self.handle.product_bytes

    def bank(self, bank: ExpertBank) -> _native.Bank:
        """The extension's description of `bank`, made and checked once for as long as the bank lives."""
        known = self._banks.get(id(bank))
        if known is not None:
            return known[1]
        return remember(self._banks, bank, describe_bank(bank))

    def weight(self, weight: Weight) -> WeightTuple:
        """The extension's description of `weight`, made and checked once for as long as the weight lives."""
        known = self._weights.get(id(weight))
        if known is not None:
            return known[1]
        return remember(self._weights, weight, describe(weight))


def remember(known: dict[int, tuple[weakref.ref[K], V]], key: K, value: V) -> V:
    """Keep `value` under the identity of `key` until `key` is gone."""
    number = id(key)

    def forget(_: weakref.ref[K]) -> None:
        del known[number]

    known[number] = (weakref.ref(key, forget), value)
    return value


def describe_bank(bank: ExpertBank) -> _native.Bank:
    """The extension's description of `bank`; ValueError when its matrices do not fit together."""
    if not bank.gate or not len(bank.gate) == len(bank.up) == len(bank.down):
        raise ValueError(f"a bank of {len(bank.gate)} gate, {len(bank.up)} up and {len(bank.down)} down matrices")
    width, hidden = bank.gate[0].rows, bank.gate[0].cols
    for name, shape, weights in (
        ("gate", (width, hidden), bank.gate),
        ("up", (width, hidden), bank.up),
        ("down", (hidden, width), bank.down),
    ):
        for expert, weight in enumerate(weights):
            if (weight.rows, weight.cols) != shape:
                raise ValueError(f"{name} of expert {expert} is {weight.rows} x {weight.cols}, expected {shape}")
    return _native.Bank(*([describe(weight) for weight in weights] for weights in (bank.gate, bank.up, bank.down)))


def describe(weight: Weight) -> WeightTuple:
    """The extension's form of `weight`: its format's code, its sizes and the addresses of its planes.

    UnsupportedError for a format without products; ValueError when a plane's type, shape or layout is wrong, or when a
    row of codes cannot meet activations quantised in blocks of 32.
    """
    fmt = weight.format
    code = FORMAT_CODES.get(fmt.name)
    if code is None:
        raise UnsupportedError(f"{fmt.name} is not a format of weights that the C++ kernels read")
    what = f"{fmt.name} weight of {weight.rows} x {weight.cols}"
    plane = weight.planes[0]
    expected = (weight.rows, fmt.row_bytes(weight.cols))
    if plane.dtype != torch.uint8 or tuple(plane.shape) != expected or not plane.is_contiguous():
        raise ValueError(f"{what} needs contiguous uint8 {expected}, found {describe_tensor(plane)}")
    if fmt.kind == "codes" and weight.cols % 32:
        raise ValueError(f"{what}: rows of codes need a multiple of 32 values")
    if fmt.scale_block is None:
        return code, weight.rows, weight.cols, plane.data_ptr(), 0, weight.scale
    if len(weight.planes) < 2:
        raise ValueError(f"{what} has no plane of scales")
    scales, (high, wide) = weight.planes[1], fmt.scale_block
    shape = (-(-weight.rows // high), -(-weight.cols // wide))
    allowed = (torch.float32,) if high > 1 else (torch.uint8, torch.float8_e4m3fn)
    if scales.dtype not in allowed or tuple(scales.shape) != shape or not scales.is_contiguous():
        raise ValueError(f"{what} needs contiguous {allowed[0]} scales {shape}, found {describe_tensor(scales)}")
    return code, weight.rows, weight.cols, plane.data_ptr(), scales.data_ptr(), weight.scale


def describe_tensor(x: torch.Tensor) -> str:
    """Type and shape of `x`, for messages."""
    return f"{'' if x.is_contiguous() else 'non-contiguous '}{x.dtype} {tuple(x.shape)}"


def check(name: str, x: torch.Tensor, dtype: torch.dtype, *shape: int | None) -> None:
    """ValueError unless `x` is contiguous, on the CPU, of `dtype` and of `shape` (None: any size)."""
    fits = x.dtype is dtype and x.is_cpu and x.is_contiguous() and x.ndim == len(shape)
    if fits:
        # A plain loop: this runs for every operation, and a generator cost a tenth of a decode step of the demo model.
        for want, size in zip(shape, x.shape, strict=True):
            if want is not None and want != size:
                fits = False
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name}: expected contiguous {dtype} [{wanted}] on the CPU, found {describe_tensor(x)}")
