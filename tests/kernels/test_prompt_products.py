"""Products with the many rows of a prompt chunk equal the specification, and each row what it gives alone."""

import numpy as np
import pytest
import torch

from kernels.product_cases import ISAS, activations, bank_of, differing, native, weight
from strata.kernels.experts import cpu as experts_cpu
from strata.kernels.experts import naive as experts_naive
from strata.kernels.linear import cpu, naive
from strata.kernels.native import FORMAT_CODES, Isa
from strata.quant.formats import FORMATS

BLOCK = 128
"""Most input rows that a band of weight rows meets at once (csrc/products_panels.h)."""


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", FORMAT_CODES)
def test_every_format_with_many_rows(name: str, isa: Isa) -> None:
    rng = np.random.default_rng(FORMAT_CODES[name] + 100)
    sizes = (32, 96, 160, 256, 512, 640, 768, 1280, 2816)
    for cols in [size for size in sizes if size % FORMATS[name].block == 0]:
        rows, count = int(rng.integers(1, 38)), int(rng.integers(9, 24))
        w, x = weight(name, rows, cols, rng), activations(count, cols, rng)
        (got,) = cpu.linear(native(isa), x, [w])
        assert differing(got, naive.linear(x, [w])[0]) == 0, (cols, rows, count)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("count", [9, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3])
def test_a_row_gives_the_same_alone_and_in_any_block(count: int, isa: Isa) -> None:
    rng = np.random.default_rng(count)
    ws = [weight(name, rows, 512, rng) for name, rows in (("Q4_K", 35), ("Q6_K", 17), ("F16", 6), ("IQ4_NL", 1))]
    x = activations(count, 512, rng)
    chosen = sorted({0, 1, 8, BLOCK - 2, BLOCK - 1, BLOCK, count - 2, count - 1} & set(range(count)))
    together = cpu.linear(native(isa, 3), x, ws)
    for row in chosen:
        for part, alone in zip(together, cpu.linear(native(isa, 1), x[row : row + 1], ws), strict=True):
            assert differing(part[row : row + 1], alone) == 0
    assert differing(together[0][0:1], together[0][1:2]) > 0  # control: rows are not all the same


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", ["Q8_0", "Q4_K", "Q6_K", "IQ4_NL", "BF16"])
def test_faults_and_extremes_stay_in_their_row(name: str, isa: Isa) -> None:
    rng = np.random.default_rng(15)
    w, x = weight(name, 21, 768, rng), activations(19, 768, rng)
    x[1, 700], x[3, 5], x[4, 40] = float("nan"), float("inf"), float("-inf")
    for row, value in ((7, 0.0), (8, 3e38), (9, 1e-45), (10, -190e-45), (11, 63.5)):
        x[row] = value
    x[12] = torch.arange(768) - 384.5  # halves: rounding to even shows
    x[13] = torch.from_numpy(rng.standard_normal(768).astype(np.float32) * np.float32(1e-43))
    (got,) = cpu.linear(native(isa), x, [w])
    assert differing(got, naive.linear(x, [w])[0]) == 0
    assert not got[[1, 3, 4]].isfinite().any()
    assert got[[0, 2, 5, 6, 7]].isfinite().all()


CROWD = [
    ("IQ3_S", "IQ3_S", "IQ4_NL"),
    ("Q4_K", "Q4_K", "NVFP4_PAIRS"),
    ("Q2_K", "Q6_K", "Q5_0"),
    ("BF16", "IQ2_S", "Q8_0"),
    ("Q8_0", "MXFP4", "F32"),
]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_experts_of_many_rows_however_they_are_shared_out(threads: int, isa: Isa) -> None:
    """One expert has nearly all rows, one has a single row, one has none."""
    rng = np.random.default_rng(16)
    bank = bank_of(rng, CROWD, 256, 160)
    for count in (9, BLOCK + 9):
        x = activations(count, 256, rng) * 0.1
        ids = np.stack([rng.permutation([0, int(rng.choice([1, 2]))]) for _ in range(count)]).astype(np.int32)
        ids[5] = [4, 0]
        factors = torch.from_numpy(rng.random((count, 2)).astype(np.float32))
        chosen = torch.from_numpy(ids)
        expected = experts_naive.experts(x, chosen, factors, bank)
        got = experts_cpu.experts(native(isa, threads), x, chosen, factors, bank)
        assert expected.abs().max() > 0
        assert differing(got, expected) == 0
        swapped = experts_cpu.experts(native(isa, threads), x, chosen.flip(1), factors.flip(1), bank)
        assert differing(swapped, expected) > 0  # control: the rank order shows
