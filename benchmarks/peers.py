"""The engines that compare_peers.py runs: their commands, and how their output is read."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parent.parent

DECODE_TOKENS = 32
SLOTS, SLOTS_PROMPT = 4, 64
"""The test of slots: this many sequences that have read this many tokens each."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: kind is decode (behind `size` tokens), prompt (of `size` tokens) or slots (`size` of them)."""

    kind: str
    size: int

    @property
    def name(self) -> str:
        """As in results."""
        return f"{self.kind} {self.size}"


TESTS = (
    Figure("decode", 0),
    Figure("decode", 4096),
    Figure("decode", 16384),
    Figure("prompt", 512),
    Figure("prompt", 4096),
    Figure("slots", SLOTS),
)


def figure_of(text: str) -> Figure:
    """The test written as kind:size; ValueError for another kind."""
    kind, _, size = text.partition(":")
    if kind not in ("decode", "prompt", "slots"):
        raise ValueError(f"test {text!r}: expected decode:N, prompt:N or slots:N")
    return Figure(kind, int(size))


@dataclass(frozen=True, slots=True)
class Run:
    """What one child process is asked for."""

    model: Path
    test: Figure
    threads: int
    repeats: int


class Engine(Protocol):
    """One engine as a command."""

    @property
    def name(self) -> str:
        """As in results."""
        ...

    def command(self, run: Run) -> list[str] | None:
        """The command line; None when this engine has no such test here."""
        ...

    def rates(self, run: Run, output: str) -> list[float]:
        """Tokens per second of every repetition; ValueError when the output lacks them."""
        ...

    def details(self, output: str) -> dict[str, object]:
        """What else the result should keep."""
        ...


def strata(checkout: Path) -> list[str]:
    """The `strata` command of a checkout."""
    return ["env", f"PYTHONPATH={checkout / 'src'}", sys.executable, "-m", "strata"]


@dataclass(frozen=True, slots=True)
class Llama:
    """llama.cpp: f16 keys and values, mapped file, its own choice of flash attention and repacking."""

    bench: Path
    name: str = "llama.cpp"

    def command(self, run: Run) -> list[str] | None:
        """See Engine."""
        words = ["-m", str(run.model), "-t", str(run.threads)]
        if run.test.kind == "slots":
            batched = self.bench.with_name("llama-batched-bench")
            return [str(batched), *words, *batched_words(run.test.size)] if batched.is_file() else None
        words = [str(self.bench), *words, "-r", str(run.repeats), "-o", "jsonl"]
        if run.test.kind == "prompt":
            return [*words, "-p", str(run.test.size), "-n", "0"]
        return [*words, "-p", "0", "-n", str(DECODE_TOKENS), "-d", str(run.test.size)]

    def rates(self, run: Run, output: str) -> list[float]:
        """See Engine."""
        if run.test.kind == "slots":
            return batched_rates(run.test.size, output)
        return samples(json.loads(output))

    def details(self, output: str) -> dict[str, object]:
        """See Engine."""
        return {}


@dataclass(frozen=True, slots=True)
class Ik:
    """ik_llama.cpp: as llama.cpp, but it reads a prompt again for each run: deep decode tests have one per process."""

    bench: Path
    name: str = "ik_llama.cpp"

    def command(self, run: Run) -> list[str] | None:
        """See Engine."""
        words = ["-m", str(run.model), "-t", str(run.threads)]
        if run.test.kind == "slots":
            batched = self.bench.with_name("llama-batched-bench")
            return [str(batched), *words, *batched_words(run.test.size)] if batched.is_file() else None
        deep = run.test.kind == "decode" and run.test.size >= 4096
        words = [str(self.bench), *words, "-r", str(1 if deep else run.repeats), "-o", "json"]
        if run.test.kind == "prompt":
            return [*words, "-p", str(run.test.size), "-n", "0"]
        if run.test.size:
            return [*words, "-p", "0", "-n", "0", "-gp", f"{run.test.size},{DECODE_TOKENS}"]
        return [*words, "-p", "0", "-n", str(DECODE_TOKENS)]

    def rates(self, run: Run, output: str) -> list[float]:
        """See Engine."""
        if run.test.kind == "slots":
            return batched_rates(run.test.size, output)
        (line,) = json.loads(output[output.index("[") :])
        return samples(line)

    def details(self, output: str) -> dict[str, object]:
        """See Engine."""
        return {}


@dataclass(frozen=True, slots=True)
class Ours:
    """This checkout (or another): ids drawn at random as the peers do it, the choice of every token included."""

    checkout: Path = ROOT
    flags: Sequence[str] = ()
    name: str = "strata"

    def command(self, run: Run) -> list[str] | None:
        """See Engine."""
        kind, size = run.test.kind, run.test.size
        words = [*strata(self.checkout), "bench", "prompt" if kind == "prompt" else "decode", str(run.model)]
        words += ["--threads", str(run.threads), "--repeat", str(run.repeats), "--drawn", "--json", *self.flags]
        if kind == "prompt":
            return [*words, "--context", str(size)]
        if kind == "slots":
            return [*words, "--context", str(SLOTS_PROMPT), "--tokens", str(DECODE_TOKENS), "--slots", str(size)]
        return [*words, "--context", str(size), "--tokens", str(DECODE_TOKENS)]

    def rates(self, run: Run, output: str) -> list[float]:
        """See Engine."""
        return [float(rate) for rate in json.loads(output)["runs"]]

    def details(self, output: str) -> dict[str, object]:
        """See Engine."""
        line = json.loads(output)
        return {name: line[name] for name in ("bytes_per_step", "state_bytes_per_step", "gb_per_second")}


@dataclass(frozen=True, slots=True)
class Memory:
    """No engine: what a plain read by the same threads gives in its turn; a shared host changes within minutes."""

    checkout: Path = ROOT
    name: str = "memory"

    def command(self, run: Run) -> list[str] | None:
        """See Engine; decoding only, which is what memory bounds."""
        if run.test.kind != "decode":
            return None
        words = [*strata(self.checkout), "bench", "kernels", "--only", "read", "--mb", "512", "--json"]
        return [*words, "--threads", str(run.threads), "--repeat", str(run.repeats)]

    def rates(self, run: Run, output: str) -> list[float]:
        """GB/s instead of tokens: the median of the repetitions."""
        return [float(json.loads(output)["gb_per_second"])]

    def details(self, output: str) -> dict[str, object]:
        """See Engine."""
        return {}


def samples(line: Mapping[str, object]) -> list[float]:
    """llama-bench's rates."""
    found = line.get("samples_ts")
    if not isinstance(found, list) or not found:
        raise ValueError(f"no samples_ts in {json.dumps(line)[:200]}")
    return [float(rate) for rate in found]


def batched_words(slots: int) -> list[str]:
    """llama-batched-bench for one number of sequences."""
    each = SLOTS_PROMPT + DECODE_TOKENS
    words = ["-c", str(slots * each + 64), "-npp", str(SLOTS_PROMPT), "-ntg", str(DECODE_TOKENS)]
    return [*words, "-npl", str(slots)]


def batched_rates(slots: int, output: str) -> list[float]:
    """The decode rate of all sequences together, from a table: PP TG B N_KV T_PP S_PP T_TG S_TG T S."""
    for text in output.splitlines():
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
        if len(cells) == 10 and cells[2] == str(slots):
            return [float(cells[7])]
    raise ValueError(f"no line of {slots} sequences in {output[-200:]!r}")
