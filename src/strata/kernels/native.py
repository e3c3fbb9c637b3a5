"""The C++ extension's state as a Python object: its threads, its instruction set, its counters."""

from typing import Literal

from strata.core.errors import UsageError
from strata.kernels import _native

Isa = Literal["auto", "portable", "avx2", "avx512"]


class Native:
    """Owns a pool of threads and scratch memory; every C++ operation runs on one.

    `threads` counts the calling thread; None means the physical cores of the process's affinity mask. `isa` is "auto"
    (the best the CPU has) or a name to force. Results never depend on either. UsageError for a thread count below 1 or
    an instruction set that the CPU lacks.
    """

    def __init__(self, threads: int | None = None, isa: Isa = "auto") -> None:
        if threads is not None and threads < 1:
            raise UsageError(f"a thread count of at least 1 is needed, got {threads}")
        try:
            self.handle = _native.Native(threads or 0, isa)
        except ValueError as error:
            raise UsageError(str(error)) from error

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
    def product_bytes(self) -> int:
        """Bytes of other weights read by products so far."""
        return self.handle.product_bytes
