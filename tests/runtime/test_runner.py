"""The runner: seats, steps, and what is left when a step breaks."""

import dataclasses

import pytest

from models.made import oracle, path_of, runner_of, same_bits
from strata.core.errors import EngineError, RequestError
from strata.core.held import Held
from strata.core.order import Order
from strata.core.window import Window
from strata.sampling.history import TokenCounts
from strata.sampling.params import SamplingParams
from strata.sampling.sample import sample

GREEDY = SamplingParams()
SAMPLED = SamplingParams(temperature=1.3, top_p=0.95, seed=11, repeat_penalty=1.2, frequency_penalty=0.4)


@pytest.fixture(scope="module")
def runner():
    return runner_of(path_of("qwen4_exp", "gguf"), slots=4)


@pytest.fixture(scope="module")
def ids():
    return oracle("qwen4_exp").ids


@pytest.fixture(autouse=True)
def emptied(runner):
    yield
    for slot in range(4):
        runner.release(slot)
    runner.cache.check()
    runner.order(Order("clear"))
    assert len(runner.states.pages.free) == runner.states.pages.pages


def answer(runner, slot, prompt, params, count):
    """The plain way: whole prompt, then a token a step."""
    held = runner.seat(slot, prompt, params).tokens
    (result,) = runner.step([Window(slot, held, tuple(prompt[held:]), 1)])
    tokens = [result.drawn[0].token]
    while len(tokens) < count:
        (result,) = runner.step([Window(slot, result.length, (tokens[-1],), 1)])
        tokens.append(result.drawn[0].token)
    return tokens


def by_hand(runner, prompt, params, count):
    """The same from logits alone, each time from an empty slot, with the sampler's own history."""
    counts, tokens = TokenCounts(prompt), []
    for _ in range(count):
        runner.states.clear(3)
        sequence = (*prompt, *tokens)
        logits = runner.forward([Window(3, 0, sequence, 1)])
        runner.states.commit(3, len(sequence), runner.ops)
        tokens.append(sample(logits[0], params, len(sequence), counts, runner.choose).token)
        counts.append(tokens[-1])
    return tokens


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_an_answer_is_what_its_prefix_alone_draws(runner, ids, params):
    tokens = answer(runner, 0, ids[:9], params, 6)
    assert tokens == by_hand(runner, ids[:9], params, 6)
    if params is SAMPLED:
        other = dataclasses.replace(params, seed=12)
        assert tokens != by_hand(runner, ids[:9], other, 6)


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_drafts_right_and_wrong_leave_the_answer_as_it_was(runner, ids, params):
    expected = answer(runner, 0, ids[:9], params, 12)
    runner.seat(1, ids[:9], params)
    (result,) = runner.step([Window(1, 0, tuple(ids[:9]), 1)])
    tokens, turn = [result.drawn[0].token], 0
    while len(tokens) < 12:
        right = expected[len(tokens) : len(tokens) + turn % 4]
        wrong = [(t + 1) % 199 for t in expected[len(tokens) + len(right) :][: (turn + 1) % 3]]
        window = Window(1, result.length, (tokens[-1], *right, *wrong), 1 + len(right) + len(wrong))
        (result,) = runner.step([window])
        assert len(result.drawn) == 1 + len(right)
        tokens += [d.token for d in result.drawn]
        turn += 1
    assert tokens[:12] == expected


def test_logprobs_come_with_the_draw(runner, ids):
    runner.seat(0, ids[:5], SamplingParams(logprobs=2))
    (result,) = runner.step([Window(0, 0, tuple(ids[:5]), 1)])
    drawn = result.drawn[0]
    assert drawn.top[0] == (drawn.token, drawn.logprob) and len(drawn.top) == 2 and drawn.logprob < 0


def test_a_sequence_that_goes_on_is_not_read_again(runner, ids):
    first = answer(runner, 0, ids[:9], GREEDY, 5)
    runner.release(0)
    longer = [*ids[:9], *first, *ids[9:12]]
    # The last drawn token was never run, so one less is kept.
    assert runner.known(longer) == 13
    assert runner.seat(0, longer, GREEDY) == Held(13, "pages")
    warm = [answer(runner, slot, longer, GREEDY, 5) for slot in range(2)]
    for slot in range(4):
        runner.release(slot)
    runner.order(Order("clear"))
    assert warm == [answer(runner, 2, longer, GREEDY, 5)] * 2


