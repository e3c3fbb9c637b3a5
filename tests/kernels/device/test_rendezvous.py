"""The rendezvous on a device equals its specification, on the emulator; the CPU's part is really answered."""

import numpy as np
import pytest
import torch

from kernels.layer_cases import same_bits
from kernels.product_cases import activations, bank_of, differing, native
from strata.kernels.experts.gpu import JOB_WORDS, group, pair_results
from strata.kernels.experts.naive import experts as naive_experts
from strata.kernels.experts.table import COLUMNS, TIER_SHIFT, described, table_of
from strata.kernels.host_device import HostDevice
from strata.kernels.naive_ops import NaiveOps
from strata.kernels.rendezvous import naive
from strata.kernels.rendezvous.answerer import Answerer
from strata.kernels.rendezvous.gpu import POISONED, Desk, Placement, choose_and_place, combine, place
from strata.kernels.rendezvous.mailbox import Mailbox
from strata.kernels.rendezvous.naive import Tier, Way

HIDDEN, WIDTH, EXPERTS, LAYERS = 96, 64, 7, 3
SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def bank():
    return bank_of(
        np.random.default_rng(3),
        [("Q4_0", "Q8_0", "Q5_1"), ("F32", "BF16", "F16")] * 3 + [("Q8_0",) * 3],
        HIDDEN,
        WIDTH,
    )


class Scene:
    """One layer on the emulator, every expert's tier and the share as the test wishes."""

    def __init__(self, bank, tiers, share, most_rows=4, top_k=3, limit_ns=20 * SECOND, order=0, threads=True):
        self.device = HostDevice(order)
        self.bank, self.tiers = bank, np.array(tiers, np.int32)
        self.share = torch.tensor(share, dtype=torch.int32)
        self.table = table_of(self.device, bank)
        entries = self.table.entries.clone()
        entries[:, -1] |= torch.from_numpy(self.tiers.astype(np.int64)) << TIER_SHIFT
        for expert in np.flatnonzero(self.tiers == Tier.HOST):
            entries[expert, :6] = 0  # nothing there that the device could read
        self.placement = Placement(entries, self.share)
        box = Mailbox(most_rows, most_rows * top_k, HIDDEN, pinned=False)
        self.desk = Desk.of(torch.device("cpu"), box, LAYERS, EXPERTS, COLUMNS, limit_ns)
        self.answerer = Answerer(native("portable"), box, {1: bank}) if threads else None

    def place(self, x, ids):
        return place(self.device, self.desk, 1, self.placement, x, ids, described(self.desk.call, self.bank))

    def run(self, x, ids, weights):
        ways, grouped = self.place(x, ids)
        call = described(self.desk.call, self.bank)
        results = torch.full((*ids.shape, HIDDEN), np.nan)
        pair_results(self.device, grouped, call, results)
        y = torch.full_like(x, np.nan)
        combine(self.device, self.desk, 1, results, weights, ways, y)
        return y

    def close(self):
        if self.answerer is not None:
            self.answerer.close()


@pytest.fixture
def scene(bank):
    made = []

    def make(*args, **options):
        made.append(Scene(bank, *args, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def routed(rows, k, seed):
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.permutation(EXPERTS)[:k] for _ in range(rows)]).astype(np.int32)
    weights = torch.from_numpy(rng.random((rows, k)).astype(np.float32))
    return activations(rows, HIDDEN, rng), torch.from_numpy(ids), weights


TIERS = [0, 1, 2, 1, 0, 1, 2]
SHARE = [0, 1, 1, 2, 2, 3, 3, 3]


def used_jobs(grouped):
    """The jobs' words that are written."""
    count = int(grouped.jobs[0])
    jobs = grouped.jobs[4:].view(-1, JOB_WORDS)[:count].clone()
    for job in jobs:
        job[2 + int(job[1]) : 4] = 0
    return jobs


