"""A prompt's experts copied a layer ahead: the specification's bits, and what is done without room."""

import pytest

from experts.test_gpu import TOP_K, call, closing, placed, step, store  # noqa: F401 - fixtures
from kernels.product_cases import differing
from strata.experts.gpu import GpuExperts
from strata.kernels.experts.naive import experts as naive_experts
from strata.kernels.transfers import Done, HostCopies

ROWS = 40


def prompt(experts, store, seed=5):  # noqa: F811
    """How many values differ from the specification's, of both layers."""
    found = step(experts, ROWS, seed)
    return [
        differing(y, naive_experts(*call(ROWS, seed + layer), store.banks[layer]))
        for layer, y in zip((0, 2), found, strict=True)
    ]


@pytest.mark.parametrize(("frames", "pinned"), [(0.5, 1.0), (0.0, 1.0)])
def test_copied_experts_give_the_specifications_bits(store, closing, frames, pinned):  # noqa: F811
    experts: GpuExperts = closing(placed(store, TOP_K, frames, pinned))
    experts.ahead.least_rows = ROWS
    for seed in (5, 11):
        assert prompt(experts, store, seed) == [0, 0]
    missing = [(layer, e) for layer in (0, 2) for e in range(8) if (layer, e) not in experts.cache.frames.held]
    sizes = experts.cache.sizes
    assert experts.ahead.moved_bytes == 2 * sum(int(sizes[layer]) for layer, _ in missing) > 0
    assert not experts.ahead.buffers and not experts.ahead.coming  # the step's end gives them back
    # A window in between reads in place, as before.
    step(experts, 3, 9)
    experts.read_ledger()
    assert experts.counters.disagreement() == ""


def test_copies_that_do_not_happen_show(store, closing, monkeypatch):  # noqa: F811
    """Negative control. A buffer may lie where an earlier one held the same experts, but hardly both do."""
    experts: GpuExperts = closing(placed(store, TOP_K, 0.0, 1.0))
    experts.ahead.least_rows = ROWS
    monkeypatch.setattr(HostCopies, "all", lambda self, pairs: Done())
    assert max(prompt(experts, store)) > 0


def test_without_room_or_without_need_nothing_is_copied(store, closing):  # noqa: F811
    short: GpuExperts = closing(placed(store, TOP_K, 0.0, 1.0, free=lambda: 1000))
    resident: GpuExperts = closing(placed(store, TOP_K, 1.0, 0.0))
    for experts in (short, resident):
        experts.ahead.least_rows = ROWS
        assert prompt(experts, store) == [0, 0] and experts.ahead.moved_bytes == 0
    few: GpuExperts = closing(placed(store, TOP_K, 0.0, 1.0))
    assert prompt(few, store) == [0, 0] and few.ahead.moved_bytes == 0


def test_a_step_that_failed_leaves_nothing_to_the_next(store, closing):  # noqa: F811
    experts: GpuExperts = closing(placed(store, TOP_K, 0.0, 1.0))
    experts.ahead.least_rows = ROWS
    experts.begin_step(ROWS)
    experts.run(0, *call(ROWS, 5))  # and no end
    assert experts.ahead.buffers
    experts.begin_step(ROWS - 1)
    assert not experts.ahead.buffers and experts.ahead.table(0) is None
