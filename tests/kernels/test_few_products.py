"""Products of few input rows: every number of rows, in whole and started groups, equals the specification."""

import numpy as np
import pytest
import torch

from kernels.product_cases import ISAS, activations, bank_of, differing, native, weight
from strata.kernels.experts import cpu as experts_cpu
from strata.kernels.experts import naive as experts_naive
from strata.kernels.linear import cpu, naive
from strata.kernels.native import FORMAT_CODES, Isa
from strata.kernels.views import Weight
from strata.quant.formats import FORMATS

CODED = [name for name in FORMAT_CODES if FORMATS[name].kind == "codes"]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", CODED)
def test_every_number_of_input_rows(name: str, isa: Isa) -> None:
    rng = np.random.default_rng(FORMAT_CODES[name])
    # 1 to 7 groups, a last or only one of half its blocks or a quarter among them.
    for cols in (cols for cols in (64, 128, 256, 512, 640, 768, 1792) if cols % FORMATS[name].block == 0):
        w, x = weight(name, 11, cols, rng, scale=0.37), activations(8, cols, rng)
        whole = naive.linear(x, [w])[0]
        for count in range(1, 9):
            got = cpu.linear(native(isa), x[8 - count :].contiguous(), [w])[0]
            assert differing(got, whole[8 - count :]) == 0, (cols, count)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", CODED)
def test_five_to_eight_input_rows_share_their_weight_rows(name: str, isa: Isa) -> None:
    """Even numbers of rows of half a group, and groups in one part, in some, and in a started one."""
    rng = np.random.default_rng(FORMAT_CODES[name])
    for cols, rows in ((128, 26), (256, 26), (512, 13), (2048, 13), (4096, 9), (4608, 9)):
        if cols % FORMATS[name].block:
            continue
        w, x = weight(name, rows, cols, rng, scale=0.37), activations(8, cols, rng)
        whole = naive.linear(x, [w])[0]
        for count in range(5, 9):
            got = cpu.linear(native(isa), x[8 - count :].contiguous(), [w])[0]
            assert differing(got, whole[8 - count :]) == 0, (cols, count)
        x[0, cols - 1] += 9.0  # control: a value of the last group shows in its own row, and in no other
        moved = cpu.linear(native(isa), x, [w])[0]
        assert (moved != whole).any(1).nonzero().flatten().tolist() == [0]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", ["Q4_K", "Q8_0", "IQ3_S", "BF16"])
def test_short_matrices_meet_more_rows_before_they_are_a_prompts(name: str, isa: Isa) -> None:
    rng = np.random.default_rng(3)
    w, x = weight(name, 19, 256, rng, scale=0.37), activations(17, 256, rng)
    whole = naive.linear(x, [w])[0]
    for count in (9, 12, 16, 17):
        assert differing(cpu.linear(native(isa), x[:count].contiguous(), [w])[0], whole[:count]) == 0, count


PLAIN = [name for name in FORMAT_CODES if FORMATS[name].kind == "float"]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", PLAIN)
def test_every_number_of_input_rows_of_plain_floats(name: str, isa: Isa) -> None:
    rng = np.random.default_rng(FORMAT_CODES[name])
    # No whole round of lanes, two, and ten with a rest that ends a scale's block; the same with inputs past the cache.
    for cols, rows in ((31, 131), (64, 131), (300, 131), (2048, 11), (4012, 11)):
        w, x = weight(name, rows, cols, rng, scale=0.37), activations(8, cols, rng)
        whole = naive.linear(x, [w])[0]
        for count in range(1, 9):
            got = cpu.linear(native(isa), x[8 - count :].contiguous(), [w])[0]
            assert differing(got, whole[8 - count :]) == 0, (cols, count)


@pytest.mark.parametrize("isa", ISAS)
def test_every_float8_code(isa: Isa) -> None:
    codes = torch.arange(256, dtype=torch.uint8).repeat_interleave(32).reshape(256, 32)
    one = torch.zeros((1, 32))
    one[0, 0] = 1.0
    found = cpu.linear(native(isa), one, [Weight(FORMATS["FP8"], 256, 32, (codes,))])[0][0]
    expected = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    assert torch.isnan(found[[127, 255]]).all() and int(torch.isnan(found).sum()) == 2
    assert torch.equal(found.nan_to_num(7.0), expected.nan_to_num(7.0))


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


CROWDED = [("IQ3_S", "Q2_0", "IQ4_NL"), ("Q4_K", "Q4_K", "Q6_K"), *[("Q8_0", "BF16", "Q5_K")] * 4]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("threads", [1, 3])
def test_experts_of_which_some_have_many_rows(threads: int, isa: Isa) -> None:
    """Few rows each on average, 20 for the first one: they come in three parts, with and without an index."""
    rng = np.random.default_rng(4)
    bank = bank_of(rng, CROWDED, 512, 256)
    x = activations(20, 512, rng) * 0.1
    ids = np.stack([np.zeros(20), 1 + np.arange(20) % 5], axis=1).astype(np.int32)
    ids[3:14, 1] = 1
    factors = torch.from_numpy(rng.random((20, 2)).astype(np.float32))
    expected = experts_naive.experts(x, torch.from_numpy(ids), factors, bank)
    got = experts_cpu.experts(native(isa, threads), x, torch.from_numpy(ids), factors, bank)
    assert expected.abs().max() > 0 and differing(got, expected) == 0
    x[19, 5] += 0.5  # control: a row of the last part shows, and no other
    moved = experts_cpu.experts(native(isa, threads), x, torch.from_numpy(ids), factors, bank)
    assert (moved != got).any(1).nonzero().flatten().tolist() == [19]
