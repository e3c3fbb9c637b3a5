"""From wishes to experts behind a budget, on the emulator."""

import io

import numpy as np
import pytest

from experts.decoding import greedy, listening
from kernels.product_cases import native
from models.made import load, oracle, path_of
from strata.core.errors import UsageError
from strata.core.log import Log
from strata.experts.placing import emulated
from strata.experts.profile import Profile
from strata.kernels.host_device import HostDevice
from strata.plan.wishes import Wishes
from strata.runtime.tiers import reported, tier_experts
from strata.store.pinned import BLOCK_BYTES

MIB = 1 << 20


def tiered(model, wishes, host_mib=512, profile=None, free_mib=4096):
    side, log = emulated(lambda: free_mib * MIB), Log(stream=io.StringIO())
    return tier_experts(HostDevice(), native("portable"), model, wishes, host_mib * MIB, reported(side, log), profile)


@pytest.mark.parametrize("gib", [None, 0.0, 1 / 1024])
def test_answers_do_not_depend_on_the_budget_and_the_plan_says_what_it_is(gib):
    prompt = oracle("qwen3_moe").ids[:7]
    expected = greedy(listening("qwen3_moe"), prompt, 3)
    runner = listening("qwen3_moe")
    found = tiered(runner.model, Wishes(vram_gib=gib))
    try:
        answers = greedy(runner, prompt, 3)
        assert all(np.array_equal(a, b) for a, b in zip(expected, answers, strict=True))
        choices = {c.name: c for c in found.choices}
        there = sum(len(b.gate) for b in runner.model.store.banks.values())
        assert choices["resident"].value == (0 if gib == 0.0 else there)
        assert f"of {there} experts; no profile yet" in choices["resident"].reason
        assert (choices["pin_mib"].reason == "all experts are in VRAM") == (gib != 0.0)
        status = runner.status()["experts"]
        assert status["hits"] + status["misses_pcie"] + status["misses_cpu"] > 0 and status["disagreement"] == ""
    finally:
        found.close()


def test_what_was_learned_is_kept_and_used(tmp_path):
    said = io.StringIO()
    shape = load(path_of("qwen3_moe", "gguf")).shape
    profile = Profile(tmp_path, "tiny", shape.layers, shape.experts, Log(stream=said))
    runner = listening("qwen3_moe")
    first = tiered(runner.model, Wishes(adapt_every=1, adapt_async=False), profile=profile)
    greedy(runner, oracle("qwen3_moe").ids[:7], 3)
    first.close()
    counts = profile.load()
    assert counts is not None and counts.any() and said.getvalue() == ""
    second = tiered(listening("qwen3_moe").model, Wishes(), profile=profile)
    second.close()
    assert "the most used of earlier runs" in {c.name: c.reason for c in second.choices}["resident"]


def test_wishes_that_cannot_be_met_are_refused():
    with pytest.raises(UsageError, match="this model has no experts"):
        tiered(load(path_of("llama", "gguf")), Wishes())
    with pytest.raises(UsageError, match=r"--vram-gib 9: 0\.0 GiB are free behind a reserve of 1024 MiB"):
        tiered(load(path_of("qwen3_moe", "gguf")), Wishes(vram_gib=9.0), free_mib=1024)


def test_a_share_that_was_asked_for_is_not_corrected():
    model = load(path_of("qwen3_moe", "gguf"))
    found = tiered(model, Wishes(vram_gib=0.0, pcie_share=1.0), host_mib=2 * BLOCK_BYTES // MIB)
    try:
        assert not found.experts.split.splits
        assert found.experts.split.tables[0].tolist() == list(range(found.experts.split.tables.shape[1]))
    finally:
        found.close()
