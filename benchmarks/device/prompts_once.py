"""Starts each kernel of prompts once, in the shapes of Flash-Next, for a profiler. The extensions are built already.

ncu --clock-control none --section WarpStateStats --section SchedulerStats -k regex:"prompt_products|delta_prompt" \
    python benchmarks/device/prompts_once.py
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import numpy as np
import torch
from mixers import rows_of, rows_to

from kernels.product_data import weight
from strata.kernels.delta_rule import prompt as delta_prompt
from strata.kernels.devices import open_device
from strata.kernels.linear import prompt as linear_prompt

ROWS, HEADS, WIDTH = 2048, 48, 10240


def main() -> None:
    device, rng = open_device("cuda", Path(tempfile.mkdtemp())), np.random.default_rng(1)
    where = device.torch_device
    for name, lines in (("Q8_0", 2560), ("F32", 512)):
        linear_prompt.linear(device, torch.randn(ROWS, 2560, device=where), [weight(name, lines, 2560, rng)])
    qkv, state = torch.randn(512, WIDTH, device=where), torch.randn(1, HEADS, 128, 128, device=where)
    beta, decay = (torch.rand(512, HEADS, device=where) for _ in range(2))
    rows = rows_to(device, rows_of([(0, 0, 512)]))
    delta_prompt.delta_rule(device, qkv, beta, decay, state, rows, 16, "grouped", 1e-6)
    device.synchronize()


if __name__ == "__main__":
    main()
