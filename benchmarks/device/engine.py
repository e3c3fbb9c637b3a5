"""The runtime on a device: the CPU's logits bit for bit, and how fast a token is decoded, with its parts.

    python benchmarks/device/engine.py            # on the GPU
    python benchmarks/device/engine.py --emulator # the first part with tiny models, without a GPU

Decoding is measured on models drawn in GPU memory (drawn_model.py) behind a context that is pretended: the caches hold
random values. All experts are resident. Times of models with fewer layers than published are also given per layer.
"""

import argparse
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from drawn_model import Formats, drawn_model, shape_of

from strata.checkpoint.demo import model_path
from strata.checkpoint.locate import open_checkpoint
from strata.checks.profile import kind_of
from strata.core.limits import Limits
from strata.core.window import Window
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.cubins import default_folder
from strata.kernels.device import Device
from strata.kernels.devices import open_device
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.native import Native
from strata.kernels.ops import Ops
from strata.models.base import Model
from strata.models.registry import build_model
from strata.models.weights import dense_weights, weight_bytes
from strata.runtime.runner import DeviceRunner
from strata.sampling.params import SamplingParams
from strata.state.memory import Memory
from strata.store.experts import bank_bytes

READ_GB_PER_SECOND = 4450.0
"""What the card's memory gives (docs: an H200)."""
CONTEXT = 4096
PUBLISHED_LAYERS = 48
FORMATS = {
    "IQ3_S": Formats("IQ3_S", "IQ4_NL"),
    "IQ4_NL": Formats("IQ4_NL", "IQ4_NL"),
    "Q4_K": Formats("Q4_K", "Q5_0"),
    "Q8_0": Formats("Q8_0", "Q8_0"),
}
FEWER_LAYERS = 12

Build = Callable[[Ops], Model]


def runner_on(device: Device, build: Build, slots: int, context: int) -> DeviceRunner:
    """The model's runner on the device."""
    ops = GpuOps(device)
    memory = Memory(device.torch_device, apart=True)
    return DeviceRunner(build(ops), ops, Limits(slots, context, 512), memory=memory, host_ops=CpuOps(Native(4)))


def history(runner: DeviceRunner, vocabulary: int, length: int) -> list[np.ndarray]:
    """Prompts in chunks, decoding alone and together, and verify windows that are cut: the logits of every step."""
    ids = np.random.default_rng(5).integers(0, vocabulary, 8 * length).tolist()
    found: list[np.ndarray] = []

    def step(parts: list[tuple[int, int, int, int]]) -> None:
        windows, first = [], 0
        for slot, size, score, _ in parts:
            start = runner.states.length[slot]
            at = start + 3 * length * slot
            windows.append(Window(slot, start, tuple(ids[at : at + size]), score))
            first += size
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


def equal(device: Device, build: Build, length: int) -> dict[str, object]:
    """The device's logits against the CPU's, bit for bit, and how many rows would choose another token."""
    cpu_ops = CpuOps(Native(8))
    vocabulary = build(cpu_ops).shape.vocabulary
    expected = history(DeviceRunner(build(cpu_ops), cpu_ops, Limits(2, 8 * length, 512)), vocabulary, length)
    got = history(runner_on(device, build, 2, 8 * length), vocabulary, length)
    rows = sum(len(a) for a in expected)
    same = [a.tobytes() == b.tobytes() for a, b in zip(expected, got, strict=True)]
    flips = sum(int((a.argmax(1) != b.argmax(1)).sum()) for a, b in zip(expected, got, strict=True))
    worst = max(float(np.abs(a - b).max()) for a, b in zip(expected, got, strict=True))
    return {
        "steps": len(same),
        "rows": rows,
        "equal": all(same),
        "first_different_step": None if all(same) else same.index(False),
        "largest_difference": worst,
        "other_tokens": flips,
    }


def equalities(device: Device, out: dict[str, object]) -> None:
    """The demo and a tiny drawn model of every architecture."""
    emulated = device.torch_device.type == "cpu"
    demo = open_checkpoint(model_path(None))
    cases: dict[str, tuple[Build, int]] = {} if emulated else {"demo": (lambda ops: build_model(demo, ops), 300)}
    for arch in ("qwen3moe", "qwen3next", "qwen35moe", "qwen4exp"):

        def build(ops: Ops, arch: str = arch) -> Model:
            return drawn_model(shape_of(arch, 4, "tiny"), FORMATS["Q4_K"], ops, torch.device("cpu"))

        cases[arch] = build, 20 if emulated else 90
    for name, (make, length) in cases.items():
        try:
            out[f"equal {name}"] = equal(device, make, length)
        except Exception as error:  # noqa: BLE001 - one case that fails leaves the others
            out[f"equal {name}"] = {"failed": repr(error)}


def pretend(runner: DeviceRunner, slot: int, context: int) -> None:
    """The slot holds `context` tokens whose caches are random."""
    runner.seat(slot, [1] * context, SamplingParams())
    runner.states.reserve(slot, [1] * context, 0, keep=False)
    for layer in runner.states.layers:
        for plane in (layer.keys, layer.values, layer.raw_keys, layer.block_keys):
            if plane is not None:
                plane.data.normal_()
        for tensor in (layer.conv, layer.delta, layer.ngram):
            if tensor is not None:
                tensor.normal_().mul_(0.1)
    runner.states.commit(slot, context, runner.ops)


