"""Where a step's time goes: that every operation is counted, under a kind that is known. No time is asserted."""

import pytest

from models.made import ops_of, oracle, path_of, runner_of
from strata.checks.profile import kind_of, profile
from strata.checks.rates import Bench
from strata.core.errors import UsageError
from strata.kernels.naive_ops import NaiveOps
from strata.kernels.step_program import Timing
from strata.runtime.steps import Steps

NAMES = {
    "llama": {"dense feed-forward"},
    "qwen3_moe": {"router", "experts"},
    "qwen3_next": {"router", "experts", "shared expert"},
    "qwen4_exp": {"router", "experts", "shared expert", "streams", "n-gram embedding"},
}


def bench(name, ops=None):
    return Bench(runner_of(path_of(name, "gguf"), ops or ops_of(), slots=2), oracle(name).ids, 8, 2)


@pytest.mark.parametrize("name", NAMES)
def test_every_operation_has_a_kind(name):
    made = bench(name)
    found = profile(made, 10, 2, 3)
    norms = set() if name == "qwen4_exp" else {"norms"}
    assert found.parts.keys() - {"other"} == {"embed", "mixer", "head"} | norms | NAMES[name]
    # After the last layer's report comes its addition to the residual; a recorded step has nothing else unnamed.
    assert found.parts.get("other", 0.0) == 0.0
    (known,) = made.runner.forwarder.recorded.values()
    assert found.operations == len(known.program) and found.steps == 6
    assert found.by_operation.keys() >= {"linear", "embed"}
    assert sum(found.by_operation.values()) == pytest.approx(sum(found.parts.values()))


def test_parts_and_the_host_make_a_step():
    found = profile(bench("qwen3_moe"), 0, 1, 2)
    values = found.values()
    assert sum(values["milliseconds"].values()) == pytest.approx(values["step_milliseconds"])
    assert min(found.reserve, found.sample, found.commit) > 0
    spent = found.reserve + found.sample + found.commit + found.gaps
    assert found.total == pytest.approx(spent + sum(found.parts.values()))


def test_a_part_has_the_kind_of_its_first_word():
    assert kind_of("blk.12.attention.selected") == kind_of("blk.0.delta_net.qkv") == "mixer"
    assert kind_of("blk.3.moe") == "shared expert" and kind_of("output_norm") == "head"
    assert kind_of("blk.3.unheard") == kind_of("") == "other"


def test_an_unknown_part_shows_as_other(monkeypatch):
    """Negative control."""
    honest = Steps.times
    monkeypatch.setattr(Steps, "times", lambda self: [Timing("blk.0.new", *t[1:]) for t in honest(self)])
    assert list(profile(bench("qwen3_moe"), 4, 1, 2).parts) == ["other"]


def test_steps_that_are_not_recorded_are_refused():
    with pytest.raises(UsageError, match="steps of these operations are not recorded"):
        profile(bench("qwen3_moe", NaiveOps()), 2, 1, 1)
