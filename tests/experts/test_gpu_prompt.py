"""A prompt's rows through frames and pinned memory, on the emulator: the specification's bits, and true counts."""

import pytest
import torch

from experts.test_gpu import TOP_K, call, closing, placed, step, store  # noqa: F401 - fixtures
from kernels.product_cases import differing
from strata.experts.gpu import GpuExperts
from strata.kernels.experts.naive import experts as naive_experts
from strata.store.experts import ExpertStore

ROWS = 40


@pytest.mark.parametrize(("frames", "pinned"), [(1.0, 0.0), (0.5, 1.0), (0.0, 1.0), (0.25, 0.25)])
def test_a_prompt_gives_the_specifications_bits_wherever_experts_lie(store, closing, frames, pinned):  # noqa: F811
    experts: GpuExperts = closing(placed(store, TOP_K, frames, pinned))
    found = step(experts, ROWS, 5)
    for layer, y in zip((0, 2), found, strict=True):
        x, ids, weights = call(ROWS, 5 + layer)
        assert experts.reaches(layer) is (frames == 1.0 or pinned == 1.0)
        assert differing(y, naive_experts(x, ids, weights, store.banks[layer])) == 0
    step(experts, 3, 9)
    experts.read_ledger()
    assert experts.counters.disagreement() == ""
    assert experts.counters.entries.sum() == 2 * (ROWS + 3) * TOP_K
    assert int(experts.desk.uses.sum()) == 2 * (ROWS + 3) * TOP_K


def test_changed_bytes_in_pinned_memory_show(store: ExpertStore, closing):  # noqa: F811
    """Control: the bytes are read where they lie."""
    experts: GpuExperts = closing(placed(store, TOP_K, 0.0, 1.0))
    x, ids, weights = call(ROWS, 5)
    before = experts.run(0, x, ids, weights)
    blob = experts.cache.pinned.blobs[(0, int(ids[0, 0]))]
    blob[: 64 * 3 * 18].view(-1, 18)[:, 2:] ^= 0x11  # codes of the gate, Q4_0
    changed = (experts.run(0, x, ids, weights) != before).any(1)
    assert bool(changed[0])
    assert torch.equal(changed & ~(ids == ids[0, 0]).any(1), torch.zeros(ROWS, dtype=torch.bool))
