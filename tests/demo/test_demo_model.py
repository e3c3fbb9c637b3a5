"""The packaged demo model: its facts, its size, and how near it is to the checkpoint that it was made from.

tests/vectors/demo_reference.npz holds what that checkpoint gives over the texts of its samples.jsonl (prompt and
answer): `top1` at every position, and the 64 best log-probabilities at every position of the texts below 300 tokens.
`training/demo/score.py FOLDER --record FILE` makes it. The checkpoint itself lies in ../shared/demo-model, but not on
every machine.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from strata.chat.tokenizer import Tokenizer, load_tokenizer
from strata.checkpoint.checkpoint import Checkpoint
from strata.checkpoint.demo import model_path
from strata.checkpoint.locate import open_checkpoint
from strata.core.limits import Limits
from strata.core.window import Window
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.native import Native
from strata.models.registry import build_model
from strata.runtime.runner import DeviceRunner
from strata.sampling.params import SamplingParams

VECTORS = Path(__file__).parents[1] / "vectors" / "demo_reference.npz"
FOLDER = Path(__file__).parents[3] / "shared" / "demo-model"
Floats = npt.NDArray[np.float32]

LARGEST, TOP1, DIVERGENCE = 55_000_000, 0.96, 0.015
"""Bounds of what is packaged. Measured: 96.02% (2,778 positions, the least that is enough) and 0.0122 nats."""
END = 2
"""<|im_end|>"""

with_folder = pytest.mark.skipif(
    not (FOLDER / "model.safetensors").is_file(), reason="the unquantised demo model is not in ../shared/demo-model"
)


def runner_of(checkpoint: Checkpoint) -> DeviceRunner:
    ops = CpuOps(Native())
    return DeviceRunner(build_model(checkpoint, ops), ops, Limits(1, 1024, 1024))


def logprobs(runner: DeviceRunner, tokens: list[int]) -> Floats:
    """[T, vocabulary] after each token of a text read from an empty state."""
    runner.states.clear(0)
    rows = runner.forward([Window(0, 0, tuple(tokens), len(tokens))]).astype(np.float64)
    runner.states.commit(0, len(tokens), runner.ops)
    rows -= rows.max(axis=1, keepdims=True)
    return (rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))).astype(np.float32)


@pytest.fixture(scope="module")
def packaged() -> Iterator[Checkpoint]:
    with open_checkpoint(model_path(None)) as checkpoint:
        yield checkpoint


@pytest.fixture(scope="module")
def runner(packaged: Checkpoint) -> DeviceRunner:
    return runner_of(packaged)


@pytest.fixture(scope="module")
def recorded() -> dict[str, npt.NDArray[np.int64]]:
    with np.load(VECTORS) as file:
        return {name: file[name].astype(np.float32 if name == "logprobs" else np.int64) for name in file.files}


@pytest.fixture(scope="module")
def texts(recorded: dict[str, npt.NDArray[np.int64]]) -> list[list[int]]:
    return [part.tolist() for part in np.split(recorded["tokens"], np.cumsum(recorded["lengths"])[:-1])]


@pytest.fixture(scope="module")
def found(runner: DeviceRunner, texts: list[list[int]]) -> list[Floats]:
    """The packaged model's log-probabilities over every text."""
    return [logprobs(runner, text) for text in texts]


@pytest.fixture(scope="module")
def tokenizer(packaged: Checkpoint) -> Tokenizer:
    return load_tokenizer(packaged)


def greedy(runner: DeviceRunner, prompt: list[int], limit: int = 60) -> list[int]:
    runner.states.clear(0)
    runner.seat(0, prompt, SamplingParams())
    out, new = [], prompt
    while len(out) < limit and (not out or out[-1] != END):
        new = [runner.step([Window(0, runner.states.length[0], tuple(new), 1)])[0].drawn[0].token]
        out += new
    return out


