"""Draws against a plain reference, against hand-computed values and against their exact distribution."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from reference.sampling import adjusted, distribution
from strata.core.errors import EngineError, RequestError
from strata.kernels.choose import naive
from strata.sampling.history import TokenCounts
from strata.sampling.params import SamplingParams
from strata.sampling.philox import uniform
from strata.sampling.sample import Draw
from strata.sampling.sample import adjusted as changed
from strata.sampling.sample import sample as sample_by


def row(*values: float) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


def random_row(size: int, seed: int = 0, scale: float = 3.0) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_normal(size) * scale).astype(np.float32)


def history_of(prompt: list[int], answer: list[int]) -> TokenCounts:
    history = TokenCounts(prompt)
    for token in answer:
        history.append(token)
    return history


def choose(
    logits: NDArray[np.float32], temperature: float, top_k: int, top_p: float, min_p: float, uniform: float
) -> int:
    return naive.choose(torch.from_numpy(logits), temperature, top_k, top_p, min_p, uniform)


def sample(logits: NDArray[np.float32], params: SamplingParams, position: int, history: TokenCounts) -> Draw:
    return sample_by(logits, params, position, history, choose)


def kept(
    logits: NDArray[np.float32], params: SamplingParams, history: TokenCounts
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(ids, probabilities) that a draw chooses from."""
    values = torch.from_numpy(changed(logits, params, history))
    ids, weights = naive.kept(values, params.temperature, params.top_k, params.top_p, params.min_p)
    return ids, weights / weights.sum()


EMPTY = TokenCounts()

PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.25, 1.0, 1.75]),
    top_k=st.sampled_from([0, 1, 3, 7, 1000]),
    top_p=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.1, 1.0]),
    repeat_penalty=st.sampled_from([1.0, 1.5, 0.5]),
    presence_penalty=st.sampled_from([0.0, 1.25, -0.5]),
    frequency_penalty=st.sampled_from([0.0, 0.75]),
    logit_bias=st.sampled_from([(), ((0, 2.5), (3, -1000.0))]),
    seed=st.integers(0, 2**64 - 1),
)
# Small halves, so that ties are frequent; -inf as a mask leaves it.
ROWS = st.lists(st.sampled_from([-2.0, -0.5, 0.0, 0.5, 1.0, 3.0, -math.inf]), min_size=4, max_size=20)
SEEN = st.lists(st.integers(0, 3), max_size=5)


@given(ROWS, PARAMS, SEEN, SEEN)
def test_the_kept_tokens_and_their_probabilities_equal_the_reference(
    values: list[float], params: SamplingParams, prompt: list[int], answer: list[int]
) -> None:
    assume(any(math.isfinite(value) for value in values))
    expected = distribution(adjusted(values, params, prompt, answer), params)
    ids, probabilities = kept(row(*values), params, history_of(prompt, answer))
    assert ids.tolist() == list(expected)
    assert probabilities.tolist() == pytest.approx(list(expected.values()), rel=1e-6, abs=1e-12)


@given(ROWS, PARAMS, st.integers(0, 2**40))
def test_the_draw_is_the_inverse_of_the_cumulated_distribution(
    values: list[float], params: SamplingParams, position: int
) -> None:
    assume(any(math.isfinite(value) for value in values))
    ids, probabilities = kept(row(*values), params, EMPTY)
    token = sample(row(*values), params, position, EMPTY).token
    index = ids.tolist().index(token)
    mark = uniform(params.seed, position)
    assert probabilities[index] > 0
    assert probabilities[:index].sum() <= mark + 1e-12
    assert probabilities[: index + 1].sum() >= mark - 1e-12


def chi_square(logits: NDArray[np.float32], params: SamplingParams, against: dict[int, float], draws: int) -> float:
    """Chi-square of `draws` draws against `against`, tokens expected under 5 times pooled; infinite for others."""
    counts = Counter(sample(logits, params, position, EMPTY).token for position in range(draws))
    if any(token not in against for token in counts):
        return math.inf
    cells = [(counts[token], draws * p) for token, p in against.items() if draws * p >= 5]
    rest = [(counts[token], draws * p) for token, p in against.items() if draws * p < 5]
    if rest:
        cells.append((sum(seen for seen, _ in rest), sum(mean for _, mean in rest)))
    statistic = sum((seen - mean) ** 2 / mean for seen, mean in cells)
    freedom = len(cells) - 1
    # Wilson and Hilferty's normal approximation turns the statistic into a standard score.
    return ((statistic / freedom) ** (1 / 3) - 1 + 2 / (9 * freedom)) / math.sqrt(2 / (9 * freedom))


