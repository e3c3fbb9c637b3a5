"""Ours beside llama.cpp's CUDA build on one GPU and one GGUF file, at equal VRAM.

    PYTHONPATH=src python benchmarks/device/compare_llama.py MODEL.gguf --llama B/bin/llama-bench
        [--share 1 --share 0.5 ...] [--behind 512] [--prompt 2048] [--repeats 5] [--seconds 300] [--out FILE.jsonl]

For every share of the experts' bytes in VRAM llama.cpp keeps the experts of its first layers on the CPU
(`--n-cpu-moe`), and ours gets the same bytes by `--vram-gib`. Meanwhile nvidia-smi is asked for the memory in use; a
run of ours that had more at its peak than llama.cpp's does not count and is repeated with so much less. One JSON line
for every process, medians and ratios at the end. Both choose their own number of CPU threads.

llama.cpp gets what suits it: all layers on the GPU, flash attention, host copies of the experts in pinned memory
(`--load-mode none`), and of two sizes of its micro-batch (512 and 2,048) the faster one for prompts. Keys and values
take 2 bytes each in both. All ids are drawn at random.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

from strata.checkpoint.locate import open_checkpoint

ROOT = Path(__file__).resolve().parents[2]
GIB = 1 << 30
EQUAL_MIB = 64
"""So much more at the peak still counts as equal."""
LIMIT_S = 120.0
"""A process that takes longer is ended."""
MICRO_BATCHES = (512, 2048)
GENERATED = 64

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Experts:
    """How many layers have experts, and their bytes in all."""

    layers: int
    total_bytes: int

    @classmethod
    def of(cls, model: Path) -> "Experts":
        """Of a GGUF file. ValueError when it has no experts."""
        found = [t for name, t in open_checkpoint(model).tensors.items() if "_exps." in name]
        layers = len({t.name.split(".")[1] for t in found})
        if not layers:
            raise ValueError(f"{model}: expected a model with experts, found no tensor named *_exps")
        return cls(layers, sum(t.nbytes for t in found))

    def on_cpu(self, share: float) -> int:
        """Layers whose experts llama.cpp keeps on the CPU so that about `share` of the bytes are in VRAM."""
        return self.layers - round(share * self.layers)

    def vram_bytes(self, on_cpu: int) -> int:
        """Bytes of experts in VRAM when those of `on_cpu` layers are not."""
        return self.total_bytes * (self.layers - on_cpu) // self.layers


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: "decode" behind `size` tokens, or a "prompt" of `size`."""

    kind: str
    size: int

    @property
    def name(self) -> str:
        """As in results."""
        return f"{self.kind} {self.size}"


