"""Whole models on the emulated device: the CPU's logits bit for bit, and its tokens."""

import dataclasses

import numpy as np
import pytest
import torch

from models.made import load, ops_of, oracle, path_of, same_bits
from strata.core.limits import Limits
from strata.core.window import Window
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.host_device import HostDevice
from strata.kernels.views import Weight
from strata.runtime.apart import Apart
from strata.runtime.outcome import Outcome
from strata.runtime.runner import DeviceRunner
from strata.sampling.params import SamplingParams
from strata.state.memory import Memory, Mirror

NAMES = ("llama", "qwen3_moe", "qwen3_next", "qwen3_5_moe", "qwen4_exp")
SAMPLED = SamplingParams(temperature=1.3, top_p=0.95, top_k=50, seed=11)


def on_device(name: str) -> DeviceRunner:
    ops = GpuOps(HostDevice())
    apart = Apart("emulator", Memory(torch.device("cpu"), apart=True), ops_of())
    return DeviceRunner(load(path_of(name, "gguf"), ops), ops, Limits(3, 128, 64), apart=apart)


def on_cpu(name: str) -> DeviceRunner:
    return DeviceRunner(load(path_of(name, "gguf")), ops_of(), Limits(3, 128, 64))


def history(runner: DeviceRunner, ids: list[int]) -> list[np.ndarray]:
    """Prompts in chunks, tokens alone and together, verify windows that are cut, a slot restored into another."""
    found = []

    def step(*parts: tuple[int, int, int, int]) -> None:
        windows = []
        for slot, size, score, _ in parts:
            start = runner.states.length[slot]
            windows.append(Window(slot, start, tuple(ids[start + 7 * slot : start + 7 * slot + size]), score))
        found.append(runner.forward(windows))
        for slot, _, _, kept in parts:
            runner.states.commit(slot, kept, runner.ops)

    step((0, 9, 1, 9))
    step((0, 5, 0, 5), (1, 7, 1, 7))
    for _ in range(2):
        step((0, 1, 1, 1), (1, 1, 1, 1))
        step((1, 4, 4, 2), (0, 1, 1, 1))
    runner.states.restore(2, runner.states.snapshot(1))
    step((2, 1, 1, 1), (0, 1, 1, 1))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_device_gives_the_cpus_logits(name):
    device, ids = on_device(name), oracle(name).ids * 2
    for a, b in zip(history(device, ids), history(on_cpu(name), ids), strict=True):
        assert same_bits(a, b)
    # Two shapes came twice and were recorded; no prompt was.
    assert len(device.forwarder.recorded) == 2


class Copying(HostDevice):
    """Copies what has to be brought to a device, as a GPU does, and keeps every argument of its launches."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: dict[int, torch.Tensor] = {}
        self.arguments: set[int | float] = set()

    def resident(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.copies.setdefault(id(tensor), tensor.clone())

    def launch(self, kernel, grid, block, shared, *args):
        self.arguments.update(args)
        super().launch(kernel, grid, block, shared, *args)


def vectors(part: object) -> list[torch.Tensor]:
    """Small tensors among the fields of a model's parts; matrices are weights."""
    if isinstance(part, torch.Tensor):
        return [part]
    if isinstance(part, tuple):
        return [tensor for item in part for tensor in vectors(item)]
    if dataclasses.is_dataclass(part) and not isinstance(part, Weight):
        return [t for field in dataclasses.fields(part) for t in vectors(getattr(part, field.name))]
    return []


@pytest.mark.parametrize("name", NAMES)
def test_no_kernel_reads_a_vector_where_the_file_was_read(name):
    """A GPU cannot: on the emulator all memory is the host's, so only this test sees it."""
    device = Copying()
    ops = GpuOps(device)
    apart = Apart("emulator", Memory(torch.device("cpu"), apart=True), ops_of())
    runner = DeviceRunner(load(path_of(name, "gguf"), ops), ops, Limits(3, 128, 64), apart=apart)
    runner.forward([Window(0, 0, tuple(oracle(name).ids[:5]), 1)])
    here = {tensor.data_ptr() for tensor in vectors(runner.model)}
    assert here and not here & device.arguments
    # Negative control: they are read, as copies.
    assert {tensor.data_ptr() for tensor in device.copies.values()} <= device.arguments


def test_a_table_that_was_not_brought_to_the_device_is_seen(monkeypatch):
    """Negative control."""
    device, ids = on_device("qwen3_moe"), oracle("qwen3_moe").ids * 2
    honest = Mirror.publish
    monkeypatch.setattr(Mirror, "publish", lambda m, *at: None if m is device.states.table else honest(m, *at))
    expected = history(on_cpu("qwen3_moe"), ids)
    assert not all(same_bits(a, b) for a, b in zip(history(device, ids), expected, strict=True))


@pytest.mark.parametrize("name", ["qwen3_moe", "qwen4_exp"])
def test_a_device_draws_the_cpus_tokens(name, monkeypatch):
    ids = oracle(name).ids
    answers = []
    for runner in (on_cpu(name), on_device(name)):
        if runner.states.memory.apart:
            monkeypatch.setattr(Outcome, "row", None)  # nothing is drawn on the host
        found = []
        for slot, params in enumerate((SamplingParams(), SAMPLED, dataclasses.replace(SAMPLED, min_p=0.05, seed=3))):
            runner.seat(slot, ids[:9], params)
            (result,) = runner.step([Window(slot, 0, tuple(ids[:9]), 1)])
            found.append([result.drawn[0].token])
        for turn in range(3):
            windows = []
            for slot, tokens in enumerate(found):
                drafts = ((tokens[-1] + turn) % 199,)
                windows.append(Window(slot, runner.states.length[slot], (tokens[-1], *drafts), 2))
            for result in runner.step(windows):
                found[result.slot] += [d.token for d in result.drawn]
        answers.append(found)
    assert answers[0] == answers[1]
