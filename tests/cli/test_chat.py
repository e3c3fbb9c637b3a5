"""`strata chat` around a fake runner."""

import io
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chat.tiny_tokenizer import tiny
from cli.fake_model import Scripted, loaded
from strata.chat.conversation import Turn, load_conversation
from strata.chat.events import Done
from strata.chat.reader import Reading
from strata.cli import chat as command
from strata.cli import chat_commands
from strata.cli import main as cli
from strata.cli.chat_commands import Chat
from strata.cli.output import figures
from strata.cli.talk import Talker
from strata.core.log import Level, Log
from strata.engine.events import Finished, Reason
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
    assert chat.handle("")
    assert chat.handle("/help")
    assert chat.handle("/nonsense")
    assert chat.handle("/think")
    assert chat.thinking is True
    said = capsys.readouterr().err
    assert "/reset" in said
    assert "unknown command /nonsense" in said
    assert not chat.handle("/quit")


def test_reasoning_is_switched_by_name(talker: Talker, capsys: pytest.CaptureFixture[str]) -> None:
    chat = Chat(talker)
    chat.handle("/think off")
    assert chat.thinking is False
    chat.handle("/think on")
    chat.handle("/think perhaps")
    assert chat.thinking is True
    assert "error: /think: expected on, off or nothing, found 'perhaps'" in capsys.readouterr().err


def test_the_last_question_is_asked_again(talker: Talker, capsys: pytest.CaptureFixture[str]) -> None:
    chat = Chat(talker)
    chat.handle("/retry")
    assert "nothing was asked yet" in capsys.readouterr().err
    chat.handle("Hi")
    chat.turns[-1] = Turn("assistant", "Another answer")
    chat.handle("/retry")
    assert chat.turns == [Turn("user", "Hi"), Turn("assistant", "Hello there")]


def test_a_conversation_is_kept_and_gone_on_with(
    talker: Talker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chat, path = Chat(talker, "Be brief."), tmp_path / "kept.json"
    chat.handle("/save")
    assert "expected the name of a file" in capsys.readouterr().err
    chat.handle("Hi")
    chat.handle(f"/save {path}")
    chat.handle("And?")
    chat.handle("/save")
    other = Chat(talker)
    other.handle(f"/load {path}")
    assert (other.system, other.turns) == ("Be brief.", chat.turns) and len(other.turns) == 4
    other.handle("/reset")
    other.handle(f"/save {path}")
    assert f"error: {path}: exists" in capsys.readouterr().err
    other.handle("/load")
    other.handle("/image cat.png")
    said = capsys.readouterr().err
    assert "/load: expected the name of a file" in said and "images are not built" in said


def test_every_answer_has_its_figures(talker: Talker, capsys: pytest.CaptureFixture[str]) -> None:
    Chat(talker).handle("Hi")
    assert re.search(
        r"\(prompt \d+ tokens, [\d.]+ tok/s, first token after [\d.]+ s, answer \d+ tokens, [\d.]+ tok/s, [\d.]+ s\)",
        capsys.readouterr().err,
    )
    counts = Finished(Reason.STOP, 20, reused=5, generated=9, drafted=8, accepted=6, prompt_s=0.5, decode_s=0.5)
    said = figures(Done(Reason.STOP, counts, 9))
    assert said == (
        "prompt 20 tokens, 5 of them cached, 30.0 tok/s, first token after 0.50 s, answer 9 tokens, 16.0 tok/s,"
        " 6 of 8 drafts right, 1.00 s"
    )


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

    monkeypatch.setattr(chat_commands, "say", interrupt)
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
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hi\n/think\nSo\\\nwhat?\n"))
    assert cli.run(["chat", "--system", "Be kind."], {}) == 0
    assert len(runner.prompts) == 2
    text = tiny().decode(runner.prompts[1], control=True)
    assert text.startswith("<|im_start|>system\nBe kind.<|im_end|>")
    assert "<|im_start|>user\nSo\nwhat?<|im_end|>" in text
    assert text.endswith("<|im_start|>assistant\n<think>\n")
    assert "Hello" in capsys.readouterr().out
