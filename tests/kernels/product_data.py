"""Random weights, experts and activations, and bits that differ; without pytest, so bare machines can import it."""

import numpy as np
import torch

from quant.random_blocks import random_blocks
from strata.kernels.views import ExpertBank, Weight
from strata.quant.formats import FORMATS


def differing(got: torch.Tensor, expected: torch.Tensor) -> int:
    """Elements whose bits differ; a NaN equals a NaN whatever its payload."""
    a, b = got.numpy(), expected.numpy()
    assert a.shape == b.shape
    assert a.dtype == b.dtype == np.float32
    return int(((a.view(np.int32) != b.view(np.int32)) & ~(np.isnan(a) & np.isnan(b))).sum())


def weight(name: str, rows: int, cols: int, rng: np.random.Generator, scale: float = 1.0) -> Weight:
    fmt = FORMATS[name]
    planes = [torch.from_numpy(random_blocks(fmt, rows, cols, rng))]
    if name == "FP8_BLOCK":
        scales = rng.uniform(-1, 1, (-(-rows // 128), -(-cols // 128))).astype(np.float32)
        planes.append(torch.from_numpy(scales))
    if name == "NVFP4_PAIRS":
        planes.append(torch.from_numpy(rng.integers(0, 256, (rows, cols // 16), dtype=np.uint8) & 0xBF))
    return Weight(fmt, rows, cols, tuple(planes), scale)


def activations(rows: int, cols: int, rng: np.random.Generator) -> torch.Tensor:
    """Normal numbers times block scales over four orders of magnitude, with a block of zeros here and there."""
    x = rng.standard_normal((rows, cols)).astype(np.float32)
    size = 10 ** rng.uniform(-2, 2, (rows, -(-cols // 32))) * (rng.random((rows, -(-cols // 32))) > 0.1)
    return torch.from_numpy(x * np.repeat(size, 32, axis=1)[:, :cols].astype(np.float32))


def bank_of(rng: np.random.Generator, formats: list[tuple[str, str, str]], hidden: int, width: int) -> ExpertBank:
    return ExpertBank(
        tuple(weight(gate, width, hidden, rng) for gate, _, _ in formats),
        tuple(weight(up, width, hidden, rng) for _, up, _ in formats),
        tuple(weight(down, hidden, width, rng, scale=0.01) for _, _, down in formats),
    )
