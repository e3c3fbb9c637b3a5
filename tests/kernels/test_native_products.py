"""The C++ products equal their specification bit for bit: every format, size, thread count and instruction set."""

import numpy as np
import pytest
import torch

from kernels.product_cases import ISAS, activations, bank_of, differing, native, weight
from strata.core.errors import UnsupportedError
from strata.kernels import _native
from strata.kernels.activate import cpu as activate_cpu
from strata.kernels.activate import naive as activate_naive
from strata.kernels.embed import cpu as embed_cpu
from strata.kernels.embed import naive as embed_naive
from strata.kernels.experts import cpu as experts_cpu
from strata.kernels.experts import naive as experts_naive
from strata.kernels.linear import cpu, naive
from strata.kernels.native import FORMAT_CODES, Isa, Native
from strata.kernels.ops import Activation
from strata.kernels.views import ExpertBank, Weight
from strata.quant.formats import FORMATS


def test_the_table_of_formats_is_the_one_of_quant() -> None:
    for name, block, block_bytes, sub, minima in _native.format_table():
        fmt = FORMATS[name]
        assert (fmt.block, fmt.block_bytes, fmt.sub, fmt.minima) == (block, block_bytes, sub, minima)
    assert set(FORMAT_CODES) == {fmt.name for fmt in FORMATS.values() if fmt.kind != "data"}


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", FORMAT_CODES)
def test_every_format_at_awkward_sizes(name: str, isa: Isa) -> None:
    rng = np.random.default_rng(FORMAT_CODES[name])
    sizes = (32, 96, 160, 256, 640, 768, 2560)
    for cols in [size for size in sizes if size % FORMATS[name].block == 0]:
        rows, count = int(rng.integers(1, 38)), int(rng.choice([1, 2, 3, 8]))
        w, x = weight(name, rows, cols, rng), activations(count, cols, rng)
        (got,) = cpu.linear(native(isa), x, [w])
        assert differing(got, naive.linear(x, [w])[0]) == 0, (cols, rows, count)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", ["F32", "BF16", "FP8"])
@pytest.mark.parametrize("cols", [1, 7, 31, 33, 47, 100, 129])
def test_plain_floats_take_rows_of_any_length(name: str, cols: int, isa: Isa) -> None:
    rng = np.random.default_rng(cols)
    w = weight(name, 5, cols, rng)
    x = torch.from_numpy(rng.standard_normal((3, cols)).astype(np.float32) * np.float32(1e-22))
    w.planes[0][0].zero_()
    assert differing(cpu.linear(native(isa), x, [w])[0], naive.linear(x, [w])[0]) == 0


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 33])
def test_threads_and_company_change_nothing(threads: int, count: int, isa: Isa) -> None:
    rng = np.random.default_rng(count)
    ws = [weight(name, rows, 768, rng) for name, rows in (("Q4_K", 70), ("Q6_K", 19), ("BF16", 33), ("IQ3_S", 1))]
    x = activations(33, 768, rng)
    whole = naive.linear(x, ws)
    parts = cpu.linear(native(isa, threads), x[:count], ws)
    for part, full in zip(parts, whole, strict=True):
        assert differing(part, full[:count]) == 0


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", ["Q8_0", "Q4_K", "Q6_K", "IQ4_NL", "F32"])
def test_values_that_are_not_finite_show_in_their_row_only(name: str, isa: Isa) -> None:
    rng = np.random.default_rng(5)
    w, x = weight(name, 21, 768, rng), activations(6, 768, rng)
    x[1, 700], x[3, 5], x[4, 40] = float("nan"), float("inf"), float("-inf")
    (got,) = cpu.linear(native(isa), x, [w])
    assert differing(got, naive.linear(x, [w])[0]) == 0
    assert not got[1].isfinite().any()
    assert got[[0, 2, 5]].isfinite().all()


@pytest.mark.parametrize("isa", ISAS)
def test_extreme_activations(isa: Isa) -> None:
    rng = np.random.default_rng(6)
    w = weight("Q5_K", 9, 256, rng)
    rows = [np.zeros(256), np.full(256, 3e38), np.full(256, 1e-45), rng.standard_normal(256) * 1e-43]
    rows.append(np.arange(256) - 128 + 0.5)  # halves: rounding to even shows
    x = torch.from_numpy(np.stack(rows).astype(np.float32))
    assert differing(cpu.linear(native(isa), x, [w])[0], naive.linear(x, [w])[0]) == 0


@pytest.mark.parametrize("isa", ISAS)
def test_the_scale_of_a_matrix_multiplies_once_at_the_end(isa: Isa) -> None:
    rng = np.random.default_rng(7)
    for name in ("NVFP4", "FP8"):
        w, x = weight(name, 40, 256, rng, scale=0.0371), activations(3, 256, rng)
        assert differing(cpu.linear(native(isa), x, [w])[0], naive.linear(x, [w])[0]) == 0


def test_another_order_of_lanes_differs() -> None:
    """Control: the same terms in other lanes give other bits, so the comparisons above can fail."""
    rng = np.random.default_rng(8)
    w, x = weight("Q8_0", 64, 2048, rng), activations(4, 2048, rng)
    order = np.arange(64).reshape(2, 32)[:, rng.permutation(32)].ravel()
    moved = np.ascontiguousarray(w.planes[0].numpy().reshape(64, 64, 34)[:, order]).reshape(64, -1)
    shuffled = Weight(w.format, 64, 2048, (torch.from_numpy(moved),))
    y = cpu.linear(native("portable"), x, [w])[0]
    z = cpu.linear(native("portable"), x.reshape(4, 64, 32)[:, order].reshape(4, -1).contiguous(), [shuffled])[0]
    assert torch.allclose(y, z, rtol=1e-3, atol=1e-2 * float(y.abs().max()))
    assert differing(y, z) > 100


