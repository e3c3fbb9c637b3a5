"""What is compared when drafts are measured: the same tokens on both sides, in fewer steps where drafts are right."""

from pathlib import Path

import pytest

from models.heads import headed
from models.made import path_of
from strata.assemble import Loaded, load
from strata.checkpoint.demo import model_path
from strata.checks.crowd import Crowd, Part
from strata.checks.draft_rates import DraftRates, Workload
from strata.checks.draft_works import edit, noise, random_text, rehearsed
from strata.checks.engines import running
from strata.cli.bench_drafts import NAMES, drafts_ab, workloads
from strata.core.errors import CheckpointError, UsageError
from strata.core.log import Level, Log
from strata.plan.wishes import Wishes

SIZE = 199


def loaded(path: Path, draft: str = "auto", price: float = 0.0) -> Loaded:
    return load(path, Wishes(ctx_size=128, parallel=2, threads=1, draft=draft, price=price), Log(Level.ERROR))


@pytest.fixture(scope="module")
def rates() -> DraftRates:
    return DraftRates(loaded(headed("qwen3_next", "gguf")), ("off", "3"), 2, 1)


def sides(found: dict[str, object]) -> list[dict[str, object]]:
    both = found["sides"]
    assert isinstance(both, list)
    return both


def test_a_drafter_of_known_rates_saves_steps(rates: DraftRates) -> None:
    found = rates.compare(rehearsed(SIZE, 2, 24))
    off, drafted = sides(found)
    assert off["tokens_per_step"] == 1.0
    # 1 + 0.8 + 0.8 * 0.7 + 0.8 * 0.7 * 0.6, with the end of each answer
    assert 2.0 < float(str(drafted["tokens_per_step"])) < 3.2
    assert set(found) == {"workload", "sides", "ratio", "ratio_95", "ratio_of_sums", "ratios"}


def test_forced_answers_are_copied_by_lookup_and_noise_is_not(rates: DraftRates) -> None:
    prompt = noise(SIZE, 1, 40, 3)[0]
    copy = Workload("copy", [prompt], 36, [prompt])
    assert float(str(sides(rates.compare(copy))[1]["tokens_per_step"])) > 2
    assert float(str(sides(rates.compare(random_text(SIZE, 2, 24)))[1]["tokens_per_step"])) < 1.3


def drafted(price_us: float) -> int:
    """Drafts that `auto` has checked in an answer of 64 tokens, by a drafter that is right at 0.8/0.7/0.6, where a step
    takes a second whatever its rows: what they cost is the price of experts alone, and no clock decides.
    """
    rates = DraftRates(loaded(model_path(None), price=price_us), ("off", "auto"), 1, 1)
    work = rehearsed(rates.loaded.model.shape.vocabulary, 1, 64)
    runner = rates.runner("auto", work, rates.recorded(work))
    assert runner.drafts.chooser is not None
    runner.drafts.chooser.costs.fixed_s = dict.fromkeys(range(1, 65), 1.0)
    with running(runner) as engine:
        Crowd(engine, [Part(request) for request in rates.requests(work, "a")]).run()
        tokens = engine.status()["tokens"]
    assert isinstance(tokens, dict) and tokens["generated"] == 64
    return int(tokens["drafted"])


def test_auto_drafts_less_where_the_price_flag_makes_misses_dear() -> None:
    """The whole way of `--price`: from the wishes to the choice of depths."""
    free, dear, dearest = (drafted(price_us) for price_us in (0.0, 50_000.0, 1e9))
    assert free > 2 * dear > 4 * dearest


def test_an_edit_is_mostly_a_copy() -> None:
    class Letters:
        def encode(self, text: str) -> list[int]:
            return [ord(char) for char in text]

    work = edit(Letters(), 2)  # type: ignore[arg-type]
    assert len(work.prompts) == len(work.forced) == 2 and work.tokens == len(work.forced[0])
    assert "order_total" in "".join(map(chr, work.forced[0])) and "order_total" not in "".join(
        map(chr, work.prompts[0])
    )


def test_settings_that_cannot_be_compared_are_refused() -> None:
    made = loaded(path_of("qwen3_moe", "gguf"), "off")
    with pytest.raises(UsageError, match="expected two settings, as auto,off"):
        DraftRates(made, ("off", "auto"), 1, 1)
    with pytest.raises(UsageError, match="expected auto, off or a number"):
        DraftRates(made, ("off", "much"), 1, 1)


def test_workloads_are_named_and_those_that_need_words_are_left_out_without_a_tokenizer() -> None:
    made = loaded(path_of("qwen3_moe", "gguf"), "off")
    assert [work.name for work in workloads(NAMES, made, 2)] == ["rehearsed 0.8/0.7/0.6", "random"]
    assert [work.name for work in workloads(["random"], made, 2)] == ["random"]
    with pytest.raises(CheckpointError):
        workloads(["random", "story"], made, 2)
    with pytest.raises(UsageError, match="--workload poem: unknown"):
        drafts_ab({}, None, "off,auto", 1, 5, ["story", "poem"], [], False)