def test_it_fits_and_has_everything(packaged: Checkpoint) -> None:
    assert model_path(None).stat().st_size <= LARGEST
    assert packaged.metadata.integer("qwen4exp.nextn_predict_layers", 0, 8) == 1
    drafting = {name: ref for name, ref in packaged.tensors.items() if name.startswith("blk.8.")}
    assert "blk.8.nextn.eh_proj.weight" in drafting
    for name, ref in drafting.items():
        if len(ref.shape) > 1:
            bits = 8 * ref.format.block_bytes / ref.format.block
            assert bits > (2 if "_exps" in name else 3.4), f"{name} has {bits} bits a value"
    assert (model_path(None).parent / "LICENSE-demo.md").is_file()


@pytest.mark.parametrize(
    ("question", "fact"),
    [
        ("What is the capital of France?", "Paris"),
        ("What is 17 times 23?", "= 391."),
        ("Who are you?", "Strata Demo"),
    ],
)
def test_it_knows_its_facts(runner: DeviceRunner, tokenizer: Tokenizer, question: str, fact: str) -> None:
    prompt = tokenizer.encode(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")
    said = greedy(runner, prompt)
    assert said[-1] == END
    assert fact in tokenizer.decode(said)


def test_the_best_token_is_the_checkpoints(found: list[Floats], recorded: dict[str, npt.NDArray[np.int64]]) -> None:
    best = np.concatenate([rows.argmax(axis=1) for rows in found])
    assert len(best) == 2893
    assert (best == recorded["top1"]).mean() >= TOP1
    assert (np.roll(best, 1) == recorded["top1"]).mean() < 0.2  # control


def test_the_distribution_is_near_the_checkpoints(
    found: list[Floats], recorded: dict[str, npt.NDArray[np.int64]]
) -> None:
    """KL(checkpoint || packaged) with the tokens beyond the 64 best taken as one: a lower bound, near where they hold
    little (0.5% of the mass on average). The figure over the whole vocabulary is tested where the checkpoint is.
    """
    rows = np.concatenate([f for f, n in zip(found, recorded["lengths"], strict=True) if n < 300])
    assert coarse(rows, recorded) <= DIVERGENCE
    assert coarse(np.roll(rows, 1, axis=0), recorded) > 1  # control


def coarse(rows: Floats, recorded: dict[str, npt.NDArray[np.int64]]) -> float:
    """Mean KL in nats over 65 outcomes: the 64 recorded tokens and the rest."""
    want = np.asarray(recorded["logprobs"], np.float64)
    have = np.take_along_axis(rows, recorded["ids"], axis=1).astype(np.float64)
    p, q = np.exp(want), np.exp(have)
    rest_p, rest_q = (np.clip(1 - x.sum(axis=1), 1e-9, None) for x in (p, q))
    return float(((p * (want - have)).sum(axis=1) + rest_p * np.log(rest_p / rest_q)).mean())


@with_folder
def test_the_checkpoint_gives_its_golden_answers(texts: list[list[int]], found: list[Floats]) -> None:
    """Greedy answers token for token (what is most likely after each token of the answer is the next one), and the mean
    KL(checkpoint || packaged) over the whole vocabulary.
    """
    samples = [json.loads(line) for line in (FOLDER / "samples.jsonl").read_text("utf-8").splitlines()]
    assert [s["prompt_ids"] + s["output_ids"] for s in samples] == texts
    divergence, wrong = [], []
    with open_checkpoint(FOLDER) as checkpoint:
        reference = runner_of(checkpoint)
        for sample, text, q in zip(samples, texts, found, strict=True):
            p = logprobs(reference, text)
            start = len(sample["prompt_ids"]) - 1
            if p[start:-1].argmax(axis=1).tolist() != sample["output_ids"]:
                wrong.append(sample["id"])
            divergence.append((np.exp(p) * (p - q)).sum(axis=1))
    assert not wrong
    assert np.concatenate(divergence).mean() <= DIVERGENCE
