"""Experts behind frames, PCIe and the CPU's pool, on the emulator: placement changes no bit of any architecture."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from experts.decoding import greedy, listening
from kernels.product_cases import activations, bank_of, differing, native
from models.made import oracle
from strata.core.errors import EngineError
from strata.experts.adaptive import AdaptSettings
from strata.experts.cache import ExpertCache, Vram
from strata.experts.gpu import GpuExperts
from strata.experts.measure import measured
from strata.experts.placing import TYPICAL_RATES, Sizes, emulated, place_experts
from strata.kernels.experts.naive import experts as naive_experts
from strata.kernels.host_device import HostDevice
from strata.kernels.rendezvous.naive import Way, place
from strata.kernels.views import ExpertBank
from strata.store.experts import ExpertStore
from strata.store.pinned import PinnedStore, plain_memory

ARCHITECTURES = ("qwen3_moe", "qwen3_next", "qwen3_5_moe", "qwen4_exp")
HIDDEN, WIDTH, EXPERTS, TOP_K = 96, 64, 8, 3
SHARES = {"all": (1.0, 0.0), "half": (0.5, 0.2), "tenth": (0.1, 0.5), "none": (0.0, 0.3), "cpu": (0.0, 0.0)}
"""Parts of the experts in VRAM and in pinned memory."""
LIMIT_NS = 20_000_000_000


def placed(store: ExpertStore, top_k: int, frames: float, pinned: float, **options) -> GpuExperts:
    """Experts of `store`, a part of them in frames and a part pinned."""
    free, start = options.pop("free", lambda: 1 << 40), options.pop("start", None)
    per_layer = {layer: len(bank.gate) for layer, bank in store.banks.items()}
    largest = max(blob_bytes(bank) for bank in store.banks.values())
    total = sum(per_layer.values())
    block = 2 * largest
    arena, pin = (-(-int(part * total * largest) // block) * block for part in (frames, pinned))
    adapt = options.pop("adapt", AdaptSettings(every=0))
    sizes = Sizes(arena, 0, pin, adapt=adapt, block_bytes=block, limit_ns=options.pop("limit_ns", LIMIT_NS), **options)
    side = emulated(free)
    pinned_store = PinnedStore(store, side.allocate, 1 << 16)
    return place_experts(HostDevice(), native("portable"), pinned_store, top_k, sizes, side, start)


def blob_bytes(bank: ExpertBank) -> int:
    """Of an expert of the layer, planes at multiples of 256."""
    return sum(-(-max(w.planes[0].nbytes for w in part) // 256) * 256 for part in (bank.gate, bank.up, bank.down))


@pytest.fixture
def closing():
    made: list[GpuExperts] = []

    def keep(experts: GpuExperts) -> GpuExperts:
        made.append(experts)
        return experts

    yield keep
    for experts in made:
        experts.close()


@pytest.fixture
def store():
    rng = np.random.default_rng(4)
    formats = {0: ("Q4_0", "Q8_0", "Q5_1"), 2: ("Q8_0", "Q8_0", "IQ4_NL")}
    return ExpertStore({layer: bank_of(rng, [fmt] * EXPERTS, HIDDEN, WIDTH) for layer, fmt in formats.items()})


def call(rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x, ids, weights"""
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.permutation(EXPERTS)[:TOP_K] for _ in range(rows)]).astype(np.int32)
    return (
        activations(rows, HIDDEN, rng),
        torch.from_numpy(ids),
        torch.from_numpy(rng.random((rows, TOP_K), np.float32)),
    )


def step(experts: GpuExperts, rows: int, seed: int, layers: tuple[int, ...] = (0, 2)) -> list[torch.Tensor]:
    """One step through the layers."""
    experts.begin_step(rows)
    found = [experts.run(layer, *call(rows, seed + layer)) for layer in layers]
    experts.end_step()
    return found


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_tokens_are_equal_at_every_residency(name, closing):
    """Equality 4, all bits of the logits, with the operations of the CPU around the experts."""
    prompt = oracle(name).ids[:9]
    expected = greedy(listening(name), prompt, 4)
    for frames, pinned in SHARES.values():
        runner = listening(name)
        model = runner.model
        experts = closing(placed(model.store, model.shape.top_k, frames, pinned))
        model.experts.inner = experts
        found = greedy(runner, prompt, 4)
        assert all(np.array_equal(a, b) for a, b in zip(expected, found, strict=True)), (frames, pinned)
        experts.read_ledger()
        assert experts.counters.disagreement() == ""


