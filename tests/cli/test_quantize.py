"""`strata quantize`."""

import json
from pathlib import Path

import numpy as np
import pytest

from chat.tiny_tokenizer import CORPUS
from convert.making import values
from strata.checkpoint.gguf import open_gguf
from strata.cli.main import run
from strata.convert import imatrix
from strata.convert.shapes import shape_of
from strata.convert.synth import synth
from strata.convert.types import Types


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with a tokenizer, in BF16."""
    path = tmp_path_factory.mktemp("quantize") / "source.gguf"
    synth(path, shape_of("qwen3moe", "tiny", 2, 300), Types("BF16"), 3, 0.5, lambda *_: None)
    return path


def call(*words: object) -> int:
    return run(["quantize", *(str(w) for w in words)], {})


def formats(path: Path) -> dict[str, str]:
    with open_gguf(path) as file:
        return {name: ref.format.name for name, ref in file.tensors.items()}


def test_formats_by_option(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "q.gguf"
    words = ["--type", "q8_0", "--expert-type", "q4_0", "--down-type", "iq4_nl", "--embedding-type", "f16"]
    assert call(source, out, *words, "--tensor-type", r"blk\.1\.attn_v=Q5_0") == 0
    found = formats(out)
    assert found["blk.0.attn_v.weight"] == "Q8_0" and found["blk.1.attn_v.weight"] == "Q5_0"
    assert found["blk.0.ffn_up_exps.weight"] == "Q4_0" and found["blk.1.ffn_down_exps.weight"] == "IQ4_NL"
    assert found["output.weight"] == found["token_embd.weight"] == "F16"
    shown = capsys.readouterr().out
    assert "routers stay F32: blk.*.ffn_gate_inp" in shown and "Other than asked" in shown


def test_a_calibrated_file(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, saved = tmp_path / "text.txt", tmp_path / "saved.gguf"
    text.write_text(CORPUS[:300], "utf-8")
    only = ["--type", "Q8_0", "--tensor-type", "blk.1.ffn_up_exps=IQ2_XXS"]
    assert call(source, tmp_path / "none.gguf", *only) == 2
    assert "give --calibrate TEXT_FILE or --imatrix FILE" in capsys.readouterr().err
    assert call(source, tmp_path / "a.gguf", *only, "--calibrate", text, "--save-imatrix", saved) == 0
    assert "calibrate 100%" in capsys.readouterr().err
    assert call(source, tmp_path / "b.gguf", *only, "--imatrix", saved) == 0
    name = "blk.1.ffn_up_exps.weight"
    assert np.array_equal(values(tmp_path / "a.gguf", name), values(tmp_path / "b.gguf", name))
    with open_gguf(tmp_path / "a.gguf") as file:
        assert file.types["quantize.imatrix.dataset"].value == "text.txt"
    columns = imatrix.load(saved)
    columns[name].sums[:] = columns[name].sums[:, ::-1]
    imatrix.save(tmp_path / "turned.gguf", columns, [], 1, 1)
    assert call(source, tmp_path / "c.gguf", *only, "--imatrix", tmp_path / "turned.gguf") == 0
    assert not np.array_equal(values(tmp_path / "c.gguf", name), values(tmp_path / "a.gguf", name))  # control


def test_dry_run(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(source, tmp_path / "q.gguf", "--type", "Q4_K", "--dry-run", "--json") == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["written"] is False and not list(tmp_path.iterdir())
    assert call(source, tmp_path / "q.gguf", "--type", "Q4_K", "--json") == 0
    done = json.loads(capsys.readouterr().out)
    assert {**done, "written": False} == planned
    with open_gguf(tmp_path / "q.gguf") as file:
        assert sum(r.nbytes for r in file.tensors.values()) == planned["bytes"]


def test_the_source_is_never_touched(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = source.read_bytes()
    link = tmp_path / "link.gguf"
    link.symlink_to(source)
    for target in (source, link):
        assert call(source, target, "--type", "Q8_0", "--force") == 2
        assert "would overwrite its own source" in capsys.readouterr().err
    assert source.read_bytes() == before


def test_wrong_words(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "empty").write_text("")
    out = tmp_path / "o.gguf"
    base = (source, out, "--type", "Q8_0")
    for words, text in (
        ((source, out), "--type"),
        ((source, out, "--type", "Q4_K_M"), "mix of formats"),
        ((*base, "--tensor-type", "attn"), "expected REGEX=FORMAT"),
        ((*base, "--tensor-type", "nothing=F16"), "no tensor's name matches"),
        ((*base, "--mtp-type", "F16"), "no drafting layer"),
        ((*base, "--calibrate", tmp_path / "none"), "cannot be read as text"),
        ((*base, "--calibrate", tmp_path / "bytes"), "cannot be read as text"),
        ((*base, "--calibrate", tmp_path / "empty"), "found 0 tokens"),
        ((*base, "--calibrate", source, "--imatrix", source), "found both"),
        ((*base, "--save-imatrix", out), "nothing is measured without --calibrate"),
        ((*base, "--threads", "-1"), "--threads"),
    ):
        assert call(*words) == 2, words
        assert text in capsys.readouterr().err
    assert call(*base, "--imatrix", source) == 1
    assert "expected 'imatrix'" in capsys.readouterr().err
    assert not out.exists()


def test_feedback(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text(f"{CORPUS[:150]}<|endoftext|>{CORPUS[150:300]}", "utf-8")
    # Few matrices: choosing every code of all experts' would say no more.
    words = ["--type", "f16", "--tensor-type", r"blk\.0\.attn_q|blk\.1\.attn_k=q4_0", "--calibrate", text]
    assert call(source, tmp_path / "plain.gguf", *words) == 0
    assert call(source, tmp_path / "fed.gguf", *words, "--feedback") == 0
    assert formats(tmp_path / "plain.gguf") == formats(tmp_path / "fed.gguf")
    for name in ("blk.0.attn_q.weight", "blk.1.attn_k.weight"):
        assert formats(tmp_path / "fed.gguf")[name] == "Q4_0"
        assert not np.array_equal(values(tmp_path / "plain.gguf", name), values(tmp_path / "fed.gguf", name))
    capsys.readouterr()
    assert call(source, tmp_path / "out.gguf", "--type", "q4_0", "--feedback") != 0
    assert "--feedback: needs what the model reads" in capsys.readouterr().err
    assert call(source, tmp_path / "out.gguf", *words, "--feedback", "--save-imatrix", tmp_path / "i.gguf") != 0
    assert "--save-imatrix: --feedback measures something else" in capsys.readouterr().err
    assert not (tmp_path / "out.gguf").exists()
