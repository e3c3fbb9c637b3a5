"""`strata run` on the emulated GPU, with the demo: the CPU's tokens at a budget."""

import json
from pathlib import Path

import pytest

from strata.cli import main as cli


def answered(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    words = ["run", "--raw", "-p", "The cat", "--json", "--temp", "0", "--max-tokens", "2", "--ctx-size", "64"]
    assert cli.run([*words, "--parallel", "1", "--log-level", "warning", *flags], {}) == 0
    text = json.loads(capsys.readouterr().out)["text"]
    assert isinstance(text, str)
    return text


def test_the_demo_answers_with_the_cpus_tokens(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """About a third of its experts have frames in 10 MiB."""
    gpu = answered(capsys, "--device", "emulator", "--vram-gib", "0.01", "--cache-dir", str(tmp_path))
    assert gpu == answered(capsys, "--device", "cpu") != ""
    assert len(list((tmp_path / "profiles").glob("*.json"))) == 1


def test_budgets_that_no_device_has_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["run", "-p", "x", "--device", "cpu", "--vram-gib", "1"], {}) == 2
    assert "--vram-gib: experts have no VRAM on a CPU (as asked)" in capsys.readouterr().err
    assert cli.run(["run", "-p", "x", "--device", "emulator", "--vram-reserve-mib", "16000000"], {}) == 2
    said = capsys.readouterr().err
    assert "the GPU's memory is too small: weights that every step reads need" in said and "--device cpu" in said