class VramWatch:
    """The memory in use on the GPU while a process runs, in MiB; None where nvidia-smi does not tell."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.ended = Event()
        self.thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "VramWatch":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()

    @property
    def peak_mib(self) -> int | None:
        """The most that was seen."""
        return max(self.seen, default=None)

    def _watch(self) -> None:
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        while not self.ended.wait(0.25):
            try:
                said = subprocess.run(query, capture_output=True, text=True, check=True, timeout=5)
                self.seen.append(int(said.stdout.split()[0]))
            except (OSError, subprocess.SubprocessError, ValueError, IndexError):
                return


def llama_command(bench: Path, model: Path, test: Figure, on_cpu: int, repeats: int) -> list[str]:
    """llama-bench for one test with the experts of `on_cpu` layers on the CPU."""
    words = [str(bench), "-m", str(model), "-ngl", "99", "-ncmoe", str(on_cpu), "-fa", "on", "-lm", "none"]
    words += ["-r", str(repeats), "-o", "jsonl"]
    if test.kind == "prompt":
        return [*words, "-p", str(test.size), "-n", "0", "-ub", ",".join(map(str, MICRO_BATCHES))]
    return [*words, "-p", "0", "-n", str(GENERATED), "-d", str(test.size)]


def llama_rates(output: str) -> list[float]:
    """Tokens per second of the repetitions, of the faster line where there are several. ValueError without any."""
    lines = [json.loads(text) for text in output.splitlines() if text.startswith("{")]
    if not lines:
        raise ValueError(f"expected JSON lines of llama-bench, found {output[-200:]!r}")
    return max(([float(x) for x in line["samples_ts"]] for line in lines), key=statistics.median)


def our_command(model: Path, test: Figure, vram_bytes: int | None, repeats: int, device: str = "cuda") -> list[str]:
    """`strata bench` for one test with `vram_bytes` for experts (None: all of them)."""
    words = [sys.executable, "-m", "strata", "bench"]
    words += [test.kind, str(model), "--context", str(test.size), "--repeat", str(repeats), "--drawn", "--json"]
    words += ["--kv-type", "bf16", "--device", device]
    words += ["--vram-gib", "auto" if vram_bytes is None else f"{vram_bytes / GIB:.4f}"]
    return words if test.kind == "prompt" else [*words, "--tokens", str(GENERATED)]


def our_rates(output: str) -> list[float]:
    """Tokens per second of the repetitions. ValueError without any."""
    lines = [json.loads(text) for text in output.splitlines() if text.startswith("{")]
    if not lines:
        raise ValueError(f"expected a JSON line of `strata bench`, found {output[-200:]!r}")
    return [float(x) for x in lines[-1]["runs"]]


class Comparison:
    """The runs, written down one by one."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.experts = Experts.of(options.model)
        self.deadline = time.monotonic() + options.seconds
        self.lines: list[Line] = []
        self.excess_mib = dict[str, int]()
        """By test: what ours had more than llama.cpp at its peak with the same bytes of experts."""

    def run(self) -> None:
        """Every share and test, as far as the time goes."""
        tests = [Figure("decode", self.options.behind), Figure("prompt", self.options.prompt)]
        for test in tests:
            for share in self.options.share:
                self.pair(test, self.experts.on_cpu(share))

    def pair(self, test: Figure, on_cpu: int) -> None:
        """llama.cpp, then ours with no more VRAM."""
        model, repeats = self.options.model, self.options.repeats
        line = {"test": test.name, "layers_on_cpu": on_cpu, "layers": self.experts.layers}
        command = llama_command(self.options.llama, model, test, on_cpu, repeats)
        theirs = self.kept(self.measure({"engine": "llama.cpp", **line}, command))
        room = self.experts.vram_bytes(on_cpu)
        for _ in range(2):
            less = self.excess_mib.get(test.name, 0) if on_cpu else 0
            budget = max(0, room - (less << 20))
            command = our_command(model, test, budget if on_cpu else None, repeats, self.options.device)
            ours = self.measure({"engine": "strata", **line, "expert_gib": round(budget / GIB, 3)}, command)
            more = over(ours, theirs) if on_cpu else 0
            ours["counts"] = ours["counts"] and more <= EQUAL_MIB
            self.kept(ours)
            if more <= EQUAL_MIB:
                return
            self.excess_mib[test.name] = less + more

    def measure(self, line: Line, command: Sequence[str]) -> Line:
        """What one process gave, or why it gave nothing."""
        left = min(LIMIT_S, self.deadline - time.monotonic())
        line |= {"bench": "gpu peers", "model": self.options.model.name, "counts": True}
        # Where things lie on this machine says nothing to a reader elsewhere.
        line["command"] = [re.sub(r"\S*/", "", word) for word in command]
        began = time.monotonic()
        if left < 5:
            line |= {"error": "left out: no time", "counts": False}
        else:
            line |= finished(command, left)
            line["rates"] = self.rates_of(line)
        line["wall_seconds"] = round(time.monotonic() - began, 1)
        return line

    def kept(self, line: Line) -> Line:
        """The line, which now is among the results."""
        self.lines.append(line)
        kept = {key: value for key, value in line.items() if key != "output"}
        with self.options.out.open("a") as out:
            out.write(json.dumps(kept) + "\n")
        sys.stderr.write(f"{said(line)}\n")
        return line

    def rates_of(self, line: Line) -> list[float]:
        """What the process printed; nothing, and the reason beside it, when it failed."""
        try:
            return (our_rates if line["engine"] == "strata" else llama_rates)(line["output"])
        except (ValueError, KeyError) as error:
            line.setdefault("error", str(error))
            line["counts"] = False
            return []


