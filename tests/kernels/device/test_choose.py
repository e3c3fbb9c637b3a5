"""Tokens on the emulated device: those of sampling/sample.py with choose/naive.py, for every kind of wish."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from kernels.layer_cases import normal, poisoned
from strata.core.errors import EngineError
from strata.kernels.choose import gpu, naive
from strata.kernels.host_device import HostDevice
from strata.kernels.views import DrawRows
from strata.sampling.history import TokenCounts
from strata.sampling.params import SamplingParams
from strata.sampling.philox import uniform
from strata.sampling.sample import sample

WISHES = [
    SamplingParams(),
    SamplingParams(temperature=1.0, seed=1),
    SamplingParams(temperature=0.7, top_k=1, seed=2),
    SamplingParams(temperature=1.3, top_k=40, seed=3),
    SamplingParams(temperature=1.0, top_p=0.5, seed=4),
    SamplingParams(temperature=1.0, top_p=0.0, seed=5),
    SamplingParams(temperature=2.0, top_k=100, top_p=0.9, min_p=0.02, seed=6),
    SamplingParams(temperature=1e-60, seed=7),
    SamplingParams(temperature=5.0, min_p=0.3, seed=8),
    SamplingParams(temperature=1.0, top_k=5000, top_p=0.99999, seed=9),
]


def wishes(params: list[SamplingParams], position: int) -> DrawRows:
    rows = gpu.draw_rows(HostDevice(), len(params))
    for i, p in enumerate(params):
        rows.temperature[i], rows.top_k[i] = p.temperature, p.top_k
        rows.top_p[i], rows.min_p[i], rows.uniform[i] = p.top_p, p.min_p, uniform(p.seed, position)
    return rows


def expected(logits: torch.Tensor, params: SamplingParams, position: int) -> int:
    def choose(row: np.ndarray, *wish: float) -> int:
        return naive.choose(torch.from_numpy(row), *wish)  # type: ignore[arg-type]

    try:
        return sample(logits.numpy(), params, position, TokenCounts(), choose).token
    except EngineError:
        return -1


def agree(logits: torch.Tensor, params: list[SamplingParams], position: int) -> None:
    with poisoned():
        found = gpu.draw(HostDevice(order=3), logits, wishes(params, position))
    assert found.tolist() == [expected(row, p, position) for row, p in zip(logits, params, strict=True)]


@pytest.mark.parametrize("count", [1, 7, 1000, 3001])
def test_tokens_of_the_specification(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(gpu, "PIECE", 640)
    for position in (0, 77):
        agree(3.0 * normal(position + count, len(WISHES), count), WISHES, position)


def test_ties_zeros_and_masked_tokens() -> None:
    logits = (2.0 * normal(1, len(WISHES), 400)).round() / 2.0
    logits[:, ::7] = -math.inf
    logits[:, 1::11] = -0.0
    for position in range(3):
        agree(logits, WISHES, position)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_choice_is_minus_one(value: float) -> None:
    logits = normal(1, 2, 300)
    logits[:, 299] = value
    if value == -math.inf:
        logits[:] = value
    agree(logits, [WISHES[0], WISHES[1]], 5)
    assert gpu.draw(HostDevice(), logits, wishes([WISHES[0], WISHES[1]], 5)).tolist() == [-1, -1]


def test_greedy_needs_no_scratch() -> None:
    logits = normal(1, 3, 500)
    logits[1, 100] = logits[1, 400] = 9.0
    found = gpu.draw(HostDevice(), logits, wishes([SamplingParams()] * 3, 0), sampled=False)
    assert found.tolist() == logits.argmax(1).tolist() and found[1] == 100


def test_a_moved_mark_moves_the_token() -> None:
    """Negative control: the draw hangs on its uniform number, and choose on the device is Ops.choose."""
    logits, device = normal(1, 500), HostDevice()
    tokens = [gpu.choose(device, logits, 1.0, 0, 1.0, 0.0, m / 16) for m in range(16)]
    assert tokens == [naive.choose(logits, 1.0, 0, 1.0, 0.0, m / 16) for m in range(16)]
    assert len(set(tokens)) > 8
    for bad, temperature in ((torch.tensor([math.nan, 1.0]), 1.0), (torch.ones(2), 0.0)):
        with pytest.raises(ValueError, match="choose"):
            gpu.choose(device, bad, temperature, 0, 1.0, 0.0, 0.5)


@pytest.mark.parametrize("tokens", [torch.zeros(2, dtype=torch.int32), torch.zeros(1), torch.zeros(1, device="meta")])
def test_tokens_go_where_there_is_room_for_them(tokens: torch.Tensor) -> None:
    rows = replace(wishes([SamplingParams()], 0), tokens=tokens)
    with pytest.raises(ValueError, match=r"draw: tokens: expected contiguous torch\.int32"):
        gpu.draw(HostDevice(), normal(1, 1, 40), rows)
