"""`strata parity`."""

import json
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from oracles.build import build
from oracles.gguf_writer import write
from strata.cli import parity as command
from strata.cli.parity import parity
from strata.core.errors import UsageError
from strata.parity.production import engine

app = typer.Typer()
app.command()(parity)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return write(build("llama"), tmp_path_factory.mktemp("parity") / "m.gguf")


def run(*arguments: str, code: int = 0):
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def test_a_faultless_model_gives_a_table(path):
    out = run(str(path), "--naive").stdout.splitlines()
    assert out[0].split() == ["operation", "layers", "worst", "tolerance", "where"]
    names = [line.split("  ")[0] for line in out[1:-1]]
    assert names[0] == "embed (y)" and names[-1] == "logits" and "attention.q (y)" in names
    assert out[-1].endswith("on 48 tokens, plain floats")


def test_the_compiled_operations_pass_too(path):
    assert json.loads(run(str(path), "--json", "--tokens", "5,6,7").stdout)["passed"] is True


def test_a_fault_exits_1_and_is_named(path, monkeypatch):
    """The comparison is not blind: one operation that is off shows in the exit code, the table and the JSON."""

    def spoiled(ops, apart):
        honest = engine(ops, apart)

        def run_spoiled(*arguments):
            taps, logits = honest(*arguments)
            off = [(n, {**t, "y": t["y"] * 1.01} if n == "blk.2.ffn" else t) for n, t in taps]
            return off, logits

        return run_spoiled

    monkeypatch.setattr(command, "engine", spoiled)
    result = run(str(path), "--naive", code=1)
    assert "first operation beyond tolerance: blk.2.ffn (y): 0.01 beyond 0.0003" in result.stderr
    assert any(line.startswith("ffn (y)") and "beyond" in line for line in result.stdout.splitlines())
    found = json.loads(run(str(path), "--naive", "--json", code=1).stdout)
    assert found["passed"] is False and found["first"]["op"] == "blk.2.ffn"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tokens", "5,199"), "--tokens: expected numbers from 0 to 198, found '199'"),
        (("--tokens", "5,x"), "found 'x'"),
        (("--chunks", "0"), "--chunks: expected numbers from 1"),
        (("--tokens", "5", "--prompt", "hi"), "expected one of them"),
    ],
)
def test_what_cannot_be_honoured_is_said(path, arguments, message):
    with pytest.raises(UsageError, match=message):
        run(str(path), "--naive", *arguments)
