"""route: against torch's float64 softmax and topk, and C++ against the specification bit for bit."""

import numpy as np
import pytest
import torch

from kernels.layer_cases import every_way, native, normal, same_bits
from strata.kernels.route import cpu, naive


@pytest.mark.parametrize(("experts", "top_k"), [(1, 1), (4, 4), (33, 2), (100, 8), (512, 10)])
@pytest.mark.parametrize("renormalise", [False, True])
@pytest.mark.parametrize("rows", [1, 70])
def test_formula_and_cpp(experts: int, top_k: int, renormalise: bool, rows: int) -> None:
    logits = 3 * normal(1, rows, experts)
    ids, weights = naive.route(logits, top_k, renormalise)
    p, best = torch.softmax(logits.double(), 1).topk(top_k)
    assert torch.equal(ids.long(), best)
    torch.testing.assert_close(weights.double(), p / p.sum(1, keepdim=True) if renormalise else p, rtol=1e-5, atol=1e-7)
    every_way(lambda n: cpu.route(n, logits, top_k, renormalise), [ids, weights])


def test_ties_go_to_the_lower_id() -> None:
    logits = torch.tensor([[1.0, 2.0, 1.0, 2.0, 1.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    expected = naive.route(logits, 4, True)
    assert expected[0].tolist() == [[1, 3, 0, 2], [0, 1, 2, 3]]
    every_way(lambda n: cpu.route(n, logits, 4, True), expected)


def test_many_equal_logits_keep_their_order() -> None:
    logits = torch.from_numpy(np.random.default_rng(3).integers(0, 4, (30, 77)).astype(np.float32))
    expected = naive.route(logits, 12, False)
    assert (expected[0][:, 1:] < expected[0][:, :-1]).any() and (expected[0][:, 1:] > expected[0][:, :-1]).any()
    every_way(lambda n: cpu.route(n, logits, 12, False), expected)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_logits_end_and_agree(value: float) -> None:
    logits = normal(1, 3, 40)
    logits[1, 37] = value
    logits[2] = value
    ids, weights = naive.route(logits, 4, True)
    assert weights[2].isnan().all() and ids[2].tolist() == [0, 1, 2, 3]
    assert weights[1].isnan().all() == (value != float("-inf")) and weights[0].isfinite().all()
    every_way(lambda n: cpu.route(n, logits, 4, True), [ids, weights])


def test_rows_do_not_see_each_other_and_a_changed_logit_shows() -> None:
    logits, n = normal(1, 40, 64), native("avx2", 2)
    ids, weights = cpu.route(n, logits, 6, True)
    for t in range(40):
        alone = cpu.route(n, logits[t : t + 1], 6, True)
        assert same_bits(alone[0], ids[t : t + 1]) and same_bits(alone[1], weights[t : t + 1])
    logits[7, 5] = 9
    changed = cpu.route(n, logits, 6, True)
    assert changed[0][7, 0] == 5
    assert (changed[1] != weights).any(1).nonzero().flatten().tolist() == [7]


def test_a_wrong_top_k_is_refused() -> None:
    for top_k in (0, 9):
        with pytest.raises(ValueError, match=r"outside 1 \.\. 8"):
            cpu.route(native("portable", 1), normal(1, 2, 8), top_k, True)
