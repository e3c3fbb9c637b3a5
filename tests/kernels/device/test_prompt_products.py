"""The products of a prompt's many rows equal their specification bit for bit: every format, on the emulator."""

import numpy as np
import pytest
import torch

from kernels.product_cases import activations, bank_of, differing, weight
from strata.kernels.experts import naive as experts_naive
from strata.kernels.experts import prompt as experts_prompt
from strata.kernels.experts.table import TIER_SHIFT, described, table_of
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.host_device import HostDevice
from strata.kernels.linear import naive, prompt, prompt_floats
from strata.kernels.linear.prompt_order import lane_at, places
from strata.kernels.native import FORMAT_CODES
from strata.quant.formats import FORMATS

MIXED = [
    ("IQ3_S", "IQ3_S", "IQ4_NL"),
    ("Q4_K", "Q6_K", "Q8_0"),
    ("IQ3_S", "Q4_K", "Q2_0"),
    ("Q6_K", "IQ2_S", "NVFP4"),
]


@pytest.mark.parametrize("name", FORMAT_CODES)
def test_every_format_at_awkward_sizes(name: str) -> None:
    rng = np.random.default_rng(FORMAT_CODES[name])
    device = HostDevice(order=7)
    for cols, count in ((32, 33), (256, 3), (768, 2)):
        if cols % FORMATS[name].block == 0:
            w, x = weight(name, int(rng.integers(1, 40)), cols, rng, 0.37), activations(count, cols, rng)
            (got,) = prompt.linear(device, x, [w])
            assert differing(got, naive.linear(x, [w])[0]) == 0, (cols, w.rows, count)


@pytest.mark.parametrize("name", ["F32", "BF16", "FP8"])
@pytest.mark.parametrize("cols", [1, 33, 300, 705])
@pytest.mark.parametrize("parts", [1, prompt_floats.PARTS])
def test_plain_floats_take_rows_of_any_length(
    name: str, cols: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt_floats, "parts_of", lambda device, tiles: parts)
    rng = np.random.default_rng(cols)
    w, x = weight(name, 65, cols, rng), activations(33, cols, rng)
    x[1] *= 1e-22
    w.planes[0][0].zero_()
    assert differing(prompt.linear(HostDevice(2), x, [w])[0], naive.linear(x, [w])[0]) == 0


