"""route on the emulated device: the specification's experts and weights."""

import pytest
import torch

from kernels.layer_cases import normal, poisoned, same_bits
from strata.kernels.host_device import HostDevice
from strata.kernels.route import gpu, naive


@pytest.mark.parametrize(("rows", "experts", "top_k"), [(1, 1, 1), (3, 16, 4), (2, 100, 7), (5, 512, 10), (2, 33, 33)])
@pytest.mark.parametrize("renormalise", [True, False])
def test_bits_of_the_specification(rows: int, experts: int, top_k: int, renormalise: bool) -> None:
    logits = 3.0 * normal(1, rows, experts)
    with poisoned():
        found = gpu.route(HostDevice(order=5), logits, top_k, renormalise)
    ids, weights = naive.route(logits, top_k, renormalise)
    assert torch.equal(found[0], ids) and same_bits(found[1], weights)


def test_ties_infinities_and_nan() -> None:
    logits = normal(1, 6, 70).round()
    logits[1] = 0.0
    logits[2, 40:] = -float("inf")
    logits[3, 50] = float("nan")
    logits[4, 7] = float("inf")
    logits[5] = -300.0
    logits[5, 60] = 0.0
    found, expected = gpu.route(HostDevice(), logits, 16, True), naive.route(logits, 16, True)
    assert torch.equal(found[0], expected[0]) and same_bits(found[1], expected[1])


def test_another_logit_gives_another_choice() -> None:
    """Negative control."""
    logits = normal(1, 1, 64)
    ids = gpu.route(HostDevice(), logits, 4, True)[0]
    logits[0, 63 if 63 not in ids else 62] = 10.0
    assert not torch.equal(gpu.route(HostDevice(), logits, 4, True)[0], ids)
    with pytest.raises(ValueError, match=r"top_k 65 is outside 1 \.\. 64 experts"):
        gpu.route(HostDevice(), logits, 65, True)
