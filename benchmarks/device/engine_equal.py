"""Whole models on a device against the CPU, bit for bit: all operations, then with the experts in several places."""

import tempfile
from collections.abc import Callable

import numpy as np
import torch
from drawn_model import Formats, drawn_model
from drawn_model import shape_of as drawn_shape

from strata.assemble import load as assemble
from strata.checkpoint.demo import model_path
from strata.checkpoint.locate import open_checkpoint
from strata.checks.tiers import experts_at
from strata.core.limits import Limits
from strata.core.log import Level, Log
from strata.core.window import Window
from strata.engine.events import Token
from strata.engine.request import Request
from strata.experts.gpu import GpuExperts
from strata.experts.placing import side_of
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.device import Device
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.native import Native
from strata.kernels.ops import Ops
from strata.models.base import Model
from strata.models.registry import build_model
from strata.plan.wishes import Wishes
from strata.runtime.apart import Apart
from strata.runtime.runner import DeviceRunner
from strata.state.memory import Memory

Build = Callable[[Ops], Model]
Logits = list[np.ndarray]

PLACES = {"100%": (1.0, 0.0), "50%": (0.5, 0.3), "10%": (0.1, 0.5), "0%": (0.0, 0.5), "0%, none pinned": (0.0, 0.0)}
"""Shares of the experts in VRAM and in pinned memory."""
FEW_PLACES = ("50%", "0%, none pinned")
"""What is compared when `thorough` is not asked for."""
ARCHITECTURES = ("qwen3moe", "qwen3next", "qwen35moe", "qwen4exp")
LENGTH = 90
"""Tokens of the longest prompt."""


def runner_on(device: Device, native: Native, build: Build, slots: int, context: int) -> DeviceRunner:
    """The model's runner on the device."""
    ops = GpuOps(device)
    apart = Apart(device.name, Memory(device.torch_device, apart=True), CpuOps(native))
    return DeviceRunner(build(ops), ops, Limits(slots, context, 512), apart=apart)


def history(runner: DeviceRunner, length: int) -> Logits:
    """Prompts in chunks, decoding alone and together, and verify windows that are cut: the logits of every step."""
    ids = np.random.default_rng(5).integers(0, runner.model.shape.vocabulary, 8 * length).tolist()
    found: Logits = []

    def step(parts: list[tuple[int, int, int, int]]) -> None:
        windows = []
        for slot, size, score, _ in parts:
            start = runner.states.length[slot]
            at = start + 3 * length * slot
            windows.append(Window(slot, start, tuple(ids[at : at + size]), score))
        found.append(runner.forward(windows))
        for slot, _, _, kept in parts:
            runner.states.commit(slot, kept, runner.ops)

    for slot, size in ((0, length), (1, 7), (0, 5), (1, length // 2)):
        step([(slot, size, 1, size)])
    for _ in range(3):
        step([(0, 1, 1, 1)])
        step([(1, 1, 1, 1), (0, 1, 1, 1)])
        step([(0, 4, 4, 2), (1, 1, 1, 1)])
        step([(1, 3, 3, 3)])
    return found


def compared(expected: Logits, got: Logits) -> dict[str, object]:
    """Whether every bit agrees; if not, the first step, the largest difference and how many tokens it changes."""
    same = [a.tobytes() == b.tobytes() for a, b in zip(expected, got, strict=True)]
    found: dict[str, object] = {"rows": sum(len(a) for a in expected), "equal": all(same)}
    if not all(same):
        found["first_different_step"] = same.index(False)
        found["largest_difference"] = max(float(np.abs(a - b).max()) for a, b in zip(expected, got, strict=True))
        found["other_tokens"] = sum(int((a.argmax(1) != b.argmax(1)).sum()) for a, b in zip(expected, got, strict=True))
    return found


def placed(runner: DeviceRunner, device: Device, native: Native, vram: float, pinned: float, length: int) -> Logits:
    """The history with the experts at a placement; RuntimeError when the counters do not agree."""
    side = side_of(device.torch_device)
    experts: GpuExperts = experts_at(device, native, runner.model, side, vram, pinned)
    runner.model.experts.inner = experts
    experts.ahead.least_rows = 64  # so that these prompts' experts are copied a layer ahead
    try:
        found = history(runner, length)
        experts.read_ledger()
        if experts.counters.disagreement():
            raise RuntimeError(experts.counters.disagreement())
        return found
    finally:
        experts.close()


def cases(emulated: bool) -> dict[str, tuple[Build, int]]:
    """Models by name with how many tokens a prompt has."""
    found: dict[str, tuple[Build, int]] = {}
    if not emulated:
        demo = open_checkpoint(model_path(None))
        found["demo"] = (lambda ops: build_model(demo, ops)), 3 * LENGTH
    for arch in ARCHITECTURES[-1:] if emulated else ARCHITECTURES:

        def build(ops: Ops, arch: str = arch) -> Model:
            formats = Formats("Q4_K", "Q5_0")
            return drawn_model(drawn_shape(arch, 4, "tiny"), formats, ops, torch.device("cpu"))[0]

        found[arch] = build, 8 if emulated else LENGTH
    return found


def answered(device: str, vram_gib: float | None, tokens: int) -> tuple[list[int], dict[str, object]]:
    """A greedy answer of the demo as `strata run` gives it, and what was decided."""
    with tempfile.TemporaryDirectory() as folder:
        wishes = Wishes(device=device, vram_gib=vram_gib, ctx_size=512, cache_dir=folder)  # type: ignore[arg-type]
        engine = assemble(None, wishes, Log(Level.WARNING)).engine
        engine.start()
        try:
            events = engine.submit(Request("a", tuple(range(40, 90)), tokens)).events()
            found = [event.token for event in events if isinstance(event, Token)]
            return found, dict(engine.status()["plan"])  # type: ignore[call-overload]
        finally:
            engine.stop()


def assembled(device: Device) -> dict[str, object]:
    """The demo through everything that a command uses, at several budgets, against the CPU."""
    name, tokens = ("emulator", 3) if device.torch_device.type == "cpu" else ("cuda", 40)
    expected, _ = answered("cpu", None, tokens)
    found: dict[str, object] = {}
    for gib in (None, 0.01, 0.0):
        got, plan = answered(name, gib, tokens)
        found[f"--vram-gib {'auto' if gib is None else gib}"] = {"equal": got == expected, "tokens": len(got)}
        found["plan"] = plan
    return found


def equalities(device: Device, native: Native, out: dict[str, object], thorough: bool) -> None:
    """The demo and a tiny drawn model of every architecture: all on the device, then at every placement.

    Not `thorough`: the demo and the last architecture at two of them. The emulator is slow: a dry run does one of each.
    """
    emulated = device.torch_device.type == "cpu"
    places = PLACES if thorough else {place: PLACES[place] for place in FEW_PLACES[: 1 if emulated else 2]}
    for name, (build, length) in cases(emulated).items():
        if not thorough and name in ARCHITECTURES[:-1]:
            continue
        try:
            cpu = CpuOps(native)
            expected = history(DeviceRunner(build(cpu), cpu, Limits(2, 8 * length, 512)), length)
            got = history(runner_on(device, native, build, 2, 8 * length), length)
            found: dict[str, object] = {"plain": compared(expected, got)}
            for place, shares in places.items():
                runner = runner_on(device, native, build, 2, 8 * length)
                found[place] = compared(expected, placed(runner, device, native, *shares, length))
            out[name] = found
        except Exception as error:  # noqa: BLE001 - one case that fails leaves the others
            out[name] = {"failed": repr(error)}