MIXED = [
    ("IQ3_S", "IQ3_S", "IQ4_NL"),
    ("Q4_K", "Q6_K", "Q8_0"),
    ("IQ3_S", "Q4_K", "Q2_0"),
    ("BF16", "F32", "NVFP4"),
    ("Q6_K", "IQ2_S", "F16"),
    ("IQ1_M", "Q5_K", "IQ4_NL"),
]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_experts_of_mixed_formats(threads: int, isa: Isa) -> None:
    rng = np.random.default_rng(9)
    bank = bank_of(rng, MIXED, 256, 192)
    for count in (1, 3, 33):
        x = activations(count, 256, rng) * 0.1
        ids = torch.from_numpy(np.stack([rng.permutation(6)[:3] for _ in range(count)]).astype(np.int32))
        factors = torch.from_numpy(rng.random((count, 3)).astype(np.float32))
        expected = experts_naive.experts(x, ids, factors, bank)
        got = experts_cpu.experts(native(isa, threads), x, ids, factors, bank)
        assert expected.abs().max() > 0
        assert differing(got, expected) == 0
        swapped = experts_cpu.experts(native(isa, threads), x, ids.flip(1), factors.flip(1), bank)
        assert count == 1 or differing(swapped, expected) > 0  # control: the rank order shows


def test_experts_are_counted_once_per_call_with_their_bytes() -> None:
    rng = np.random.default_rng(10)
    bank, own = bank_of(rng, MIXED, 256, 192), Native(2)
    ids = torch.tensor([[1, 2], [2, 5]], dtype=torch.int32)
    experts_cpu.experts(own, activations(2, 256, rng), ids, torch.ones(2, 2), bank)
    used = [w for e in (1, 2, 5) for w in (bank.gate[e], bank.up[e], bank.down[e])]
    assert own.distinct_experts == 3
    assert own.expert_bytes == sum(w.planes[0].numel() for w in used)
    cpu.linear(own, activations(1, 256, rng), [bank.gate[0]])
    assert own.product_bytes == bank.gate[0].planes[0].numel()


def test_a_bank_is_forgotten_with_its_weights() -> None:
    rng, own = np.random.default_rng(11), Native(1)
    for _ in range(3):
        bank = bank_of(rng, MIXED[:2], 256, 192)
        assert own.bank(bank) is own.bank(bank)
        assert len(own._banks) == 1
        del bank
    assert not own._banks


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", FORMAT_CODES)
def test_rows_of_tables(name: str, isa: Isa) -> None:
    rng = np.random.default_rng(12)
    w = weight(name, 140, 512, rng, scale=0.37 if name == "FP8" else 1.0)
    ids = torch.tensor([0, 139, 7, 7, 130])
    assert differing(embed_cpu.embed(native(isa), ids, [w]), embed_naive.embed(ids, [w])) == 0


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", ["silu", "sigmoid", "softplus", "exp"])
def test_activations(kind: Activation, isa: Isa) -> None:
    rng = np.random.default_rng(13)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 89.0, 88.72, 88.73, -104.0, -87.4, -103.9, 20.0, 20.001, 1e-40, 3e38]
    values = np.concatenate([special, rng.uniform(-110, 95, 20000), rng.standard_normal(20001)]).astype(np.float32)
    x = torch.from_numpy(values)
    assert differing(activate_cpu.activate(native(isa), kind, x), activate_naive.activate(kind, x)) == 0
    mutant = activate_naive.activate(kind, torch.from_numpy(np.nextafter(values, np.float32(np.inf))))
    assert differing(activate_cpu.activate(native(isa), kind, x), mutant) > 0


def test_what_does_not_fit_is_refused_with_its_name() -> None:
    rng, own = np.random.default_rng(14), native("portable")
    w, x = weight("Q4_K", 8, 256, rng), activations(2, 256, rng)
    with pytest.raises(ValueError, match="rows of 128 values for a weight of 256 columns"):
        cpu.linear(own, x[:, :128].contiguous(), [w])
    with pytest.raises(
        ValueError, match=r"linear: x: expected contiguous torch.float32 \[any, any\] on the CPU, found "
    ):
        cpu.linear(own, x.double(), [w])
    with pytest.raises(ValueError, match="non-contiguous"):
        cpu.linear(own, x.t().contiguous().t(), [w])
    with pytest.raises(ValueError, match=r"Q4_K weight of 9 x 256 needs contiguous uint8 \(9, 144\), found"):
        cpu.linear(own, x, [Weight(w.format, 9, 256, w.planes)])
    with pytest.raises(ValueError, match="FP8_BLOCK weight of 8 x 256 has no plane of scales"):
        cpu.linear(own, x, [Weight(FORMATS["FP8_BLOCK"], 8, 256, (torch.zeros(8, 256, dtype=torch.uint8),))])
    with pytest.raises(UnsupportedError, match="I32 is not a format of weights"):
        cpu.linear(own, x, [Weight(FORMATS["I32"], 8, 256, (torch.zeros(8, 1024, dtype=torch.uint8),))])
    with pytest.raises(IndexError, match="row 8 of a table of 8 rows"):
        embed_cpu.embed(own, torch.tensor([0, 8]), [w])
    bank = bank_of(rng, MIXED[:2], 256, 192)
    for wrong in (2, -1):
        with pytest.raises(IndexError, match=f"expert {wrong} of 2"):
            experts_cpu.experts(own, x, torch.tensor([[0], [wrong]], dtype=torch.int32), torch.ones(2, 1), bank)
    with pytest.raises(ValueError, match=r"up of expert 1 is 8 x 256, expected \(192, 256\)"):
        own.bank(ExpertBank(bank.gate, (bank.up[0], w), bank.down))
