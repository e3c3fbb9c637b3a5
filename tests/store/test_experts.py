"""Experts as views of a file, and as copies."""

import pytest
import torch

from models.made import load, logits_of, ops_of, oracle, path_of, runner_of, same_bits
from strata.core.errors import EngineError
from strata.core.window import Window
from strata.kernels.views import ExpertBank, Weight
from strata.quant.formats import FORMATS
from strata.store.experts import ALIGNMENT, ExpertStore, bank_bytes


def weight(name, rows, cols, *scales):
    fmt = FORMATS[name]
    data = torch.randint(0, 255, (rows, fmt.row_bytes(cols)), dtype=torch.uint8)
    return Weight(fmt, rows, cols, (data, *scales), 1.5)


def bank(count=3):
    gate = tuple(weight("FP8_BLOCK", 130, 200, torch.rand(2, 2)) for _ in range(count))
    up = tuple(weight("Q8_0", 130, 224) for _ in range(count))
    down = tuple(weight("F16", 200, 130) for _ in range(count))
    return ExpertBank(gate, up, down)


def test_bytes_are_counted_whatever_the_planes_hold():
    """A plane of float32 scales has four bytes a value."""
    assert bank_bytes(bank(1)) == (130 * 200 + 16) + 130 * (224 // 32 * 34) + 2 * 200 * 130


def test_an_arena_holds_the_same_values_in_aligned_places_of_its_own():
    before = bank()
    store, said = ExpertStore({4: before, 7: bank(1)}), []
    total = store.nbytes
    store.to_arena(lambda done, of: said.append((done, of)))
    after = store.bank(4)
    assert said == [(bank_bytes(before), total), (total, total)] and store.nbytes == total
    for old, new in zip(before.gate + before.up + before.down, after.gate + after.up + after.down, strict=True):
        assert (new.format, new.rows, new.cols, new.scale) == (old.format, old.rows, old.cols, old.scale)
        for a, b in zip(old.planes, new.planes, strict=True):
            assert a.dtype == b.dtype and torch.equal(a, b) and b.is_contiguous()
            assert b.data_ptr() % ALIGNMENT == after.gate[0].planes[0].data_ptr() % ALIGNMENT
            assert a.data_ptr() != b.data_ptr()
    before.gate[0].planes[0].zero_()
    assert bool(after.gate[0].planes[0].any())


@pytest.mark.parametrize("name", ["qwen3_moe", "mixtral"])
def test_answers_do_not_depend_on_where_the_bytes_lie(name):
    ids = oracle(name).ids[:12]
    runner = runner_of(path_of(name, "gguf"), ops_of())
    runner.model.store.to_arena(lambda done, of: None)
    found = runner.forward([Window(0, 0, tuple(ids), len(ids))])
    assert same_bits(found, logits_of(path_of(name, "gguf"), ids))


def test_a_layer_without_experts_is_said():
    store = load(path_of("llama", "gguf")).store
    assert store.nbytes == 0
    with pytest.raises(EngineError, match="layer 2 has no experts"):
        store.bank(2)
