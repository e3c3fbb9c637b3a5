"""The CPU's side of the rendezvous: experts apart, the answering thread, and the rules of `place`."""

import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.product_cases import ISAS, activations, bank_of, differing, native
from strata.kernels import _native
from strata.kernels.experts.cpu import experts
from strata.kernels.experts.naive import experts as naive_experts
from strata.kernels.rendezvous.answerer import Answerer
from strata.kernels.rendezvous.mailbox import FAILED, POISON, REPLY, Mailbox
from strata.kernels.rendezvous.naive import Tier, Way, combine, place

HIDDEN, WIDTH, EXPERTS = 288, 96, 5
FORMATS = [("Q4_0", "Q8_0", "Q5_1"), ("F32", "BF16", "F16"), ("Q8_0", "Q8_0", "IQ4_NL")]


@pytest.fixture(scope="module")
def bank():
    return bank_of(np.random.default_rng(3), [FORMATS[e % 3] for e in range(EXPERTS)], HIDDEN, WIDTH)


def chosen(rows, k, seed, skip=0.4):
    """Distinct experts per row, some of them -1."""
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.permutation(EXPERTS)[:k] for _ in range(rows)]).astype(np.int32)
    return torch.from_numpy(np.where(rng.random(ids.shape) < skip, -1, ids).astype(np.int32))


