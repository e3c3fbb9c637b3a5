"""Equality 4 on the emulator, and that it can fail."""

import pytest
import torch

from kernels.product_cases import native
from models.made import load, ops_of, oracle, path_of, runner_of
from strata.checks.equalities import Equalities, Plan
from strata.checks.tiers import PLACEMENTS, Tiers
from strata.core.limits import Limits
from strata.experts.placing import emulated
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.host_device import HostDevice
from strata.runtime.apart import Apart
from strata.runtime.runner import DeviceRunner
from strata.state.memory import Memory

NAMES = ("qwen3_moe", "qwen3_next", "qwen3_5_moe", "qwen4_exp", "mixtral")


def tiers(name, tamper=False):
    ids = oracle(name).ids
    runner = runner_of(path_of(name, "gguf"), ops_of(), slots=3)
    run = Equalities(runner, Plan([ids[:5], ids[7:20], ids[20:25]], 3, tamper))
    return Tiers(run, HostDevice(), native("portable"), emulated())


@pytest.mark.parametrize("name", NAMES)
def test_every_bit_agrees_at_every_placement(name):
    found = tiers(name)
    before = found.run.runner.model.experts.inner
    verdict = found.resident()
    assert (verdict.rows, verdict.difference) == (len(PLACEMENTS) * 3 * 4, "")
    assert found.run.runner.model.experts.inner is before
    # The placement is gone again: recorded steps give the old bits.
    assert found.run.chunks().equal


def test_a_flipped_byte_in_a_frame_is_named():
    verdict = tiers("qwen3_moe", tamper=True).resident()
    assert not verdict.equal and verdict.difference.startswith("all in VRAM, prompt 0, answer position 0")


def test_a_count_that_is_off_fails_the_equality(monkeypatch):
    monkeypatch.setattr("strata.experts.counters.Counters.disagreement", lambda self: "layer 0: one is missing")
    assert tiers("qwen3_moe").resident().difference == "all in VRAM: layer 0: one is missing"


@pytest.mark.parametrize("tamper", [False, True], ids=["honest", "spoiled"])
def test_on_a_model_that_is_on_the_device_itself(tamper):
    ids, device = oracle("qwen3_moe").ids, HostDevice()
    ops = GpuOps(device)
    apart = Apart("emulator", Memory(torch.device("cpu"), apart=True), ops_of())
    runner = DeviceRunner(load(path_of("qwen3_moe", "gguf"), ops), ops, Limits(3, 64, 64), apart=apart)
    run = Equalities(runner, Plan([ids[:5], ids[7:20], ids[20:23]], 2, tamper))
    verdict = Tiers(run, device, native("portable"), emulated()).resident()
    assert verdict.equal is not tamper and (tamper or verdict.rows == len(PLACEMENTS) * 3 * 3)
