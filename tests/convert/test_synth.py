"""Random models: they load, run, and have the sizes that were asked for."""

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from convert.making import fast, values
from strata.chat.tokenizer import load_tokenizer
from strata.checkpoint.gguf import open_gguf
from strata.checkpoint.locate import open_checkpoint
from strata.convert.report import whole
from strata.convert.shapes import REAL, TINY, shape_of
from strata.convert.synth import POOL_ROWS, plan_synth, synth
from strata.convert.types import Types
from strata.core.errors import UsageError
from strata.parity.production import engine

ARCHS = tuple(TINY)


def make(path: Path, arch: str, types: Types, seed: int = 1, skew: float = 0.0, layers: int | None = None) -> Path:
    synth(path, shape_of(arch, "tiny", layers, None), types, seed, skew, lambda *_: None)
    return path


@pytest.mark.parametrize("arch", ARCHS)
def test_every_architecture_runs(tmp_path: Path, arch: str) -> None:
    path = make(tmp_path / "m.gguf", arch, Types("Q8_0", "Q4_0", "IQ4_NL"))
    with open_checkpoint(path) as checkpoint:
        tokenizer = load_tokenizer(checkpoint)
    ids = tokenizer.encode("the <|im_start|>user\nhi<|im_end|>") * 5
    assert tokenizer.decode(ids[:3]) == "the" and tokenizer.ids["<|im_end|>"] in tokenizer.stop_ids
    taps, found = engine(fast())(path, ids, [len(ids)])
    assert np.isfinite(found).all() and 0.5 < found.std() < 20
    # activations stay alive: no layer's output dies or explodes
    sizes = [t["y"].std() for name, t in taps if name.endswith((".moe", "attention", "delta_net"))]
    assert len(sizes) >= 8 and min(sizes) > 1e-3 and max(sizes) < 1e3


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    files = [make(tmp_path / f"{i}.gguf", "qwen3moe", Types("Q4_0"), seed) for i, seed in enumerate((1, 1, 2))]
    a, b, c = (f.read_bytes() for f in files)
    assert a == b and a != c and len(a) == len(c)


@pytest.mark.parametrize("skew", [0.0, 1.0])
def test_skew_makes_experts_hot(tmp_path: Path, skew: float) -> None:
    path = make(tmp_path / "m.gguf", "qwen3moe", Types("Q8_0", "Q4_0"), skew=skew)
    router = values(path, "blk.0.ffn_gate_inp.weight")
    lengths = np.linalg.norm(router, axis=1)
    assert (lengths.max() / lengths.min() > 3) == bool(skew)
    x = np.random.default_rng(0).standard_normal((2000, router.shape[1]))
    chosen = np.argsort(-(x @ router.T), axis=1)[:, :4]
    share = np.sort(np.bincount(chosen.flat, minlength=16))[::-1][:4].sum() / chosen.size
    assert (share > 0.38) == bool(skew)


def test_large_matrices_repeat_encoded_rows(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    shape = shape_of("qwen3moe", "tiny", 1, 3 * POOL_ROWS)
    choices = synth(
        path, shape, Types("Q4_0", embedding="Q4_0", patterns=[("attn_q.weight", "IQ2_XXS")]), 1, 0, lambda *_: None
    )
    read = {t.name: t for t in gguf.GGUFReader(path).tensors}
    assert set(read) == {c.item.name for c in choices}
    rows = values(path, "token_embd.weight")
    assert rows.shape == (3 * POOL_ROWS, 256) and len(np.unique(rows, axis=0)) <= POOL_ROWS
    with open_gguf(path) as file:
        assert sum(ref.nbytes for ref in file.tensors.values()) == whole(choices).nbytes


@pytest.mark.parametrize(
    ("arch", "layers", "least", "most"),
    [("qwen3moe", 48, 30.4e9, 30.7e9), ("qwen3next", 48, 79e9, 80e9), ("qwen35moe", 40, 34e9, 36e9)],
)
def test_real_shapes_have_the_published_sizes(arch: str, layers: int, least: float, most: float) -> None:
    assert REAL[arch].layers == layers
    assert least < whole(plan_synth(REAL[arch], Types("Q4_K"))).values < most


def test_flash_next_without_its_table() -> None:
    choices = plan_synth(REAL["qwen4exp"], Types("IQ3_S", down="IQ4_NL"))
    table = [c for c in choices if c.item.name == "per_layer_token_embd.weight"]
    rest = [c for c in choices if c.item.name != "per_layer_token_embd.weight"]
    assert 124e9 < whole(rest).values < 126e9 and table[0].format.name == "IQ4_NL"
    experts = [c for c in choices if c.item.name.startswith("blk.0.ffn") and "_exps" in c.item.name]
    assert sum(c.nbytes for c in experts) == 512 * 2_329_600


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: shape_of("qwen5", "tiny", None, None), "--arch 'qwen5': expected one of qwen3moe"),
        (lambda: shape_of("qwen3moe", "huge", None, None), "--scale 'huge': expected tiny or real"),
        (lambda: shape_of("qwen4exp", "tiny", 1, None), "--layers 1: expected 2 to 1024 for qwen4exp"),
        (lambda: shape_of("qwen3moe", "tiny", None, 100), "--vocabulary 100: expected 260 to 300000"),
    ],
)
def test_refusals(call: Callable[[], object], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        call()
