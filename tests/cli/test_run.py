"""`strata run` around a fake runner."""

import io
import json
import sys
from typing import Any

import pytest

from chat.tiny_tokenizer import tiny
from cli.fake_model import Scripted, loaded
from strata.cli import main as cli
from strata.cli import run as command


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the command with a scripted model; returns (exit code, runner)."""

    def go(*words: str, text: str = "Hello 😀 there", stdin: str = "", **environ: str) -> tuple[int, Scripted]:
        runner = Scripted(text)
        monkeypatch.setattr(command, "load", lambda model, wishes, log: loaded(runner))
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        return cli.run(["run", *words], environ), runner

    return go


def test_answer_on_stdout_and_figures_on_stderr(start: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, runner = start("-p", "Hi", "--system", "Be brief.")
    out = capsys.readouterr()
    assert (code, out.out) == (0, "Hello 😀 there\n")
    expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert runner.prompts == [tiny().encode(expected)]
    assert f"prompt {len(runner.prompts[0])} tokens" in out.err
    assert f"answer {len(tiny().encode('Hello 😀 there'))} tokens" in out.err


def test_raw_and_stdin(start: Any) -> None:
    code, runner = start("-p", "-", "--raw", stdin="Once upon")
    assert code == 0
    assert runner.prompts == [tiny().encode("Once upon")]


def test_reasoning_goes_to_stderr(start: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert start("-p", "Hi", "--think", text="hm\n</think>\n\nHello")[0] == 0
    out = capsys.readouterr()
    assert out.out == "Hello\n"
    assert "hm" in out.err


def test_json(start: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert start("-p", "Hi", "--json", "--stop", "ther")[0] == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["text"], value["stop"], value["finish_reason"]) == ("Hello 😀 ", "ther", "stop")


def test_max_tokens_from_the_environment(start: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert start("-p", "Hi", "--json", STRATA_MAX_TOKENS="2")[0] == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["answer_tokens"], value["finish_reason"]) == (2, "length")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "no prompt"),
        (["-p", "x", "--raw", "--system", "y"], 2, "--raw has no chat template"),
        (["-p", "x", "--stop", ""], 2, "--stop"),
        (["-p", "x", "--ctx-size", "nope"], 2, "--ctx-size"),
        (["-p", "x " * 400], 1, "do not fit the context of 256"),
        (["-p", "x", "--config", "/nonexistent"], 2, "cannot be read"),
    ],
)
def test_errors(start: Any, words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert start(*words)[0] == code
    assert said in capsys.readouterr().err
