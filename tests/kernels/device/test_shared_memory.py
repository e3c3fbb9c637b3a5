"""Launches fit the shared memory of small GPUs, and give the same bits there."""

import re

import numpy as np
import pytest
import torch

from kernels.product_cases import activations, differing, weight
from strata.kernels.attention.gpu_plan import few_shared
from strata.kernels.device import Kernel
from strata.kernels.device_source import FOLDER
from strata.kernels.experts import launch as experts
from strata.kernels.host_device import HostDevice
from strata.kernels.linear import gpu, lanes, launch, naive, rounds, share, tiles
from strata.kernels.linear import prompt as panels
from strata.kernels.shared_memory import HOST, SharedMemory, shared_memory
from strata.kernels.sparse_attention import prompt
from strata.quant.formats import FORMATS

SMALL, MIDDLE = shared_memory(99 << 10), shared_memory(163 << 10)
COLS = (256, 512, 640, 768, 2048, 2560, 4096, 6144, 10240)
ROWS = (96, 512, 2560, 16384, 248320)
every_size = pytest.mark.parametrize("shared", [SMALL, MIDDLE, HOST], ids=["99", "163", "227"])


@every_size
def test_dense_products_fit(shared: SharedMemory) -> None:
    device = HostDevice(shared=shared)
    device.processors = 84
    met = set()
    for fmt in (fmt for fmt in FORMATS.values() if fmt.kind != "data"):
        for cols in (cols for cols in COLS if cols % fmt.block == 0):
            for rows in ROWS:
                for count in (1, 2, 4, 8, 16, 32):
                    size = launch.bucket(device, fmt, cols, count)
                    found = [launch.shape(device, fmt, cols, rows, 1, size=size)]
                    if at_once := share.shape(device, fmt, cols, rows, size):
                        found.append(at_once[0])
                        met.add("share")
                    if eights := rounds.size_for(device, fmt, cols, count):
                        found.append(rounds.shape(device, fmt, cols, [rows], eights)[0])
                        met.add("rounds")
                    if eights := tiles.size_for(device, fmt, cols, count):
                        found.append(tiles.shape(device, fmt, cols, [rows], eights))
                        met.add("tiles")
                    assert all(shape.threads >= 32 and shape.shared <= shared.dynamic for shape in found), (fmt, cols)
    assert met == {"share", "rounds", "tiles"}


@every_size
def test_experts_fit_with_some_groups_of_lanes(shared: SharedMemory) -> None:
    device = HostDevice(shared=shared)
    device.processors = 84
    for fmt in (fmt for fmt in FORMATS.values() if fmt.kind != "data"):
        for hidden, width in ((2048, 512), (2048, 768), (2560, 640)):
            if hidden % fmt.block or width % fmt.block:
                continue
            for pairs in (8, 10, 80, 512):
                for size in (1, 2):
                    found = [experts.one_shape(device, fmt, hidden, width, pairs, size)]
                    if fmt.kind != "float":
                        found.append(experts.gate_up_shape(device, fmt, hidden, width, pairs, size))
                        found.append(experts.down_shape(device, fmt, width, hidden, pairs, size))
                    assert all(shape.shared <= shared.dynamic for shape in found), (fmt.name, pairs)
                    assert all(shape.threads >= 4 * 32 for shape in found), (fmt.name, pairs, found)


@every_size
def test_attention_fits(shared: SharedMemory) -> None:
    device = HostDevice(shared=shared)
    few = [few_shared(device, dim, scaled) for dim in (64, 128, 256) for scaled in (False, True)]
    listed = prompt.shared_bytes(128, 8)  # heads of more queries take the kernel that needs less
    assert max(few) <= shared.dynamic and listed <= shared.dynamic


@every_size
def test_products_of_prompts_fit(shared: SharedMemory) -> None:
    device = HostDevice(shared=shared)
    for fmt in (fmt for fmt in FORMATS.values() if fmt.kind == "codes"):
        assert panels.unpack_bytes(device, fmt) <= shared.dynamic
        assert panels.shared_bytes(panels.GROUPS[-1], fmt) <= shared.dynamic


@pytest.mark.parametrize("name", ["Q4_K", "Q6_K", "Q8_0", "IQ3_S", "IQ4_NL", "BF16", "F32"])
def test_products_are_equal_with_less_shared_memory(name: str) -> None:
    """The host's tables and slots are those of a large GPU, so only what surrounds them is smaller."""
    device = HostDevice(shared=SharedMemory(99 << 10))
    rng = np.random.default_rng(3)
    for cols, count in ((2560, 1), (2560, 2), (1280, 8)):
        w, x = weight(name, 67, cols, rng), activations(count, cols, rng)
        assert differing(gpu.linear(device, x, [w])[0], naive.linear(x, [w])[0]) == 0, (cols, count)


def test_more_than_a_block_has_is_refused() -> None:
    """Control: a launch for a larger GPU is noticed."""
    with pytest.raises(ValueError, match="probe: 131072 bytes of shared memory, a block has 101376"):
        HostDevice(shared=SMALL).launch(Kernel("probe", "probe"), (1, 1, 1), 32, 128 << 10)
    large, small = HostDevice(), HostDevice(shared=SMALL)
    for device in (large, small):
        device.processors = 84
    assert lanes.shape(large, FORMATS["F32"], 10240, 324, 1)[0].shared > SMALL.dynamic
    x, w = torch.zeros(1, 10240), weight("F32", 324, 10240, np.random.default_rng(1))
    assert lanes.takes(large, x, [w]) and not lanes.takes(small, x, [w])
    with pytest.raises(ValueError, match="no room for a single group of lanes"):
        launch.shape(HostDevice(shared=SharedMemory(20 << 10)), FORMATS["F32"], 10240, 96, 1, size=1)


def test_the_host_is_compiled_with_what_its_shared_memory_says() -> None:
    text = "".join((FOLDER / name).read_text() for name in ("unpack_iq.h", "attention_ring.h", "products_floats.h"))
    found = dict(re.findall(r"#define STRATA_(\w+) (\d+|\(\d+ << 10\))", text))
    sizes = {name: int(value) if value.isdigit() else int(value[1:].split()[0]) << 10 for name, value in found.items()}
    assert tuple(f"-DSTRATA_{name}={sizes[name]}" for name in ("BANKS", "SLOT_BYTES", "INPUT_BYTES")) == HOST.defines
    assert len({SMALL.defines, MIDDLE.defines, HOST.defines}) == 3 and shared_memory(227 << 10) == HOST