def test_one_flipped_byte_in_a_frame_turns_the_equality_red(closing):
    runner = listening("qwen3_moe")
    prompt = oracle("qwen3_moe").ids[:9]
    expected = greedy(listening("qwen3_moe"), prompt, 3)
    experts = closing(placed(runner.model.store, runner.model.shape.top_k, 1.0, 0.0))
    runner.model.experts.inner = experts
    for memory in experts.cache.blocks.values():
        memory[64] ^= 64
    found = greedy(runner, prompt, 3)
    assert not all(np.array_equal(a, b) for a, b in zip(expected, found, strict=True))


@pytest.mark.parametrize("share", SHARES)
def test_a_call_gives_the_specifications_bits_and_its_counts_prove_themselves(store, closing, share):
    banks = dict(store.banks)
    experts = closing(placed(store, TOP_K, *SHARES[share], pcie_share=0.5))
    expected = np.zeros((3, 3), int)
    distinct = np.zeros((3, 3), int)
    for seed, rows in enumerate((1, 4, 33)):
        for layer, y in zip((0, 2), step(experts, rows, seed), strict=True):
            x, ids, weights = call(rows, seed + layer)
            assert differing(y, naive_experts(x, ids, weights, banks[layer])) == 0
            parts = (ids,) if rows > 32 and experts.reaches(layer) else (ids[:32], ids[32:])
            for part in parts:  # recomputed from the routing and the residency table
                if len(part):
                    kind = experts.split.kind[layer]
                    decided = place(part.numpy(), experts.cache.table.tier(layer), experts.split.tables[kind].numpy())
                    expected[layer] += decided.entries()
                    distinct[layer] += decided.experts()
    experts.read_ledger()
    assert np.array_equal(experts.counters.entries, expected) and np.array_equal(experts.counters.experts, distinct)
    assert expected[0].sum() == expected[2].sum() == (1 + 4 + 33) * TOP_K
    assert experts.counters.disagreement() == ""
    status = experts.status()
    assert [status["hits"], status["misses_pcie"], status["misses_cpu"]] == expected.sum(axis=0).tolist()
    sizes = {layer: blob_bytes(bank) for layer, bank in banks.items()}
    for way, name in enumerate(("vram", "pcie", "cpu")):
        assert status["bytes"][name] == sum(distinct[layer, way] * sizes[layer] for layer in (0, 2))


def test_a_count_that_is_missing_is_noticed(store, closing):
    experts = closing(placed(store, TOP_K, 0.0, 0.0))
    step(experts, 2, 0)
    experts.read_ledger()
    assert experts.counters.disagreement() == ""
    experts.counters.cpu_entries[2] -= 1
    assert "layer 2: the device left 6 entries to the CPU, which computed 5" in experts.counters.disagreement()
    experts.counters.cpu_entries[2] += 1
    experts.counters.rows[0] += 1
    assert "layer 0: 6 entries were sorted, 9 were routed" in experts.counters.disagreement()


def test_a_cpu_that_does_not_answer_fails_the_step_clearly(store, closing):
    experts = closing(placed(store, TOP_K, 0.0, 0.0, limit_ns=20_000_000))
    experts.answerer.stall(True)
    with pytest.raises(EngineError, match=r"waited 0\.02 s in vain for experts that the CPU computes"):
        step(experts, 1, 0)
    experts.answerer.stall(False)
    experts.desk = replace(experts.desk, limit_ns=LIMIT_NS)
    banks = store.banks
    for layer, y in zip((0, 2), step(experts, 1, 5), strict=True):
        x, ids, weights = call(1, 5 + layer)
        assert differing(y, naive_experts(x, ids, weights, banks[layer])) == 0


def test_a_request_that_cannot_be_computed_fails_the_step(store, closing):
    experts = closing(placed(store, TOP_K, 0.0, 0.0))
    experts.answerer.use(0, bank_of(np.random.default_rng(0), [("Q8_0",) * 3] * 2, HIDDEN, WIDTH))
    with pytest.raises(EngineError, match=r"the CPU could not compute .* of 2"):
        step(experts, 2, 0)


def test_the_hot_experts_move_into_frames(store, closing):
    settings = AdaptSettings(every=2, swaps=4, min_gain=0.2)
    start = np.zeros((3, EXPERTS))
    start[0, 4:] = start[2, 4:] = 1  # a profile that is wrong
    experts = closing(placed(store, TOP_K, 0.5, 0.3, adapt=settings, start=start))
    assert {o for o in experts.cache.frames.held if o[0] == 0} == {(0, e) for e in range(4, 8)}
    banks, seen = dict(store.banks), []
    ids = torch.tensor([[0, 1, 2]] * 2, dtype=torch.int32)
    for turn in range(12):
        x, _, weights = call(2, turn)
        experts.begin_step(2)
        found = [(layer, experts.run(layer, x, ids, weights)) for layer in (0, 2)]
        experts.end_step()
        assert all(differing(y, naive_experts(x, ids, weights, banks[layer])) == 0 for layer, y in found)
        seen.append(int(experts.desk.ledger[:, 6].sum()))
    assert seen[0] == 0 and seen[-1] == 6  # all distinct experts of both layers are hits now
    assert experts.swaps >= 6 and experts.status()["swaps"] == experts.swaps
    before = experts.swaps
    for turn in range(6):
        step(experts, 2, 100 + turn, ())
    assert experts.swaps == before
    # What a round goes by: the table's marks are those of the frames, also after an expert has left.
    cache = experts.cache
    assert marked(cache) == set(cache.frames.held) and not cache.busy
    gone = min(cache.frames.held)
    cache.table.drop_frame(gone)
    assert marked(cache) == set(cache.frames.held) - {gone}