TRUNCATIONS = [
    SamplingParams(temperature=1.0, seed=1),
    SamplingParams(temperature=0.6, seed=2),
    SamplingParams(temperature=1.0, top_k=8, seed=3),
    SamplingParams(temperature=1.2, top_p=0.8, seed=4),
    SamplingParams(temperature=1.0, min_p=0.05, seed=5),
    SamplingParams(temperature=0.9, top_k=20, top_p=0.95, min_p=0.02, seed=6),
]


@pytest.mark.parametrize("params", TRUNCATIONS)
def test_draws_follow_the_exact_truncated_distribution(params: SamplingParams) -> None:
    logits = random_row(40, seed=9, scale=1.5)
    exact = distribution([float(x) for x in logits], params)
    assert chi_square(logits, params, exact, 4000) < 3.1  # 0.1% point


def test_the_distribution_check_goes_red_for_a_slightly_wrong_one() -> None:
    logits = random_row(40, seed=9, scale=1.5)
    params = SamplingParams(temperature=1.0, seed=1)
    warmer = distribution([float(x) for x in logits], SamplingParams(temperature=1.15))
    narrower = distribution([float(x) for x in logits], SamplingParams(temperature=1.0, top_k=39))
    assert chi_square(logits, params, warmer, 4000) > 3.1
    assert chi_square(logits, params, narrower, 4000) == math.inf


def test_defaults_are_greedy_and_neutral() -> None:
    logits = random_row(300, seed=2)
    history = history_of(list(range(50)), list(range(100)))
    assert sample(logits, SamplingParams(), 0, history).token == int(np.argmax(logits))
    ids, probabilities = kept(logits, SamplingParams(temperature=1.0), history)
    exact = np.exp(logits.astype(np.float64))
    assert ids.tolist() == list(range(300))
    assert np.allclose(probabilities, exact / exact.sum(), rtol=1e-6, atol=0)


def test_greedy_takes_the_lower_id_of_equals() -> None:
    assert sample(row(1, 3, 2, 3), SamplingParams(), 0, EMPTY).token == 1


def test_top_k_keeps_the_lower_ids_of_equals() -> None:
    ids, _ = kept(row(5, 1, 1, 1, 7), SamplingParams(temperature=1.0, top_k=3), EMPTY)
    assert ids.tolist() == [0, 1, 4]


def test_top_p_keeps_the_token_that_crosses_the_border() -> None:
    logits = np.log(np.array([0.1, 0.5, 0.15, 0.25])).astype(np.float32)
    for top_p, expected in [(0.0, [1]), (0.45, [1]), (0.7, [1, 3]), (0.8, [1, 2, 3]), (0.95, [0, 1, 2, 3])]:
        ids, _ = kept(logits, SamplingParams(temperature=1.0, top_p=top_p), EMPTY)
        assert ids.tolist() == expected, top_p


def test_min_p_is_relative_to_the_largest() -> None:
    logits = np.log(np.array([0.1, 0.5, 0.15, 0.25])).astype(np.float32)
    ids, _ = kept(logits, SamplingParams(temperature=1.0, min_p=0.29), EMPTY)
    assert ids.tolist() == [1, 2, 3]


def penalised(params: SamplingParams, values: list[float], prompt: list[int], answer: list[int]) -> list[float]:
    """Log-odds of each token against the last, which no penalty in these tests touches."""
    _, p = kept(row(*values), params, history_of(prompt, answer))
    return [math.log(x / p[-1]) + values[-1] for x in p]


def test_repeat_penalty_divides_positive_and_multiplies_negative_logits_of_prompt_and_answer() -> None:
    params = SamplingParams(temperature=1.0, repeat_penalty=2.0)
    got = penalised(params, [3.0, -1.0, 0.5, 1.5], prompt=[0, 0], answer=[1, 1, 1])
    assert got == pytest.approx([1.5, -2.0, 0.5, 1.5])


def test_presence_and_frequency_penalties_count_the_answer_only() -> None:
    params = SamplingParams(temperature=1.0, presence_penalty=0.5, frequency_penalty=0.25)
    got = penalised(params, [3.0, -1.0, 0.5, 1.5], prompt=[2, 2], answer=[0, 1, 1, 1])
    assert got == pytest.approx([3.0 - 0.75, -1.0 - 1.25, 0.5, 1.5])


def test_bias_is_added_after_the_penalties() -> None:
    params = SamplingParams(temperature=1.0, repeat_penalty=2.0, logit_bias=((0, 1.0), (1, -4.0)))
    assert penalised(params, [3.0, 1.0, 0.5], prompt=[0], answer=[]) == pytest.approx([2.5, -3.0, 0.5])


