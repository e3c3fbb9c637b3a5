"""Pinned blobs hold the experts' own bytes, the hottest first, as far as the system and the quota let them."""

import numpy as np
import pytest
import torch

from kernels.product_cases import bank_of
from strata.store.blobs import ALIGNMENT, PLANES, BlobLayout, planes_of, weights_of
from strata.store.experts import ExpertStore
from strata.store.pinned import PinnedStore, StagingRing, plain_memory

FORMATS = {2: [("Q4_0", "Q8_0", "Q5_1"), ("F32", "BF16", "F16")], 5: [("NVFP4_PAIRS", "FP8_BLOCK", "IQ4_NL")] * 3}


@pytest.fixture
def store():
    rng = np.random.default_rng(1)
    return ExpertStore({layer: bank_of(rng, formats, 64, 32) for layer, formats in FORMATS.items()})


ORDER = [(5, 1), (2, 0), (5, 2), (2, 1), (5, 0)]


def bytes_of(store):
    return {
        (layer, e): [None if p is None else p.clone() for p in planes_of(weights_of(bank, e))]
        for layer, bank in store.banks.items()
        for e in range(len(bank.gate))
    }


def same(a, b):
    return all(x is y is None or torch.equal(x, y) for x, y in zip(a, b, strict=True))


def nothing(done, of):
    """No progress to show."""


def test_a_layout_holds_the_largest_of_a_layers_experts(store):
    for bank in store.banks.values():
        layout = BlobLayout.of(bank)
        assert len(layout.offsets) == PLANES and all(o % ALIGNMENT == 0 for o in layout.offsets)
        for e in range(len(bank.gate)):
            ends = [
                o + p.nbytes
                for o, p in zip(layout.offsets, planes_of(weights_of(bank, e)), strict=True)
                if p is not None
            ]
            assert max(ends) <= layout.nbytes


def test_blobs_hold_the_bytes_and_banks_show_them_there(store):
    before = bytes_of(store)
    pinned, said = PinnedStore(store, plain_memory, 1 << 16), []
    assert set(pinned.fill(ORDER, 1 << 20, lambda done, of: said.append(done))) == {2, 5}
    assert set(pinned.blobs) == set(ORDER) and pinned.refused == "" and said[-1] == pinned.nbytes
    assert all(same(before[o], found) for o, found in bytes_of(store).items())
    for layer, expert in ORDER:
        blob, layout = pinned.blobs[layer, expert], pinned.layouts[layer]
        weights = pinned.weights(layer, expert)
        addresses = layout.addresses(weights, blob.data_ptr())
        assert addresses == [0 if p is None else p.data_ptr() for p in planes_of(weights)]
        assert all(w.scale == 0.01 for w in weights[2:])


def test_the_quota_ends_it_and_the_hottest_are_in(store):
    pinned = PinnedStore(store, plain_memory, 1 << 14)
    pinned.fill(ORDER, 2 << 14, nothing)
    assert pinned.nbytes == 2 << 14 and list(pinned.blobs) == ORDER[: len(pinned.blobs)]
    assert 0 < len(pinned.blobs) < len(ORDER)
    pinned.fill(ORDER, 1 << 20, nothing)
    assert len(pinned.blobs) == len(ORDER)


def test_a_system_that_refuses_is_reported_and_the_rest_stays(store):
    before, blocks = bytes_of(store), []

    def allocate(nbytes):
        if len(blocks) == 1:
            raise RuntimeError("out of pinned memory\nwith details")
        blocks.append(plain_memory(nbytes))
        return blocks[-1]

    pinned = PinnedStore(store, allocate, 1 << 14)
    pinned.fill(ORDER, 1 << 20, nothing)
    assert pinned.refused == "out of pinned memory" and 0 < len(pinned.blobs) < len(ORDER)
    assert all(same(before[o], found) for o, found in bytes_of(store).items())


def test_an_expert_that_is_not_pinned_goes_through_the_ring(store):
    pinned = PinnedStore(store, plain_memory)
    ring, waited = StagingRing(pinned, 2), []
    for turn, (layer, expert) in enumerate(ORDER):
        staged, place = ring.source(layer, expert)
        assert place == turn % 2 and len(waited) == max(0, turn - 1)
        weights = pinned.weights(layer, expert)
        views = pinned.layouts[layer].views(weights, staged)
        assert same(planes_of(views), planes_of(weights))
        ring.holds(place, lambda turn=turn: waited.append(turn))
    pinned.fill([(2, 0)], 1 << 30, nothing)
    assert ring.source(2, 0) == (pinned.blobs[2, 0], -1)
    ring.holds(-1, lambda: waited.append("never"))
    assert "never" not in waited


def test_a_model_without_experts_pins_nothing():
    pinned = PinnedStore(ExpertStore({}), plain_memory)
    assert pinned.fill([], 1 << 30, nothing) == () and pinned.nbytes == 0