def marked(cache: ExpertCache) -> set[tuple[int, ...]]:
    return {tuple(owner) for owner in np.argwhere(cache.table.framed).tolist()}


def test_vram_is_given_back_and_taken_again(store, closing):
    experts = closing(placed(store, TOP_K, 1.0, 0.0))
    full, banks = experts.cache.frames.nbytes, dict(store.banks)
    for budget in (full // 2, 0, full // 2, full):
        found = experts.resize(budget)
        assert full // 2 - experts.cache.frames.block_bytes <= found <= budget if budget else found == 0
        assert sum(memory.nbytes for memory in experts.cache.blocks.values()) == found
        for layer, y in zip((0, 2), step(experts, 3, 7), strict=True):
            x, ids, weights = call(3, 7 + layer)
            assert differing(y, naive_experts(x, ids, weights, banks[layer])) == 0
    assert len(experts.cache.frames.held) == 2 * EXPERTS


def test_a_budget_is_kept_to_a_few_experts(store, closing):
    """Above it nothing is taken, below it less than eight experts' bytes stay unused, whatever a block has."""
    experts = closing(placed(store, TOP_K, 0.0, 0.0))
    largest = int(experts.cache.sizes.max())
    experts.cache.frames.block_bytes = 10 * largest
    for budget in (16 * largest, 9 * largest + 1, 2 * largest, 16 * largest - 1, largest - 1, 0):
        found, cache = experts.resize(budget), experts.cache
        assert budget - 8 * largest < found <= budget
        assert found == sum(memory.nbytes for memory in cache.blocks.values()) == cache.frames.nbytes
        assert len(cache.frames.held) >= found // largest
    whole = Vram(plain_memory, lambda: 1 << 40, lambda: None, 4 * largest)  # an allocator that rounds up
    experts.cache.vram = whole
    experts.cache.frames.block_bytes = 12 * largest
    assert experts.resize(23 * largest) == 20 * largest and experts.resize(3 * largest) == 0


def test_the_arena_stops_where_other_memory_would_be_needed(store, closing):
    """The free figure is read again behind every block."""
    left = [600_000]

    def free() -> int:
        left[0] -= 200_000  # somebody else allocates meanwhile
        return left[0]

    experts = closing(placed(store, TOP_K, 1.0, 0.0, free=free))
    assert len(experts.cache.blocks) == 1 and len(experts.cache.frames.held) == EXPERTS


def test_ways_are_numbered_as_the_ledger_is():
    assert [way.value for way in (Way.FRAME, Way.PCIE, Way.CPU)] == [0, 1, 2]


def test_a_block_goes_when_others_take_the_reserve(store, closing):
    free = [1 << 40]
    experts = closing(placed(store, TOP_K, 1.0, 0.0, free=lambda: free[0], adapt=AdaptSettings(every=1)))
    experts.reserve_bytes = 1 << 20
    blocks, banks = len(experts.cache.blocks), dict(store.banks)
    step(experts, 1, 0)
    assert len(experts.cache.blocks) == blocks
    free[0] = 1 << 18
    for turn in range(2):
        for layer, y in zip((0, 2), step(experts, 2, turn), strict=True):
            x, ids, weights = call(2, turn + layer)
            assert differing(y, naive_experts(x, ids, weights, banks[layer])) == 0
    assert len(experts.cache.blocks) == blocks - 2 and experts.status()["relieved"] == 2


def test_both_sides_are_measured_alone_at_the_start(store, closing):
    experts = closing(placed(store, TOP_K, 0.2, 0.5))
    rates = measured(experts.device, native("portable"), experts)
    for size in experts.split.sizes:
        for line in (rates.cpu(size), rates.pcie(size)):
            assert line.start >= 0 and line.each > 0
    nothing_pinned = closing(placed(store, TOP_K, 0.2, 0.0))
    assert measured(nothing_pinned.device, native("portable"), nothing_pinned).pcie(1 << 20) == TYPICAL_RATES.pcie(
        1 << 20
    )