@pytest.mark.parametrize("order", [0, 5])
@pytest.mark.parametrize("rows", [1, 3, 4])
def test_place_decides_as_its_specification(scene, bank, rows, order):
    s = scene(TIERS, SHARE, order=order, threads=False)
    for seed in range(4):
        x, ids, _ = routed(rows, 3, seed)
        s.desk.ledger.zero_(), s.desk.uses.zero_()
        expected = naive.place(ids.numpy(), s.tiers, SHARE)
        ways, grouped = s.place(x, ids)
        assert np.array_equal(ways.numpy(), expected.ways)
        assert torch.equal(used_jobs(grouped), used_jobs(group(s.device, x, ids, described(s.desk.call, bank))))
        ledger = s.desk.ledger[1].tolist()
        assert ledger[0:3] == expected.entries() and ledger[3:6] == ledger[6:9] == expected.experts()
        assert s.desk.uses[1].tolist() == np.bincount(ids.numpy().reshape(-1), minlength=EXPERTS).tolist()
        assert not s.desk.ledger[[0, 2]].any() and not s.desk.uses[[0, 2]].any()
        for expert, way in expected.by_expert.items():
            tier = int(s.desk.call[expert, -1]) >> TIER_SHIFT & 255
            assert (tier == 0) == (way is not Way.CPU)
            assert torch.equal(s.desk.call[expert, :9], s.placement.entries[expert, :9])
        box, cpu = s.desk.mailbox, expected.ways == Way.CPU
        if cpu.any():
            asked = np.where(cpu, ids.numpy(), -1).reshape(-1)
            assert box.ids[: asked.size].tolist() == asked.tolist() and torch.equal(box.x[:rows], x)
            assert box.head[1:4].tolist() == [1, rows, 3]
        assert int(s.desk.encounter[1]) == (int(box.head[0]) if cpu.any() else 0)


@pytest.mark.parametrize("order", [0, 5])
def test_a_rows_choice_and_its_placing_in_one_launch(scene, bank, order):
    """As route and then place, ties and all; the counts too."""
    s, other = (scene(TIERS, SHARE, order=order, threads=False) for _ in range(2))
    call = described(s.desk.call, bank)
    for seed in range(4):
        x, _, _ = routed(1, 3, seed)
        logits = torch.from_numpy(np.random.default_rng(seed).standard_normal((1, EXPERTS)).astype(np.float32)).round()
        for renormalise in (True, False):
            before = s.device.launches
            found = choose_and_place(s.device, s.desk, 1, s.placement, x, logits, 3, renormalise, call)
            assert s.device.launches == before + 1
            ids, weights = NaiveOps().route(logits, 3, renormalise)
            ways, grouped = other.place(x, ids)
            assert torch.equal(found.ids, ids) and same_bits(found.weights, weights)
            assert torch.equal(found.ways, ways) and torch.equal(used_jobs(found.grouped), used_jobs(grouped))
            for name in ("ledger", "uses", "call"):
                assert torch.equal(getattr(s.desk, name), getattr(other.desk, name)), name
            assert torch.equal(s.desk.encounter[:2], other.desk.encounter[:2])
            assert torch.equal(s.desk.mailbox.ids, other.desk.mailbox.ids)
    logits[0, int(ids[0, 0])] = -9.0  # negative control
    assert not torch.equal(choose_and_place(s.device, s.desk, 1, s.placement, x, logits, 3, True, call).ids, ids)
    with pytest.raises(ValueError, match=r"expected logits \[1, 7\] and top_k 1 .. 7, found \[1, 6\] and 3"):
        choose_and_place(s.device, s.desk, 1, s.placement, x, logits[:, :6], 3, True, call)