def over(ours: Line, theirs: Line) -> int:
    """MiB of VRAM that ours had more at its peak; 0 where one of them is not known."""
    mine, other = ours.get("peak_vram_mib"), theirs.get("peak_vram_mib")
    return 0 if mine is None or other is None else int(mine) - int(other)


def finished(command: Sequence[str], seconds: float) -> Line:
    """Output, peak of VRAM and, when it failed, the error of a process that may take `seconds`."""
    with VramWatch() as watch:
        try:
            ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
            found: Line = {"output": ran.stdout}
            if ran.returncode:
                found["error"] = f"exit code {ran.returncode}: {ran.stderr[-1500:]}"
        except subprocess.TimeoutExpired as error:
            found = {"output": "", "error": f"longer than {seconds:.0f} s: {str(error.stderr or '')[-500:]}"}
    return {**found, "peak_vram_mib": watch.peak_mib}


def said(line: Line) -> str:
    """One result in words."""
    rates = line.get("rates")
    rate = f"{statistics.median(rates):9.1f} tok/s" if rates else f"failed: {line.get('error')}"
    layers = f"{line['layers'] - line['layers_on_cpu']} of {line['layers']} layers' experts in VRAM"
    return f"{line['engine']:10} {line['test']:12} {layers} {rate} {line.get('peak_vram_mib')} MiB"


def table(lines: Sequence[Line]) -> str:
    """Medians (least to most), peaks of VRAM, and ours by llama.cpp's."""
    rows = ["| experts in VRAM | test | strata | llama.cpp | ratio | strata MiB | llama.cpp MiB |", "|---" * 7 + "|"]
    counted = [x for x in lines if x["counts"] and x.get("rates")]
    for on_cpu, layers, test in dict.fromkeys((x["layers_on_cpu"], x["layers"], x["test"]) for x in lines):
        cells, peaks, medians = list[str](), list[str](), list[float]()
        for engine in ("strata", "llama.cpp"):
            wanted = (engine, on_cpu, test)
            found = [x for x in counted if (x["engine"], x["layers_on_cpu"], x["test"]) == wanted]
            rates = [rate for x in found for rate in x["rates"]]
            if rates:
                medians.append(statistics.median(rates))
                cells.append(f"{medians[-1]:.1f} ({min(rates):.1f} to {max(rates):.1f})")
            else:
                cells.append("-")
            peaks.append(str(found[-1]["peak_vram_mib"]) if found else "-")
        ratio = f"{medians[0] / medians[1]:.2f}" if len(medians) == 2 else "-"
        rows.append(f"| {layers - on_cpu} of {layers} layers' | {test} | {' | '.join([*cells, ratio, *peaks])} |")
    return "\n".join(rows) + "\n"


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--llama", type=Path, required=True, help="llama-bench of a CUDA build")
    parser.add_argument(
        "--share", type=float, action="append", help="of the experts' bytes in VRAM; default: 1 0.5 0.25"
    )
    parser.add_argument("--behind", type=int, default=512, help="tokens before those that are decoded")
    parser.add_argument("--prompt", type=int, default=2048, help="tokens of a prompt")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cuda", help="of ours; emulator for a dry run")
    parser.add_argument("--seconds", type=float, default=1800.0, help="start nothing after this")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "gpu_peers.jsonl")
    options = parser.parse_args(words)
    options.share = options.share or [1.0, 0.5, 0.25]
    return options


def main() -> int:
    comparison = Comparison(parsed())
    comparison.run()
    sys.stdout.write(table(comparison.lines))
    return 0 if all(x["counts"] or "error" not in x for x in comparison.lines) else 3


if __name__ == "__main__":
    sys.exit(main())
