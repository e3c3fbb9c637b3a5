"""Ours beside llama.cpp's CUDA build on one GPU and one GGUF file, at equal VRAM.

    PYTHONPATH=src python benchmarks/device/compare_llama.py MODEL.gguf --llama B/bin/llama-bench
        [--share 1 --share 0.5 ...] [--behind 512] [--prompt 2048] [--repeats 5] [--seconds 300] [--out FILE.jsonl]

For every share of the experts' bytes in VRAM llama.cpp keeps the experts of its first layers on the CPU
(`--n-cpu-moe`) while nvidia-smi tells the memory in use. Ours then runs in one process (ours_at_budgets.py), with no
more VRAM than llama.cpp had at the peak of the same test; a run that had more does not count. One JSON line for every
test, medians and ratios at the end. Both choose their own number of CPU threads. `--theirs FILE` in the place of
`--llama` takes llama.cpp's lines from an earlier comparison of the same file on such a machine.

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
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vram_watch import VramWatch

from strata.checkpoint.locate import open_checkpoint

ROOT = Path(__file__).resolve().parents[2]
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


def limits_of(theirs: Sequence[Line], experts: Experts) -> list[Line]:
    """What ours may have in each test (ours_at_budgets.Limit), by what llama.cpp had."""
    return [
        {
            "layers_on_cpu": line["layers_on_cpu"],
            "kind": line["test"].split()[0],
            "size": int(line["test"].split()[1]),
            "expert_mib": experts.vram_bytes(line["layers_on_cpu"]) >> 20,
            "most_mib": line["peak_vram_mib"],
        }
        for line in theirs
        if line["rates"]
    ]


class Comparison:
    """The runs, written down one by one."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.experts = Experts.of(options.model)
        self.deadline = time.monotonic() + options.seconds
        self.lines: list[Line] = []

    def run(self) -> None:
        """Theirs, or what was measured of them before; then ours."""
        if self.options.theirs is not None:
            lines = map(json.loads, self.options.theirs.read_text().splitlines())
            theirs = [self.kept(line) for line in lines if line["engine"] == "llama.cpp"]
        else:
            figures = [Figure("decode", self.options.behind), Figure("prompt", self.options.prompt)]
            theirs = [self.llama(figure, self.experts.on_cpu(x)) for figure in figures for x in self.options.share]
        self.ours(limits_of(theirs, self.experts))

    def llama(self, figure: Figure, on_cpu: int) -> Line:
        """llama.cpp in one test."""
        command = llama_command(self.options.llama, self.options.model, figure, on_cpu, self.options.repeats)
        line: Line = {"engine": "llama.cpp", "test": figure.name, "layers_on_cpu": on_cpu}
        # Where things lie on this machine says nothing to a reader elsewhere.
        line["command"] = [re.sub(r"\S*/", "", word) for word in command]
        began, left = time.monotonic(), min(LIMIT_S, self.deadline - time.monotonic())
        line |= finished(command, left) if left > 5 else {"output": "", "error": "left out: no time"}
        try:
            line |= {"rates": llama_rates(line.pop("output")), "counts": "error" not in line}
        except (ValueError, KeyError) as error:
            line |= {"rates": [], "counts": False, "error": line.get("error", str(error))}
        return self.kept(line | {"wall_seconds": round(time.monotonic() - began, 1)})

    def ours(self, limits: list[Line]) -> None:
        """Ours in all tests, from one start."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "limits.json"
            file.write_text(json.dumps(limits))
            script = Path(__file__).with_name("ours_at_budgets.py")
            command = [sys.executable, str(script), str(self.options.model), "--limits", str(file)]
            command += ["--repeats", str(self.options.repeats), "--device", self.options.device]
            command += ["--seconds", str(max(0.0, self.deadline - time.monotonic()))]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ran:
                assert ran.stdout is not None
                for text in ran.stdout:
                    self.kept(json.loads(text))
            if ran.returncode:
                raise SystemExit(f"{script.name}: exit code {ran.returncode}")

    def kept(self, line: Line) -> Line:
        """The line, which now is among the results."""
        line = {"bench": "gpu peers", "model": self.options.model.name, "layers": self.experts.layers, **line}
        self.lines.append(line)
        with self.options.out.open("a") as out:
            out.write(json.dumps(line) + "\n")
        sys.stderr.write(f"{said(line)}\n")
        return line


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
    parser.add_argument("--llama", type=Path, help="llama-bench of a CUDA build")
    parser.add_argument("--theirs", type=Path, help="instead: results that have llama.cpp's lines")
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
    if (options.llama is None) == (options.theirs is None):
        parser.error("expected one of --llama and --theirs")
    options.share = options.share or [1.0, 0.5, 0.25]
    return options


def main() -> int:
    comparison = Comparison(parsed())
    comparison.run()
    sys.stdout.write(table(comparison.lines))
    return 0 if all("error" not in line for line in comparison.lines) else 3


if __name__ == "__main__":
    sys.exit(main())