def test_more_experts_than_threads(bank):
    """The ranks of pinned experts go on over rounds of 256."""
    experts, rng = 700, np.random.default_rng(0)
    tiers = rng.integers(0, 3, experts).astype(np.int32)
    share = (np.arange(experts + 1) // 2).astype(np.int32)
    entries = torch.zeros(experts, COLUMNS, dtype=torch.int64)
    entries[:, -1] = torch.from_numpy(tiers.astype(np.int64)) << TIER_SHIFT
    box = Mailbox(32, 32 * 16, 32, pinned=False)
    desk = Desk.of(torch.device("cpu"), box, 1, experts, COLUMNS, 0)
    ids = np.stack([rng.permutation(experts)[:16] for _ in range(32)]).astype(np.int32)
    placement = Placement(entries, torch.from_numpy(share))
    ways, _ = place(
        HostDevice(7), desk, 0, placement, torch.zeros(32, 32), torch.from_numpy(ids), described(desk.call, bank)
    )
    assert np.array_equal(ways.numpy(), naive.place(ids, tiers, share).ways)


@pytest.mark.parametrize(
    "tiers", [[0] * 7, [1] * 7, [2] * 7, TIERS, [2, 0, 2, 0, 2, 0, 2]], ids=["frames", "pcie", "cpu", "mixed", "half"]
)
@pytest.mark.parametrize("rows", [1, 4])
def test_experts_have_the_same_bits_wherever_they_lie(scene, bank, rows, tiers):
    s = scene(tiers, list(range(8)) if tiers == [1] * 7 else SHARE, order=rows)
    for seed in range(2):
        x, ids, weights = routed(rows, 3, seed)
        expected = naive_experts(x, ids, weights, bank)
        assert expected.abs().max() > 0
        assert differing(s.run(x, ids, weights), expected) == 0
    device, host = int(s.desk.ledger[1, 2]), sum(a.entries for a in s.answerer.drain())
    assert device == host and int(s.desk.ledger[1, 0:3].sum()) == 2 * rows * 3
    assert (int(s.desk.mailbox.head[0]) == 0) == (device == 0)  # nobody is asked for nothing


def test_one_flipped_byte_shows(scene, bank):
    """The negative control: the comparison above sees a single bit of one expert."""
    s = scene([0] * 7, SHARE)
    x, ids, weights = routed(4, 3, 1)
    copy = table_of(s.device, bank).entries
    assert torch.equal(copy[:, :6], s.placement.entries[:, :6])
    plane = s.device.resident(bank.up[int(ids[0, 0])].planes[0])
    before = s.run(x, ids, weights)
    plane.view(-1)[5] ^= 64
    try:
        assert differing(s.run(x, ids, weights), before) > 0
    finally:
        plane.view(-1)[5] ^= 64


def test_a_wait_in_vain_ends_and_is_said(scene):
    s = scene([2] * 7, SHARE, limit_ns=SECOND // 50)
    s.answerer.stall(True)
    x, ids, weights = routed(2, 3, 0)
    s.run(x, ids, weights)
    assert int(s.desk.encounter[POISONED]) == 1
    s.run(x, ids, weights)  # nothing waits any more until the host has seen it
    assert s.desk.mailbox.take_poison() == 1 and int(s.desk.encounter[0]) == 2
    s.answerer.stall(False)
    s.desk.encounter[POISONED] = 0
    expected = naive_experts(x, ids, weights, s.bank)
    assert differing(s.run(x, ids, weights), expected) == 0


def test_combine_is_its_specification(scene):
    s = scene(TIERS, SHARE, threads=False)
    rng = np.random.default_rng(2)
    results, weights = rng.standard_normal((4, 3, HIDDEN)).astype(np.float32), rng.random((4, 3)).astype(np.float32)
    ways = rng.integers(0, 3, (4, 3)).astype(np.int32)
    answers = rng.standard_normal((12, HIDDEN)).astype(np.float32)
    s.desk.mailbox.answers.copy_(torch.from_numpy(answers))
    y = torch.empty(4, HIDDEN)
    combine(s.device, s.desk, 1, *map(torch.from_numpy, (results, weights, ways)), y)
    expected = naive.combine(results, weights, ways, answers.reshape(4, 3, HIDDEN))
    assert np.array_equal(y.numpy(), expected)
    own, strength = (torch.from_numpy(rng.standard_normal((4, n)).astype(np.float32)) for n in (HIDDEN, 1))
    combine(s.device, s.desk, 1, *map(torch.from_numpy, (results, weights, ways)), y, (own, strength))
    assert torch.equal(y, NaiveOps().stream_add(torch.from_numpy(expected), own, strength, 1.0, 1.0))
    assert not np.array_equal(y.numpy(), expected)
