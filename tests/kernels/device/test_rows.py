"""join, take_rows, completed_blocks and ngram_rows on the emulator: the specification's bits."""

import pytest
import torch

from kernels.device.device_cases import on_device
from kernels.layer_cases import normal, rows_of, same_bits
from strata.kernels.host_device import HostDevice
from strata.kernels.ngram import gpu as ngram_gpu
from strata.kernels.ngram import naive as ngram_naive
from strata.kernels.rows import gpu, naive
from strata.kernels.views import NgramHash

HASHING = NgramHash(((1 << 40) + 7, 31, 1 << 33), (101, 103, 1009, 1013), (0, 101, 204, 1213), 2)


def test_views_are_joined() -> None:
    a, b, c = normal(1, 3, 4, 6), normal(2, 3, 5), normal(3, 3, 2, 3, 8)
    views = [a[:, :, 1:4], b, c[..., ::2], a.transpose(1, 2), c[:, 1]]
    on_device(lambda d: [gpu.join(d, views)], [naive.join(views)])
    assert not same_bits(gpu.join(HostDevice(), views[::-1]), naive.join(views))


def test_rows_are_taken() -> None:
    x, index = normal(1, 7, 33), torch.tensor([6, 0, 0, 3], dtype=torch.int32)
    on_device(lambda d: [gpu.take_rows(d, x, index)], [naive.take_rows(x, index)])


@pytest.mark.parametrize("ratio", [1, 3, 4])
def test_completed_blocks(ratio: int) -> None:
    positions = torch.tensor([0, 2, 3, 7, 8, 2_000_000_000], dtype=torch.int32)
    on_device(lambda d: gpu.completed_blocks(d, positions, ratio), naive.completed_blocks(positions, ratio))


def test_hashes() -> None:
    tokens = torch.randint(0, 9, (3, 12), generator=torch.Generator().manual_seed(1)) * ((1 << 20) + 1)
    tokens[1, 4] = HASHING.end_of_text
    rows = rows_of([(0, 0, 4), (1, 3, 5), (2, 11, 1)])
    expected = ngram_naive.ngram_rows(tokens, rows, HASHING)
    on_device(lambda d: [ngram_gpu.ngram_rows(d, tokens, rows, HASHING)], [expected])
    tokens[1, 4] += 1
    changed = ngram_gpu.ngram_rows(HostDevice(), tokens, rows, HASHING)
    assert (changed != expected).any(1).tolist() == [False] * 5 + [True] * 3 + [False] * 2


def test_what_does_not_fit_is_refused() -> None:
    device = HostDevice()
    with pytest.raises(ValueError, match="float32 views of 3 rows on cpu"):
        gpu.join(device, [normal(1, 3, 4), normal(1, 2, 4)])
    with pytest.raises(ValueError, match="ratio 0"):
        gpu.completed_blocks(device, torch.zeros(1, dtype=torch.int32), 0)
    with pytest.raises(ValueError, match="take_rows: index"):
        gpu.take_rows(device, normal(1, 3, 4), torch.zeros(2, dtype=torch.int64))