@pytest.mark.parametrize("edit", ["shorter", "equal", "changed"])
def test_a_sequence_that_does_not_go_on_is_read_anew(runner, ids, edit):
    held = [*ids[:9], *answer(runner, 0, ids[:9], GREEDY, 3)[:2]]
    runner.release(0)
    prompts = {"shorter": held[:8], "equal": held, "changed": [*held[:4], (held[4] + 1) % 199, *held[5:], 7]}
    assert runner.known(prompts[edit]) == 0
    assert runner.seat(0, prompts[edit], GREEDY).tokens == 0
    assert runner.states.length[0] == 0


def test_a_seat_is_refused_before_anything_changes(runner, ids):
    answer(runner, 0, ids[:9], GREEDY, 2)
    with pytest.raises(RequestError, match=r"ids of tokens must be from 0 to 198, found 199") as raised:
        runner.seat(0, [5, 199], GREEDY)
    assert raised.value.param == "tokens"
    with pytest.raises(RequestError, match=r"ids of logit_bias must be from 0 to 198, found 500") as raised:
        runner.seat(0, [5], SamplingParams(logit_bias=((500, 1.0),)))
    assert raised.value.param == "logit_bias"
    assert runner.states.length[0] == 10


def test_a_window_must_start_where_the_state_ends(runner, ids):
    runner.seat(0, ids[:3], GREEDY)
    with pytest.raises(EngineError, match=r"slot 0: window starts at 2, the state holds 0 tokens"):
        runner.step([Window(0, 2, (5,), 1)])


class Torn(Exception):
    """Stands for whatever breaks a step."""


@pytest.mark.parametrize("at", range(0, 8, 3))
def test_a_step_that_breaks_clears_its_slots_and_leaves_the_others(runner, ids, monkeypatch, at):
    expected = answer(runner, 2, ids[:9], GREEDY, 8)
    runner.release(2)
    runner.order(Order("clear"))
    begun = answer(runner, 2, ids[:9], GREEDY, 4)
    for slot in (0, 1):
        runner.seat(slot, ids[:9], GREEDY)
        runner.step([Window(slot, 0, tuple(ids[:9]), 1)])
    block = type(runner.model.blocks[0])
    plain = block.__call__

    def torn(self, x, batch):
        if self.index == at:
            raise Torn
        return plain(self, x, batch)

    with monkeypatch.context() as patch:
        patch.setattr(block, "__call__", torn)
        with pytest.raises(Torn):
            runner.step([Window(0, 9, (5, 6, 7), 3), Window(1, 9, (8,), 1)])
    assert runner.states.length == [0, 0, 12, 0] and not runner.states.open
    assert all(not layer.ngram[0].any() for layer in runner.states.layers if layer.ngram is not None)
    tokens = begun
    while len(tokens) < 8:
        (result,) = runner.step([Window(2, runner.states.length[2], (tokens[-1],), 1)])
        tokens.append(result.drawn[0].token)
    assert tokens == expected
    runner.release(2)
    runner.order(Order("clear"))
    assert answer(runner, 0, ids[:9], GREEDY, 8) == expected


def test_logits_that_are_not_numbers_fail_their_window(runner, ids, monkeypatch):
    runner.seat(0, ids[:3], GREEDY)
    plain = runner.model.head

    def spoiled(self, residual, batch):
        logits = plain(residual, batch)
        logits[0, 7] = float("nan")
        return logits

    monkeypatch.setattr(type(runner.model), "head", spoiled)
    (failed,) = runner.step([Window(0, 0, tuple(ids[:3]), 1)])
    assert "token 7 of 199 has nan" in failed.error and not failed.drawn
    assert runner.states.length[0] == 0 and not runner.states.open


def test_a_release_in_the_middle_of_a_window_forgets_the_slot(runner, ids):
    runner.seat(0, ids[:5], GREEDY)
    runner.forward([Window(0, 0, tuple(ids[:5]), 1)])
    runner.release(0)
    assert runner.states.length[0] == 0 and not runner.states.open


def test_windows_without_a_score_give_no_logits(runner, ids):
    runner.seat(0, ids[:5], GREEDY)
    (result,) = runner.step([Window(0, 0, tuple(ids[:4]), 0)])
    assert result.drawn == () and result.length == 4
    whole = runner.forward([Window(1, 0, tuple(ids[:5]), 1)])
    rest = runner.forward([Window(0, 4, tuple(ids[4:5]), 1)])
    assert same_bits(whole, rest)


def test_the_status_counts(runner, ids):
    before = runner.status()
    answer(runner, 0, ids[:9], GREEDY, 3)
    after = runner.status()
    assert (after["steps"] - before["steps"], after["rows"] - before["rows"]) == (3, 11)
    assert after["held_tokens"][0] == 11 and after["device"] == "cpu"
    assert after["kept"]["free_pages"] == before["kept"]["free_pages"] - 1
