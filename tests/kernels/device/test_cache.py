"""cache_write and pool_blocks on the emulator: the specification's bits."""

import pytest
import torch

from kernels.device.device_cases import on_device
from kernels.layer_cases import empty_plane, normal, paged, same_bits
from strata.kernels.cache import gpu, naive
from strata.kernels.host_device import HostDevice
from strata.kernels.views import KvType, PagedPlane

TABLE = torch.tensor([[3, 0], [1, 5]], dtype=torch.int32)
SLOTS = torch.tensor([0, 1, 1, 0], dtype=torch.int32)
ENTRIES = torch.tensor([0, 5, -1, 7], dtype=torch.int32)


def written(plane: PagedPlane) -> list[torch.Tensor]:
    data = plane.data.float() if plane.data.dtype is not torch.int8 else plane.data
    return [data] if plane.scales is None else [data, plane.scales]


@pytest.mark.parametrize("kv_type", ["f32", "bf16", "int8"])
@pytest.mark.parametrize("entry", [(96,), (3, 64), (2, 320)])
def test_entries_are_written(kv_type: KvType, entry: tuple[int, ...]) -> None:
    x = normal(1, 4, *entry)
    x[0].view(-1)[:3] = torch.tensor([float("nan"), 1 + 2**-8, 3e38])
    x[1].view(-1)[:32] = 0
    plane = empty_plane(TABLE, 6, 4, entry, kv_type)
    naive.cache_write(plane, SLOTS, ENTRIES, x)

    def run(device: HostDevice) -> list[torch.Tensor]:
        here = empty_plane(TABLE, 6, 4, entry, kv_type)
        gpu.cache_write(device, here, SLOTS, ENTRIES, x)
        return written(here)

    on_device(run, written(plane))
    other = empty_plane(TABLE, 6, 4, entry, kv_type)
    gpu.cache_write(HostDevice(), other, SLOTS, ENTRIES, x.flip(-1).contiguous())
    assert not all(map(torch.equal, written(other), written(plane)))


def test_blocks_are_pooled() -> None:
    raw = paged(1, [13, 8], 4, (48,))
    slots, blocks = torch.tensor([0, 1, 0, 0], dtype=torch.int32), torch.tensor([0, 1, -1, 3], dtype=torch.int32)
    expected = naive.pool_blocks(raw, slots, blocks, 3)
    on_device(lambda d: [gpu.pool_blocks(d, raw, slots, blocks, 3)], [expected])
    assert not same_bits(gpu.pool_blocks(HostDevice(), raw, slots, blocks.flip(0), 3), expected)


def test_what_does_not_fit_is_refused() -> None:
    device, plane = HostDevice(), empty_plane(TABLE, 6, 4, (48,), "bf16")
    with pytest.raises(ValueError, match="cache_write: x"):
        gpu.cache_write(device, plane, SLOTS, ENTRIES, normal(1, 4, 47))
    with pytest.raises(ValueError, match="expected a plane of float32, found bf16"):
        gpu.pool_blocks(device, plane, SLOTS, ENTRIES, 2)
    with pytest.raises(ValueError, match="ratio 0"):
        gpu.pool_blocks(device, plane, SLOTS, ENTRIES, 0)
    with pytest.raises(ValueError, match="int8 needs scales"):
        gpu.cache_write(device, empty_plane(TABLE, 6, 4, (40,), "int8"), SLOTS, ENTRIES, normal(1, 4, 40))
