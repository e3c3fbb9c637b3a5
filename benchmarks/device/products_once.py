"""Starts each kernel of windows' products once, in the shapes of Flash-Next, for a profiler. The extensions are built.

ncu --clock-control none --section WarpStateStats --section SchedulerStats -k regex:"linear|gate_up|one_matrix|packed" \
    python benchmarks/device/products_once.py
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import numpy as np
import torch
from products import HIDDEN, TOP_K, copies, small_bank

from kernels.product_data import weight
from strata.kernels.devices import open_device
from strata.kernels.experts import gpu as experts_gpu
from strata.kernels.experts.table import table_of
from strata.kernels.linear import gpu as linear_gpu
from strata.kernels.views import ExpertBank

DENSE = (
    ("Q6_K", 16384, 2560, 1),
    ("Q6_K", 2560, 6144, 1),
    ("Q6_K", 16384, 2560, 8),
    ("BF16", 324, 10240, 1),
    ("BF16", 10240, 320, 1),
)
"""Format, rows, columns, rows of x."""


def main() -> None:
    device, rng = open_device("cuda", Path(tempfile.gettempdir()) / "strata-device-kernels"), np.random.default_rng(1)
    where = device.torch_device
    for name, rows, cols, count in DENSE:
        linear_gpu.linear(device, torch.randn(count, cols, device=where), [weight(name, rows, cols, rng)])
    one = small_bank(rng, "IQ3_S", "IQ4_NL", 1)
    experts = 8 * TOP_K
    bank = ExpertBank(*(tuple(copies(device, w, experts)) for w in (one.gate[0], one.up[0], one.down[0])))
    table = table_of(device, bank)
    for rows in (1, 8):
        ids = torch.arange(rows * TOP_K, dtype=torch.int32, device=where).view(rows, TOP_K)
        x, factors = torch.randn(rows, HIDDEN, device=where), torch.rand(rows, TOP_K, device=where)
        experts_gpu.experts(device, x, ids, factors, table)
    device.synchronize()


if __name__ == "__main__":
    main()
