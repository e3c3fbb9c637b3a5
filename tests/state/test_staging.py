"""Bytes of a device come to the host whole, whatever their size and however they are cut."""

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest
import torch

from strata.state.staging import SLICE, Arriving, Staging

CPU = torch.device("cpu")
"""Stands for a device: the same pieces, buffers and threads, in memory that is not pinned."""


def wait(carried: list[Future[None]]) -> None:
    for future in carried:
        future.result()


def numbered(count: int) -> torch.Tensor:
    return torch.arange(count, dtype=torch.int32)


@pytest.mark.parametrize("piece", [4, 100, 1 << 12, 3 * SLICE + 4])
def test_every_byte_comes_once(piece: int) -> None:
    tensors = [numbered(7), numbered(5000).view(100, 50), numbered(0), numbered(1000).to(torch.bfloat16)]
    if piece > SLICE:
        tensors.append(numbered(SLICE))
    targets = [np.full(tensor.nbytes, 255, np.uint8) for tensor in tensors]
    wait(Staging(CPU, piece, 3).bring(zip(targets, tensors, strict=True)))
    for target, tensor in zip(targets, tensors, strict=True):
        assert target.tobytes() == tensor.view(torch.uint8).numpy().tobytes()


def test_a_slice_of_rows_brings_only_those() -> None:
    tensor, target = numbered(60).view(6, 10), np.zeros(40, np.uint8)
    wait(Staging(CPU, 16).bring([(target, tensor[2:3])]))
    assert target.view(np.int32).tolist() == list(range(20, 30))


def test_one_after_the_other_with_the_same_buffers() -> None:
    staging = Staging(CPU, 64, 2)
    for seed in range(3):
        tensor, target = numbered(100) * seed, np.zeros(400, np.uint8)
        wait(staging.bring([(target, tensor)]))
        assert target.view(np.int32).tolist() == tensor.tolist()


def test_sizes_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="8 bytes of a device for 12 of the host"):
        Staging(CPU).bring([(np.zeros(12, np.uint8), numbered(2))])


def test_who_reads_a_blob_waits_for_its_bytes() -> None:
    tensor, target, held = numbered(300), np.zeros(1200, np.uint8), Event()
    staging = Staging(CPU, 400)
    staging.start().submit(held.wait)
    blob = Arriving({"a": target}, [staging.start().submit(held.wait), *staging.bring([(target, tensor)])])
    reader = ThreadPoolExecutor(1).submit(lambda: blob["a"].copy())
    assert list(blob) == ["a"] and len(blob) == 1
    assert not reader.done()
    held.set()
    assert reader.result().view(np.int32).tolist() == tensor.tolist()


def test_a_copy_that_failed_is_heard_of_by_every_reader() -> None:
    """Negative control: nobody takes what did not arrive for the bytes."""
    failed: Future[None] = Future()
    failed.set_exception(MemoryError("no room"))
    blob = Arriving({"a": np.zeros(4, np.uint8)}, [failed])
    for _ in range(2):
        with pytest.raises(MemoryError, match="no room"):
            blob["a"]