def apart(way, bank, x, ids):
    outputs = torch.full((ids.numel(), HIDDEN), 7.0)
    found = _native.experts_apart(
        way.handle, way.bank(bank), x.data_ptr(), len(x), ids.data_ptr(), ids.shape[1], outputs.data_ptr()
    )
    return found, outputs


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", [1, 3, 8, 9, 33])
def test_experts_apart_give_the_bits_that_the_combination_adds(bank, isa, rows):
    x, ids = activations(rows, HIDDEN, np.random.default_rng(rows)), chosen(rows, 3, rows)
    distinct, outputs = apart(native(isa), bank, x, ids)
    assert distinct == len(set(ids.flatten().tolist()) - {-1})
    one = torch.ones(1, 1)
    for entry, expert in enumerate(ids.flatten().tolist()):
        row = x[entry // 3 : entry // 3 + 1]
        expected = torch.full((1, HIDDEN), 7.0)
        if expert >= 0:
            expected = naive_experts(row, torch.tensor([[expert]], dtype=torch.int32), one, bank)
        assert differing(outputs[entry : entry + 1], expected) == 0, (entry, expert)


def test_nothing_to_compute_and_unknown_experts(bank):
    way, x = native("portable"), torch.ones(2, HIDDEN)
    assert apart(way, bank, x, torch.full((2, 3), -1, dtype=torch.int32))[0] == 0
    for wrong in (EXPERTS, -2):
        with pytest.raises(IndexError, match=f"expert {wrong} of {EXPERTS}"):
            apart(way, bank, x, torch.full((2, 3), wrong, dtype=torch.int32))
    with pytest.raises(IndexError, match="expert -1 of"):  # a combined call has no places to leave out
        experts(way, x, torch.full((2, 3), -1, dtype=torch.int32), torch.ones(2, 3), bank)


@pytest.fixture
def desk(bank):
    """A mailbox with an answering thread; the test plays the GPU."""
    mailbox = Mailbox(4, 12, HIDDEN, pinned=False)
    answerer = Answerer(native("portable"), mailbox, {2: bank, 7: bank})
    yield mailbox, answerer
    answerer.close()


def ask(mailbox, layer, x, ids):
    """Publish a request as the device does -> its number."""
    rows, k = ids.shape
    mailbox.ids[: rows * k] = ids.flatten()
    mailbox.x[:rows] = x
    mailbox.head[1:4] = torch.tensor([layer, rows, k])
    mailbox.head[0] += 1
    return int(mailbox.head[0])


def wait(mailbox, request):
    for _ in range(20000):
        if int(mailbox.head[REPLY]) >= request:
            return
        time.sleep(0.0005)
    raise AssertionError("no answer")


def test_requests_are_answered_in_place_and_counted(bank, desk):
    mailbox, answerer = desk
    for turn, rows in enumerate((1, 4, 2)):
        x, ids = activations(rows, HIDDEN, np.random.default_rng(turn)), chosen(rows, 3, turn)
        mailbox.answers.fill_(7.0)
        wait(mailbox, ask(mailbox, 2 + 5 * (turn % 2), x, ids))
        assert differing(mailbox.answers[: rows * 3], apart(native("portable"), bank, x, ids)[1]) == 0
        (done,) = answerer.drain()
        kept = ids[ids >= 0].tolist()
        assert done[:4] == (2 + 5 * (turn % 2), rows, len(kept), len(set(kept))) and done.nanoseconds > 0
    assert answerer.drain() == [] and answerer.failure() == "" and mailbox.take_poison() == 0


def test_a_rested_thread_wakes_up(desk):
    mailbox, _ = desk
    time.sleep(0.05)
    wait(mailbox, ask(mailbox, 2, torch.ones(1, HIDDEN), torch.tensor([[0, 1, -1]])))


@pytest.mark.parametrize(
    ("layer", "rows", "k", "reason"),
    [(3, 1, 3, "layer 3"), (2, 5, 2, "5 rows"), (2, 4, 4, "4 rows with 4"), (2, 0, 3, "0 rows"), (2, 1, 0, "with 0")],
)
def test_a_request_that_cannot_be_answered_is_said_and_does_not_hang(desk, layer, rows, k, reason):
    mailbox, answerer = desk
    mailbox.head[1:4] = torch.tensor([layer, rows, k])
    mailbox.head[0] = 1
    wait(mailbox, 1)
    assert int(mailbox.head[FAILED]) == 1 and reason in answerer.failure()
    assert answerer.failure() == "" and answerer.drain() == []
    wait(mailbox, ask(mailbox, 2, torch.ones(1, HIDDEN), torch.tensor([[0, 1, -1]])))
    assert len(answerer.drain()) == 1


def test_an_unknown_expert_fails_the_request(desk):
    mailbox, answerer = desk
    wait(mailbox, ask(mailbox, 2, torch.ones(1, HIDDEN), torch.tensor([[0, EXPERTS, -1]])))
    assert f"expert {EXPERTS} of {EXPERTS}" in answerer.failure()


def test_a_stalled_thread_answers_later_and_a_moved_bank_is_used(bank, desk):
    mailbox, answerer = desk
    answerer.stall(True)
    x, ids = torch.ones(1, HIDDEN), torch.tensor([[0, 1, 2]], dtype=torch.int32)
    other = bank_of(np.random.default_rng(9), [FORMATS[2]] * EXPERTS, HIDDEN, WIDTH)
    answerer.use(2, other)
    request = ask(mailbox, 2, x, ids)
    time.sleep(0.02)
    assert int(mailbox.head[REPLY]) == request - 1
    answerer.stall(False)
    wait(mailbox, request)
    assert differing(mailbox.answers[:3], apart(native("portable"), other, x, ids)[1]) == 0


def test_a_bank_of_another_size_is_refused(bank):
    with pytest.raises(ValueError, match="layer 1 has 288 values a row, the mailbox 64"):
        Answerer(native("portable"), Mailbox(1, 1, 64, pinned=False), {1: bank})


def test_poison_is_taken_once():
    mailbox = Mailbox(1, 1, 32, pinned=False)
    mailbox.head[POISON] = 4
    assert mailbox.take_poison() == 4 and mailbox.take_poison() == 0


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 6), st.integers(1, 4))
def test_place_sorts_every_entry_into_one_way(seed, rows, k):
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.permutation(9)[:k] for _ in range(rows)]).astype(np.int32)
    tiers, share = rng.integers(0, 3, 9).astype(np.int32), np.sort(rng.integers(0, 9, 10)).astype(np.int32)
    placed = place(ids, tiers, share)
    assert sum(placed.entries()) == ids.size and sum(placed.experts()) == len(np.unique(ids))
    missing = [e for e in placed.by_expert if tiers[e] != Tier.FRAME]
    over = [e for e, way in placed.by_expert.items() if way is Way.PCIE]
    assert len(over) == min(share[len(missing)], sum(tiers[e] == Tier.PINNED for e in missing))
    for expert, way in placed.by_expert.items():
        assert (way is Way.FRAME) == (tiers[expert] == Tier.FRAME)
        assert way is not Way.PCIE or tiers[expert] == Tier.PINNED


def test_combine_takes_the_cpus_part_from_its_answers():
    rng = np.random.default_rng(0)
    outputs, answers = (rng.standard_normal((2, 3, 4)).astype(np.float32) for _ in range(2))
    weights, ways = rng.random((2, 3)).astype(np.float32), np.array([[0, 2, 1], [2, 2, 0]], np.int32)
    got = combine(outputs, weights, ways, answers)
    mixed = np.where((ways == 2)[..., None], answers, outputs)
    np.testing.assert_allclose(got, (weights[..., None] * mixed).sum(1), rtol=1e-5)
    changed = outputs.copy()
    changed[0, 1] += 1
    assert np.array_equal(combine(changed, weights, ways, answers), got)