def test_penalties_turn_a_greedy_choice() -> None:
    params = SamplingParams(presence_penalty=2.0)
    assert sample(row(3, 2, 0), params, 0, history_of([0], [])).token == 0
    assert sample(row(3, 2, 0), params, 0, history_of([], [0])).token == 1


def test_a_draw_depends_on_its_own_row_seed_and_position_only() -> None:
    rows = [random_row(64, seed=i) for i in range(12)]
    params = SamplingParams(temperature=1.0, seed=77)
    forwards = [sample(x, params, i, EMPTY).token for i, x in enumerate(rows)]
    backwards = [sample(rows[i], params, i, EMPTY).token for i in reversed(range(12))]
    assert forwards == backwards[::-1]
    assert forwards != [sample(x, params, i + 1, EMPTY).token for i, x in enumerate(rows)]
    assert forwards != [sample(x, SamplingParams(temperature=1.0, seed=78), i, EMPTY).token for i, x in enumerate(rows)]


def test_logprobs_are_of_the_untouched_logits() -> None:
    logits = row(1.0, 3.0, 2.0, 3.0)
    params = SamplingParams(temperature=0.3, top_k=1, logit_bias=((0, 50.0),), logprobs=3)
    exact = logits - math.log(sum(math.exp(x) for x in logits))
    draw = sample(logits, params, 0, EMPTY)
    assert draw.token == 0
    assert draw.logprob == pytest.approx(float(exact[0]), abs=1e-6)
    assert [token for token, _ in draw.top] == [1, 3, 2]
    assert [value for _, value in draw.top] == pytest.approx([float(exact[i]) for i in (1, 3, 2)], abs=1e-6)


def test_logprobs_are_reported_only_when_asked_for() -> None:
    logits = row(1.0, 3.0)
    assert sample(logits, SamplingParams(), 0, EMPTY).logprob is None
    only = sample(logits, SamplingParams(logprobs=0), 0, EMPTY)
    assert only.logprob == pytest.approx(-math.log1p(math.exp(-2)))
    assert only.top == ()
    assert len(sample(logits, SamplingParams(logprobs=20), 0, EMPTY).top) == 2


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((0.0, math.nan, 1.0), "position 31: token 1 of 3 has nan"),
        ((0.0, 1.0, math.inf), "position 31: token 2 of 3 has inf"),
        ((-math.inf, math.nan), "position 31: token 1 of 2 has nan"),
        ((-math.inf, -math.inf), "position 31: all 2 are -inf"),
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_without_a_choice_fail_with_the_position(
    values: tuple[float, ...], words: str, temperature: float
) -> None:
    with pytest.raises(EngineError, match=words):
        sample(row(*values), SamplingParams(temperature=temperature), 31, EMPTY)


def test_masked_tokens_are_never_drawn() -> None:
    logits = row(-math.inf, 0.0, -math.inf, 0.0)
    params = SamplingParams(temperature=1.0, seed=5)
    assert {sample(logits, params, i, EMPTY).token for i in range(64)} == {1, 3}


def test_a_tiny_temperature_is_greedy_and_a_large_one_flat() -> None:
    logits = random_row(1000, seed=4)
    cold = SamplingParams(temperature=1e-300, seed=1)
    assert {sample(logits, cold, i, EMPTY).token for i in range(8)} == {int(np.argmax(logits))}
    _, probabilities = kept(logits, SamplingParams(temperature=100.0), EMPTY)
    assert probabilities.max() < 1.3e-3


def test_a_bias_outside_the_vocabulary_is_refused_by_name() -> None:
    with pytest.raises(RequestError, match="token 4 is not in 0 to 3"):
        sample(row(0, 1, 2, 3), SamplingParams(logit_bias=((4, 1.0),)), 0, EMPTY)


def test_the_logits_are_left_as_they_were() -> None:
    logits = random_row(50)
    before = logits.copy()
    sample(logits, SamplingParams(temperature=1.0, repeat_penalty=1.3, logit_bias=((0, 9.0),)), 0, history_of([1], [2]))
    assert np.array_equal(logits, before)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.5, 0.99, 0.9999]))
def test_top_p_over_a_large_vocabulary_equals_a_full_sort(seed: int, top_p: float) -> None:
    logits = random_row(20_000, seed=seed, scale=1.0)
    ids, _ = kept(logits, SamplingParams(temperature=1.0, top_p=top_p), EMPTY)
    weights = np.exp(logits.astype(np.float64) - logits.max())
    order = np.argsort(-weights, kind="stable")
    run = np.cumsum(weights[order]) / weights.sum()
    reached = int(np.argmax(run >= top_p)) + 1
    assert abs(len(ids) - reached) <= 1  # the weights differ from float64's by 1e-7
    assert ids.tolist() == sorted(order[: len(ids)].tolist())
