"""The comparison of answers with and without drafts, on tiny models, and that it can fail."""

from pathlib import Path

import pytest

from models.heads import headed
from models.made import oracle, path_of
from strata.assemble import Loaded, load
from strata.checks.drafted import Drafted
from strata.checks.rehearsed import Rehearsed, fair_seed, tokens_a_step
from strata.core.log import Level, Log
from strata.plan.wishes import Wishes
from strata.speculate.drafter import Ask


def loaded(path: Path) -> Loaded:
    return load(path, Wishes(ctx_size=96, parallel=2, threads=1, draft="auto"), Log(Level.ERROR))


def test_answers_are_the_same_in_every_cell() -> None:
    """The other architectures' drafts are held to the same in tests/runtime/test_drafts.py."""
    name = "qwen4_exp"
    made = loaded(headed(name, "gguf"))
    assert made.drafting is not None and made.drafting.head is not None
    ids = oracle(name).ids
    check = Drafted(made, [ids[:5], ids[7:30]], 10)
    found = check.compare()
    assert found.difference == ""
    # Four requests, 4 kinds of drafts, 2 numbers of slots, and where prefixes are kept each request twice.
    assert found.rows == 4 * 10 * 4 * 2 * 3


def test_a_model_without_a_head_is_compared_with_drafts_all_the_same() -> None:
    found = Drafted(loaded(path_of("qwen3_moe", "gguf")), [oracle("qwen3_moe").ids[:9]], 8).compare()
    assert found.difference == "" and found.rows == 2 * 8 * 4 * 2 * 3


def test_drafts_that_are_not_checked_are_noticed() -> None:
    ids = oracle("qwen3_next").ids
    found = Drafted(loaded(headed("qwen3_next", "gguf")), [ids[:5], ids[7:30]], 12, tamper=True).compare()
    assert found.difference.startswith("drafts rehearsed, prefixes not kept, 1 slots: request ")


def test_a_rehearsed_drafter_is_right_as_often_as_it_should_be() -> None:
    text = [i % 90 for i in range(4000)]
    drafter = Rehearsed([text], (0.8, 0.5), 100)
    drafter.begin(0, text[:10])
    drafter.extend(0, text[:10])
    right = [0, 0, 0]
    for at in range(10, 3900):
        proposal = drafter.propose({0: Ask(text[at], 3, lambda sure: True)})[0]
        for depth in range(3):
            right[depth] += proposal.tokens[depth] == text[at + 1 + depth]
        assert proposal.confidence == (0.8, 0.5, 0.5)
        drafter.extend(0, [text[at]])
    assert [count / 3890 for count in right] == pytest.approx([0.8, 0.5, 0.5], abs=0.03)
    assert drafter.propose({0: Ask(99, 3, lambda sure: True)}) == {}  # another answer


def test_fair_draws_bring_what_the_rates_promise() -> None:
    rates, promised = (0.8, 0.7, 0.6), (1.8, 2.36, 2.696)

    def brought(seed: int) -> list[float]:
        return [tokens_a_step(seed, 24, 120, rates[:depth]) for depth in (1, 2, 3)]

    assert brought(fair_seed(24, 120, rates)) == pytest.approx(promised, rel=0.02)
    assert brought(1) != pytest.approx(promised, rel=0.1)  # the first that comes along


def test_the_drafts_of_a_text_are_those_that_were_counted() -> None:
    text, rates = tuple(range(60)), (0.8, 0.7, 0.6)
    drafter = Rehearsed([text], rates, 100, seed=5)
    drafter.begin(0, text[:10])
    drafter.extend(0, text[:10])
    at, steps = 10, 0
    while at < 56:
        drafts = drafter.propose({0: Ask(text[at], 3, lambda sure: True)})[0].tokens
        right = 0
        while right < 3 and drafts[right] == text[at + 1 + right]:
            right += 1
        drafter.extend(0, text[at : at + right + 1])
        at, steps = at + right + 1, steps + 1
    assert tokens_a_step(5, 10, 57, rates) == pytest.approx((at - 10) / steps)
