"""Products of few input rows: every number of rows, in whole and started groups, equals the specification."""

import numpy as np
import pytest
import torch

from kernels.product_cases import ISAS, activations, differing, native, weight
from strata.kernels.linear import cpu, naive
from strata.kernels.native import FORMAT_CODES, Isa
from strata.quant.formats import FORMATS

CODED = [name for name in FORMAT_CODES if FORMATS[name].kind == "codes"]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", CODED)
def test_every_number_of_input_rows(name: str, isa: Isa) -> None:
    rng = np.random.default_rng(FORMAT_CODES[name])
    for cols in (512, 768, 1792):  # 1 to 7 groups, a last one of half its blocks among them
        w, x = weight(name, 11, cols, rng, scale=0.37), activations(8, cols, rng)
        whole = naive.linear(x, [w])[0]
        for count in range(1, 9):
            got = cpu.linear(native(isa), x[8 - count :].contiguous(), [w])[0]
            assert differing(got, whole[8 - count :]) == 0, (cols, count)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", CODED)
def test_the_largest_sums(name: str, isa: Isa) -> None:
    """Activations of +-127 only."""
    rng = np.random.default_rng(1)
    w = weight(name, 5, 512, rng)
    x = torch.from_numpy(np.where(rng.random((3, 512)) < 0.5, -1, 1).astype(np.float32))
    x[1], x[2] = 1.0, -1.0
    expected = naive.linear(x, [w])[0]
    assert differing(cpu.linear(native(isa), x, [w])[0], expected) == 0
    x[0, 300] = 0.99  # control: one code less in one of 512 places shows
    assert differing(cpu.linear(native(isa), x, [w])[0][:1], expected[:1]) > 0
