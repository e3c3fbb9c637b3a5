"""Conversations on disk, from the flags to the second process."""

import os

import pytest

from models.made import oracle, path_of
from strata.assemble import load
from strata.checkpoint.fingerprint import fingerprint
from strata.checkpoint.locate import open_checkpoint
from strata.core.log import Log
from strata.engine.events import Finished
from strata.engine.request import Request
from strata.plan.keeping import choose_state_ram
from strata.plan.wishes import Wishes


def answer(tokens, folder):
    """(prompt tokens that were not read, events) in an engine of its own."""
    wishes = Wishes(state_disk_gib=0.1, state_dir=str(folder), warm="no", threads=1, parallel=2, ctx_size=128)
    engine = load(path_of("qwen4_exp", "gguf"), wishes, Log()).engine
    engine.start()
    try:
        events = list(engine.submit(Request("a", tuple(tokens), 4)).events())
    finally:
        engine.stop()
    assert isinstance(events[-1], Finished)
    return events[-1].reused, [event for event in events if hasattr(event, "token")]


def test_a_conversation_goes_on_after_a_restart(tmp_path):
    ids = oracle("qwen4_exp").ids[:40]
    reused, tokens = answer(ids, tmp_path / "one")
    longer = [*ids, *(event.token for event in tokens), 5, 6]
    assert reused == 0 and answer(longer, tmp_path / "two")[0] == 0
    again, warm = answer(longer, tmp_path / "one")
    assert again == 43 and warm == answer(longer, tmp_path / "three")[1]


def test_a_full_disk_disturbs_no_answer(tmp_path, monkeypatch):
    ids, real = oracle("qwen4_exp").ids[:40], os.fsync
    expected = answer(ids, tmp_path / "well")[1]

    def full(descriptor):
        if os.fstat(descriptor).st_size:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    assert answer(ids, tmp_path / "full") == (0, expected)
    assert [file.suffix for file in (tmp_path / "full").glob("*/*")] == [""], "the lock alone"
    monkeypatch.undo()
    assert answer(ids, tmp_path / "full") == (0, expected) and answer(ids, tmp_path / "full")[0] > 0


def test_models_have_fingerprints_of_their_own():
    one, other = (fingerprint(open_checkpoint(path_of(name, "gguf"))) for name in ("llama", "qwen3_moe"))
    assert one != other and one == fingerprint(open_checkpoint(path_of("llama", "gguf")))


@pytest.mark.parametrize(
    ("free", "asked", "expected"), [(10 << 30, "auto", 1 << 30), (1 << 40, "auto", 8 << 30), (1, 2.0, 2 << 30)]
)
def test_what_is_kept_in_ram_is_a_tenth_or_as_asked(free, asked, expected):
    assert choose_state_ram(free, asked)[0] == expected
