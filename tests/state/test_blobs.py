"""Blobs in RAM lie in pages of their own, which go back with the last of their arrays."""

import mmap
import weakref

import numpy as np
import pytest
import torch

from state.tiny import Tiny, difference, memory
from strata.state.blobs import ALIGNED, blank
from strata.state.contents import StateContents
from strata.state.memory import HOST, Memory

APART = Memory(torch.device("cpu"), apart=True)


def mapping_of(array: np.ndarray) -> mmap.mmap:
    """What the array lies in."""
    owner = array
    while not isinstance(owner, mmap.mmap):
        owner = owner.obj if isinstance(owner, memoryview) else owner.base
    return owner


def test_arrays_of_a_blob_are_zeros_side_by_side() -> None:
    found = blank({"a": 3, "none": 0, "b": 200})
    assert {name: array.tolist() for name, array in found.items()} == {"a": [0] * 3, "none": [], "b": [0] * 200}
    for array in found.values():
        array[:] = 255
        assert array.ctypes.data % ALIGNED == 0
    assert all(array.all() for array in found.values())
    assert mapping_of(found["a"]) is mapping_of(found["b"])
    assert mapping_of(found["a"]) is not mapping_of(blank({"a": 3})["a"])


@pytest.mark.parametrize("sizes", [{}, {"none": 0}])
def test_a_blob_may_be_empty(sizes) -> None:
    assert {name: len(array) for name, array in blank(sizes).items()} == sizes


def test_the_pages_go_with_the_last_array() -> None:
    """Negative control: one view of one array keeps them."""
    found = blank({"a": 5000, "b": 5000})
    kept = weakref.ref(mapping_of(found["a"]))
    view = torch.from_numpy(found["b"])[10:20].view(torch.int16)
    del found
    assert kept() is not None
    del view
    assert kept() is None


@pytest.mark.parametrize(("kv_type", "where"), [("f32", HOST), ("bf16", HOST), ("int8", HOST), ("bf16", APART)])
def test_what_was_gathered_comes_back_bit_for_bit(kv_type, where) -> None:
    tiny = Tiny(kv_type=kv_type)
    states = tiny.states(slots=2, where=where)
    contents = StateContents(states)
    tiny.extend(states, 0, [i % 13 for i in range(150)], size=50)
    before, held = memory(states, 0), list(states.pages.held[0])
    pages, state = contents.gather(held), contents.state_of(0)
    assert sum(array.nbytes for array in pages.values()) == len(held) * contents.page_bytes
    assert sum(array.nbytes for array in state.values()) == contents.state_bytes
    assert len({id(mapping_of(array)) for array in pages.values()}) == 1
    for _, tensor in (*states.planes(), *states.recurrent()):
        tensor.view(torch.uint8).fill_(7)
    assert difference(before, memory(states, 0))
    contents.scatter(held, pages)
    states.length[0] = 0
    contents.begin(0, before["tokens"], state)
    assert not difference(before, memory(states, 0))