def decode_steps(runner: DeviceRunner, slots: int, tokens: int) -> list[float]:
    """Seconds of every step of greedy decoding."""
    last, seconds = dict.fromkeys(range(slots), 1), []
    for _ in range(tokens):
        windows = [Window(slot, runner.states.length[slot], (token,), 1) for slot, token in last.items()]
        began = time.perf_counter()
        for result in runner.step(windows):
            last[result.slot] = result.drawn[-1].token
        seconds.append(time.perf_counter() - began)
    return seconds


def weight_bytes_per_token(model: Model) -> float:
    """Of one row of one step: every dense matrix (the embedding's rows count nothing), top-k experts of a layer."""
    dense = sum(weight_bytes(w) for w in dense_weights(model)) - weight_bytes(model.embedding)  # type: ignore[attr-defined]
    for block in model.blocks:  # type: ignore[attr-defined]
        ngram = getattr(block, "ngram", None)
        if ngram is not None:
            dense -= sum(weight_bytes(shard) for shard in ngram.table.shards)
    share = model.shape.top_k / model.shape.experts
    return dense + share * sum(bank_bytes(bank) for bank in model.store.banks.values())


def decode(device: Device, name: str, layers: int, slots: int, steps: int) -> dict[str, object]:
    """Milliseconds per step and what that is of the memory's limit."""
    shape = shape_of("qwen4exp", layers)
    began = time.perf_counter()
    runner = runner_on(
        device, lambda ops: drawn_model(shape, FORMATS[name], ops, device.torch_device), slots, CONTEXT + 256
    )
    for slot in range(slots):
        pretend(runner, slot, CONTEXT)
    made = time.perf_counter() - began
    decode_steps(runner, slots, 4)
    seconds = statistics.median(decode_steps(runner, slots, steps))
    nbytes = weight_bytes_per_token(runner.model)
    result: dict[str, object] = {
        "layers": layers,
        "slots": slots,
        "step_ms": seconds * 1e3,
        "tokens_per_second": slots / seconds,
        "host_ms": {
            "reserve": runner.spent.reserve / runner.steps / 1e6,
            "draw": runner.spent.draw / runner.steps / 1e6,
            "commit": runner.spent.commit / runner.steps / 1e6,
        },
        "launches": [len(known.program) for known in runner.forwarder.recorded.values()],
        "weight_bytes_per_token": nbytes,
        "seconds_to_make": made,
    }
    if slots == 1:
        result["share_of_read"] = nbytes / seconds / 1e9 / READ_GB_PER_SECOND
    result["parts_ms"], result["whole_graph_ms"] = parts(runner, slots)
    return result


def parts(runner: DeviceRunner, slots: int) -> tuple[dict[str, float], float]:
    """Milliseconds of a step on the device by kind of layer, from events in the graph; without them, as one."""
    runner.forwarder.time()
    decode_steps(runner, slots, 3)
    before = runner.forwarder.times()
    began = time.perf_counter()
    decode_steps(runner, slots, 8)
    whole = (time.perf_counter() - began) / 8 * 1e3
    found: Counter[str] = Counter()
    for old, new in zip(before, runner.forwarder.times(), strict=True):
        found[kind_of(new.part)] += new.nanoseconds - old.nanoseconds
    return {name: ns / 8 / 1e6 for name, ns in found.most_common()}, whole


def kernels(device: Device, name: str, layers: int) -> dict[str, object]:
    """Microseconds per step of every kernel by torch's profiler, largest first."""
    shape = shape_of("qwen4exp", layers)
    runner = runner_on(device, lambda ops: drawn_model(shape, FORMATS[name], ops, device.torch_device), 1, CONTEXT + 64)
    pretend(runner, 0, CONTEXT)
    decode_steps(runner, 1, 4)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        decode_steps(runner, 1, 4)
    spent: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in profile.events():
        spent[event.name] += event.device_time_total
        calls[event.name] += 1
    return {
        kernel: {"us": round(us / 4, 2), "calls": calls[kernel] / 4, "us_each": round(us / calls[kernel], 2)}
        for kernel, us in spent.most_common(60)
    }


def run(device: Device, out: dict[str, object]) -> None:
    """What `benchmarks/device/all.py` calls."""
    equalities(device, out)
    if device.torch_device.type == "cpu":
        return
    cases: list[tuple[str, int, int]] = [("IQ3_S", PUBLISHED_LAYERS, 1)]
    cases += [(name, FEWER_LAYERS, 1) for name in FORMATS]
    cases += [("IQ3_S", FEWER_LAYERS, slots) for slots in (2, 4, 8)]
    for name, layers, slots in cases:
        key = f"decode {name} experts, {layers} layers, {slots} slots"
        try:
            out[key] = decode(device, name, layers, slots, 32)
        except Exception as error:  # noqa: BLE001 - one case that fails leaves the others
            out[key] = {"failed": repr(error)}
        torch.cuda.empty_cache()
    try:
        out["kernels, IQ3_S, 12 layers"] = kernels(device, "IQ3_S", FEWER_LAYERS)
    except Exception as error:  # noqa: BLE001 - as above
        out["kernels, IQ3_S, 12 layers"] = {"failed": repr(error)}


def main() -> None:
    """Print the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--emulator", action="store_true")
    parser.add_argument("--kernel-cache", type=Path, default=default_folder({}))
    asked = parser.parse_args()
    out: dict[str, object] = {}
    run(open_device("emulator" if asked.emulator else "cuda", asked.kernel_cache), out)
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
