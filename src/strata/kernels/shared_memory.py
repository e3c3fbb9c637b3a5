"""How much shared memory a block of a device has, and what its kernels are compiled with to fit into it.

Compute capability 8.6, 8.9 and 12.0 (GeForce RTX 30, 40 and 50) give a block 99 KB, 8.0 163 KB, 9.0 and 10.0 227 KB
(CUDA C++ Programming Guide, technical specifications per compute capability). No choice here shows in a result.
"""

from dataclasses import dataclass

LARGE = 128 << 10
"""From so many bytes on, tables of values are there once for every bank, and attention's slots are 32 KB."""


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Of a block."""

    most: int
    """Bytes, static and dynamic ones together."""
    banks: int = 32
    """Copies of a table of single words (IQ3_S), so that lanes which look up different entries do not meet."""
    slot_bytes: int = 32 << 10
    """Of keys or values that attention of a few rows brings at once."""
    input_bytes: int = 160 << 10
    """Of rows of x as floats that a block keeps, at most."""

    @property
    def dynamic(self) -> int:
        """Bytes of a launch, at most; the rest is for what kernels declare."""
        return self.most - (1 << 10)

    @property
    def alone(self) -> int:
        """Bytes of a block, at least, with which a processor holds no second one."""
        return self.most // 2 + 512

    @property
    def defines(self) -> tuple[str, ...]:
        """Options for the compiler of kernels (csrc/device/unpack_iq.h, attention_ring.h, products_floats.h)."""
        sizes = {"BANKS": self.banks, "SLOT_BYTES": self.slot_bytes, "INPUT_BYTES": self.input_bytes}
        return tuple(f"-DSTRATA_{name}={size}" for name, size in sizes.items())


HOST = SharedMemory(227 << 10)
"""What the host's kernels are compiled with: as on the processors that have most."""


def shared_memory(most: int) -> SharedMemory:
    """For a device whose blocks may have `most` bytes."""
    if most < LARGE:
        return SharedMemory(most, 8, 20 << 10, 48 << 10)
    return SharedMemory(most, input_bytes=min(HOST.input_bytes, most - (34 << 10)))  # two groups of lanes beside