@pytest.mark.parametrize("name", ["Q8_0", "Q4_K", "Q6_K", "Q2_K"])
def test_tiles_of_any_number_of_rows_in_blocks_of_any_size(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    w, x = weight(name, 131, 512, rng), activations(66, 512, rng)
    x[65, 400] = float("nan")
    expected = naive.linear(x, [w])[0]
    assert differing(prompt.linear(HostDevice(3), x[:65], [w])[0], expected[:65]) == 0
    monkeypatch.setattr(prompt, "groups_for", lambda device, formats, units: 3)
    got = prompt.linear(HostDevice(), x, [w])[0]
    assert differing(got, expected) == 0
    assert not got[65].isfinite().any()
    assert got[:65].isfinite().all()


@pytest.mark.parametrize("count", [1, 2, 5, 15, 16, 17, 20, 24, 31, 32, 33, 45, 80])
def test_rows_of_any_number_of_sub_blocks(count: int) -> None:
    """Every shape of the tree: lanes without a partner, whole branches without lanes."""
    rng = np.random.default_rng(count)
    w, x = weight("Q8_0", 3, 32 * count, rng), activations(2, 32 * count, rng)
    assert differing(prompt.linear(HostDevice(), x, [w])[0], naive.linear(x, [w])[0]) == 0


def test_another_order_of_terms_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: the same terms in other lanes give other bits, so the comparisons above can fail."""
    rng = np.random.default_rng(8)
    w, x = weight("Q8_0", 32, 1280, rng), activations(2, 1280, rng)
    monkeypatch.setattr(prompt, "places", lambda count: tuple(range(count)))
    got, expected = prompt.linear(HostDevice(), x, [w])[0], naive.linear(x, [w])[0]
    assert torch.allclose(got, expected, rtol=1e-3, atol=1e-2 * float(expected.abs().max()))
    assert differing(got, expected) > 10


@pytest.mark.parametrize("sub", [32, 16])
def test_records_hold_the_quantised_rows_as_the_layout_says(sub: int) -> None:
    rng, device, rows, cols = np.random.default_rng(sub), HostDevice(), 70, 320
    fmt = next(fmt for fmt in FORMATS.values() if fmt.kind == "codes" and fmt.sub == sub)
    inputs = prompt.quantise(device, activations(rows, cols, rng), {fmt})
    stages, steps = prompt.stages(cols), prompt.STAGE // sub
    records = prompt.pack(device, inputs).by[sub].view(-1, stages, prompt.record_bytes(sub, minima=True))
    quantised, used = inputs.by[sub], cols // sub
    for row in (0, 13, 63, 64, 69):
        tile, here = records[row // 64], row % 64
        pieces = [piece ^ (here & 7) for piece in range(8)]
        codes = tile[:, here * 128 : here * 128 + 128].view(stages, 8, 16)[:, pieces]
        assert torch.equal(codes.reshape(-1)[: used * sub], quantised.codes[row, : used * sub])
        place = here // 32 * 32 + here % 8 * 4 + here % 32 // 8
        scales = tile[:, 64 * 128 :].reshape(stages, 2, steps, 64, 4)[:, :, :, place].contiguous().view(torch.float32)
        for kind, expected in ((0, quantised.d), (1, quantised.m)):
            assert torch.equal(scales[:, kind].reshape(-1)[:used], expected[row, :used])
    assert not torch.equal(records[0, 0, :128], records[0, 0, 128:256])  # control: rows are not all the same


def test_places_are_a_permutation_and_none_is_refused() -> None:
    assert places(40)[:3] == (0, 20, 10)  # lane 1 follows all of the even ones; 0, 32, 16, 8, 24, 4, 36, ..
    assert all(sorted(places(count)) == list(range(count)) for count in (1, 7, 33, 80))
    assert sorted(map(lane_at, range(32))) == list(range(32))
    with pytest.raises(ValueError, match="places: 0 sub-blocks, expected at least one"):
        places(0)


def routing(rng: np.random.Generator, rows: int, experts: int, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = np.stack([rng.permutation(experts)[:top_k] for _ in range(rows)]).astype(np.int32)
    return torch.from_numpy(ids), torch.from_numpy(rng.random((rows, top_k)).astype(np.float32))


def test_experts_of_mixed_formats_in_several_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(9)
    bank, device = bank_of(rng, MIXED, 256, 192), HostDevice(order=5)
    x, (ids, factors) = activations(70, 256, rng) * 0.1, routing(rng, 70, 4, 2)
    ids[:30, 0], ids[:30, 1] = 1, 2  # one expert with more than a tile, one with few
    expected, table = experts_naive.experts(x, ids, factors, bank), table_of(device, bank)
    assert differing(experts_prompt.experts(device, x, ids, factors, table), expected) == 0
    monkeypatch.setattr(experts_prompt, "PANEL_BYTES", 130_000)  # two experts at once
    monkeypatch.setattr(experts_prompt, "MOST_ROWS", 40)
    assert differing(experts_prompt.experts(device, x, ids, factors, table), expected) == 0
    back = [t[:5].flip(1).contiguous() for t in (ids, factors)]
    flipped = experts_prompt.experts(device, x[:5], back[0], back[1], table)
    assert differing(flipped, expected[:5]) > 0  # control: the rank order shows


def test_experts_of_another_tier_leave_their_places() -> None:
    rng = np.random.default_rng(6)
    bank, device = bank_of(rng, MIXED[:1] * 3, 256, 64), HostDevice()
    x, (ids, _) = activations(9, 256, rng) * 0.1, routing(rng, 9, 3, 2)
    entries = table_of(device, bank).entries.clone()
    whole = torch.full((9, 2, 256), 7.0)
    experts_prompt.pair_results(
        device, x, experts_prompt.sort(device, ids, described(entries, bank)), described(entries, bank), whole
    )
    entries[1, 9] |= 2 << TIER_SHIFT
    table, part = described(entries, bank), torch.full((9, 2, 256), 7.0)
    experts_prompt.pair_results(device, x, experts_prompt.sort(device, ids, table), table, part)
    elsewhere = ids == 1
    assert elsewhere.any()
    assert (part[elsewhere] == 7).all()
    assert torch.equal(part[~elsewhere], whole[~elsewhere])
    assert (whole != 7).any(dim=2).all()


def test_more_rows_than_a_window_take_this_way_and_give_the_same() -> None:
    rng = np.random.default_rng(10)
    bank, device = bank_of(rng, MIXED[:1] * 3, 256, 64), HostDevice()
    ops = GpuOps(device)
    x, (ids, factors) = activations(33, 256, rng) * 0.1, routing(rng, 33, 3, 2)
    w = weight("Q4_K", 5, 256, rng)
    (many,) = ops.linear(x, [w])
    assert differing(many[:32], ops.linear(x[:32], [w])[0]) == 0
    y = ops.experts(x, ids, factors, bank)
    assert differing(y[:32], ops.experts(x[:32], ids[:32], factors[:32], bank)) == 0


def test_what_does_not_fit_is_refused() -> None:
    rng, device = np.random.default_rng(14), HostDevice()
    w, x = weight("Q4_K", 8, 256, rng), activations(40, 256, rng)
    with pytest.raises(ValueError, match="rows of 128 values for a weight of 256 columns"):
        prompt.linear(device, x[:, :128].contiguous(), [w])
    with pytest.raises(ValueError, match=r"linear: x: expected contiguous torch.float32 \(40, 256\) on cpu, found "):
        prompt.linear(device, x.double(), [w])


def test_shared_memory_is_what_a_block_may_have() -> None:
    for name in FORMAT_CODES:
        if FORMATS[name].kind == "codes":
            large, small = (prompt.shared_bytes(n, FORMATS[name]) for n in prompt.GROUPS)
            assert 0 < small <= 99 << 10 < large <= 227 << 10
            assert 0 < prompt.unpack_bytes(HostDevice(), FORMATS[name]) <= 227 << 10
