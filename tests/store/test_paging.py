"""Missing pages of mapped experts are counted, and brought in beside other work."""

import os

import pytest
import torch

from strata.checkpoint.mapped import MappedFile
from strata.core.errors import EngineError
from strata.kernels.experts import cpu as experts_cpu
from strata.kernels.native import Native
from strata.kernels.views import ExpertBank, Weight
from strata.quant.formats import FORMATS
from strata.store.experts import ExpertStore
from strata.store.paging import Paging, expert_spans
from strata.store.warm import missing_bytes

pytestmark = pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")

EXPERTS, ROWS, COLS = 8, 256, 512
NBYTES = ROWS * COLS * 4
"""Of one matrix: half a MiB."""


def bank_of(mapped, first):
    def weights(kind):
        found = []
        for expert in range(EXPERTS):
            at = first + (expert * 3 + kind) * NBYTES
            plane = torch.from_numpy(mapped.view(at, NBYTES, "expert")).view(ROWS, -1)
            found.append(Weight(FORMATS["F32"], ROWS, COLS, (plane,)))
        return tuple(found)

    return ExpertBank(weights(0), weights(1), weights(2))


@pytest.fixture
def mapped(tmp_path):
    path = tmp_path / "experts"
    path.write_bytes(os.urandom(2 * EXPERTS * 3 * NBYTES))
    return MappedFile(path)


@pytest.fixture
def store(mapped):
    return ExpertStore({0: bank_of(mapped, 0), 3: bank_of(mapped, EXPERTS * 3 * NBYTES)})


def drop(mapped, store):
    """Let the system forget the pages; skips where it does not."""
    with mapped.path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if not Paging(store).missing():
        pytest.skip("the file system keeps its pages")


def missing(store, layer, expert):
    return missing_bytes(expert_spans(store.bank(layer), expert))


def test_an_experts_bytes_are_those_of_its_planes(store):
    spans = expert_spans(store.bank(3), 2)
    assert sum(span.nbytes for span in spans) == 3 * NBYTES
    assert spans[0].address == store.bank(3).gate[2].planes[0].data_ptr()


def test_what_was_asked_for_is_there_afterwards_and_nothing_else(mapped, store):
    drop(mapped, store)
    paging = Paging(store)
    before = missing(store, 0, 6)
    paging.ask([(3, 1), (0, 2), (3, 7), (0, 0), (3, 4)])
    paging.settle(wait=True)
    assert [missing(store, *pair) for pair in ((3, 1), (0, 2), (3, 7), (0, 0), (3, 4))] == [0] * 5
    assert before > NBYTES and missing(store, 0, 6) > 0
    assert paging.asked == 5


def test_the_mean_that_is_missing(mapped, store):
    paging = Paging(store)
    for layer in (0, 3):
        paging.ask([(layer, expert) for expert in range(EXPERTS)])
        paging.settle(wait=True)
    assert paging.missing() == 0
    drop(mapped, store)
    assert paging.missing() > NBYTES
    assert Paging(ExpertStore({})).missing() == 0


def test_a_file_that_was_cut_is_an_error(mapped, store):
    os.truncate(mapped.path, 1 << 20)
    paging = Paging(store)
    paging.ask([(3, 7)])
    with pytest.raises(EngineError, match="the model's file cannot be read"):
        paging.settle(wait=True)


def test_what_was_not_in_memory_when_it_was_computed_is_counted(mapped, store):
    bank = store.bank(3)
    down = tuple(Weight(w.format, COLS, ROWS, (w.planes[0].view(COLS, -1),)) for w in bank.down)
    bank = ExpertBank(bank.gate, bank.up, down)

    def call(native, *chosen):
        ids = torch.tensor([chosen], dtype=torch.int32)
        experts_cpu.experts(native, torch.zeros(1, COLS), ids, torch.ones(1, 2), bank)
        return native.missing_bytes

    drop(mapped, store)
    cold, each = Native(1), 6 * NBYTES
    assert each / 2 < call(cold, 2, 5) <= cold.expert_bytes == each
    warm = Native(1)
    for _ in range(126):
        assert call(warm, 2, 5) == 0
    drop(mapped, store)  # what was touched stays
    call(warm, 2, 5)
    assert 127 * each / 2 < call(warm, 0, 7) <= 127 * each, "one call of 127 stands for all since the last one"
