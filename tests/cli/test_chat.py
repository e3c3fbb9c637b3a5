"""`strata chat` around a fake runner."""

import io
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from chat.tiny_tokenizer import tiny
from cli.fake_model import Scripted, loaded
from strata.chat.conversation import Turn, load_conversation
from strata.chat.reader import Reading
from strata.cli import chat as command
from strata.cli import main as cli
from strata.cli.chat import Chat
from strata.cli.talk import Talker
from strata.core.log import Level, Log
from strata.plan.wishes import Wishes
from strata.sampling.params import SamplingParams


@pytest.fixture
def talker() -> Iterator[Talker]:
    model = loaded(Scripted("Hello there"))
    log = Log(Level.ERROR)
    model.engine.start()
    yield Talker(model.engine, load_conversation(model.checkpoint, log), SamplingParams(), Wishes(), log)
    model.engine.stop()


def test_turns_are_kept_and_forgotten(talker: Talker, capsys: pytest.CaptureFixture[str]) -> None:
    chat = Chat(talker)
    assert chat.handle("Hi")
    assert chat.handle("And?")
    assert [t.role for t in chat.turns] == ["user", "assistant", "user", "assistant"]
    assert chat.turns[1] == Turn("assistant", "Hello there")
    assert capsys.readouterr().out == "Hello there\nHello there\n"
    chat.handle("/reset")
    assert chat.turns == []
    chat.handle("Hi")
    chat.handle("/system Be brief.")
    assert (chat.system, chat.turns) == ("Be brief.", [])


def test_where_turns_end_is_told_to_the_engine(talker: Talker) -> None:
    conversation = talker.conversation
    prompt = conversation.prompt([Turn("system", "Be brief."), Turn("user", "Hi")])
    request = talker.request(prompt)
    assert request.sharing == conversation.sharing(prompt.tokens) and len(request.sharing.marks) == 2


def test_commands(talker: Talker, capsys: pytest.CaptureFixture[str]) -> None:
    chat = Chat(talker)
    assert chat.handle("  ")
    assert chat.handle("/help")
    assert chat.handle("/nonsense")
    assert chat.handle("/think")
    assert chat.thinking is True
    said = capsys.readouterr().err
    assert "/reset" in said
    assert "unknown command /nonsense" in said
    assert not chat.handle("/quit")


def test_a_prompt_that_does_not_fit_leaves_the_conversation(talker: Talker, capsys: pytest.CaptureFixture[str]) -> None:
    chat = Chat(talker)
    chat.handle("Hi")
    assert chat.handle("x " * 600)
    assert len(chat.turns) == 2
    assert "do not fit" in capsys.readouterr().err


def test_ctrl_c_stops_the_answer_and_not_the_chat(
    talker: Talker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = Chat(talker)
    pieces: list[str] = []

    def interrupt(text: str) -> None:
        pieces.append(text)
        if len(pieces) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(command, "say", interrupt)
    assert chat.handle("Hi")
    monkeypatch.undo()
    assert "(stopped)" in capsys.readouterr().err
    assert chat.turns[-1].role == "assistant"
    assert "Hello there".startswith(chat.turns[-1].content)
    assert chat.handle("Again")
    assert chat.turns[-1].content == "Hello there"


def test_leaving_an_answer_frees_the_slot() -> None:
    runner = Scripted("a long answer that goes on")
    runner.gate = threading.Semaphore(2)
    model = loaded(runner)
    model.engine.start()
    talker = Talker(
        model.engine,
        load_conversation(model.checkpoint, Log(Level.ERROR)),
        SamplingParams(),
        Wishes(),
        Log(Level.ERROR),
    )
    prompt = talker.conversation.prompt([Turn("user", "Hi")])
    answer: Any = talker.answer(prompt, Reading())
    next(answer)
    answer.close()
    runner.gate.release(50)
    whole = talker.answer(prompt, Reading())
    assert len(list(whole)) > 2
    model.engine.stop()


def test_the_command_reads_lines_to_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = Scripted("Hello")
    monkeypatch.setattr(command, "load", lambda model, wishes, log: loaded(runner))
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hi\n/think\nSo?\n"))
    assert cli.run(["chat", "--system", "Be kind."], {}) == 0
    assert len(runner.prompts) == 2
    text = tiny().decode(runner.prompts[1], control=True)
    assert text.startswith("<|im_start|>system\nBe kind.<|im_end|>")
    assert text.endswith("<|im_start|>assistant\n<think>\n")
    assert "Hello" in capsys.readouterr().out
