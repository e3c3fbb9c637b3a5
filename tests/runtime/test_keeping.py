"""What is gone on with from pages, RAM or disk gives the bits of a cold read, for every architecture."""

import functools
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest

from models.made import load, ops_of, path_of, same_bits
from oracles.build import GGUF_NAMES
from strata.core.errors import UsageError
from strata.core.limits import Limits
from strata.core.log import Log
from strata.core.order import Order
from strata.core.sharing import PRIVATE, Sharing
from strata.core.window import Window
from strata.engine.engine import Engine, EngineSettings
from strata.engine.events import Reason, Token
from strata.engine.request import Request
from strata.engine.settings import Settings
from strata.runtime.keeping import GRID, Keeping, OnDisk
from strata.runtime.runner import DeviceRunner
from strata.sampling.params import SamplingParams
from strata.state.stops import Spacing

SPACING = Spacing(64, 128)
VOCABULARY = 199
TEXT = [int(token) for token in np.random.default_rng(7).integers(0, VOCABULARY, 230)]
LONGER = [*TEXT[:210], *TEXT[:20]]


@functools.cache
def model_of(name):
    return load(path_of(name, "gguf"), ops_of())


def made(name, folder=None, kv_type="f32", pages=None, ram=1 << 24, spacing=SPACING, log=None):
    disk = None if folder is None else OnDisk(folder, 1 << 26, name)
    keeping = Keeping(pages, ram, spacing, disk, log or Log())
    return DeviceRunner(model_of(name), ops_of(), Limits(3, 256, 256), kv_type=kv_type, keeping=keeping)


def read(runner, slot, tokens, marks=()):
    """Seat, and read in windows that end where states are kept -> (what was held, logits of the last window)."""
    held = runner.seat(slot, tokens, SamplingParams(), len(tokens) + 8, Sharing(tuple(marks)))
    start = held.tokens
    for stop in (*held.stops, len(tokens)):
        if stop < len(tokens):
            runner.step([Window(slot, start, tuple(tokens[start:stop]), 0)])
            start = stop
    window = tuple(tokens[start:])
    logits = runner.forward([Window(slot, start, window, len(window))])
    runner.states.commit(slot, len(window), runner.ops)
    return held, logits


def cold(runner, tokens, rows):
    """The logits of the last rows of one whole read that knows nothing."""
    runner.forget(2)
    logits = runner.forward([Window(2, 0, tuple(tokens), rows)])
    runner.states.commit(2, len(tokens), runner.ops)
    runner.forget(2)
    return logits


def agrees(runner, tokens, held, tier, marks=()):
    """Whether going on gives the cold bits; what was held, and from where, is as expected."""
    found, logits = read(runner, 0, tokens, marks)
    assert (found.tokens, found.tier) == (held, tier)
    same = same_bits(logits, cold(runner, tokens, len(logits)))
    runner.forget(0)
    runner.cache.check()
    return same


def finished(runner, tokens, marks=()):
    """A conversation that was read and is over."""
    read(runner, 1, tokens, marks)
    runner.release(1)
    while any(node.writing for node in runner.cache.tree.nodes()):
        runner.cache.tiers.poll()


@pytest.mark.parametrize("name", GGUF_NAMES)
def test_every_tier_gives_the_bits_of_a_cold_read(name, tmp_path):
    runner = made(name, tmp_path)
    finished(runner, TEXT[:210])
    assert agrees(runner, LONGER, 210, "pages")
    assert runner.order(Order("park"))["dropped"] == 0
    assert agrees(runner, LONGER, 210, "ram")
    assert agrees(runner, LONGER, 210, "pages")
    runner.close()
    assert runner.status()["kept"]["bytes"]["disk"] > 0
    again = made(name, tmp_path)
    assert again.known(LONGER) == 210
    assert agrees(again, LONGER, 210, "disk")
    assert agrees(again, LONGER, 210, "pages")


@pytest.mark.parametrize("name", GGUF_NAMES)
def test_an_edit_goes_on_below_the_change(name):
    runner = made(name)
    finished(runner, TEXT[:210], marks=[75, 140])
    recurrent = runner.cache.tree.recurrent
    edited = [*TEXT[:150], *TEXT[:30]]
    assert agrees(runner, edited, 128 if recurrent else 150, "pages")
    other = [*TEXT[:100], *TEXT[:30]]
    assert agrees(runner, other, 64 if recurrent else 100, "pages")
    # And what they went on from is as it was.
    assert agrees(runner, LONGER, 210, "pages")


@pytest.mark.parametrize("grid", [1, 7, 16, GRID])
@pytest.mark.parametrize("name", ["qwen3_next", "qwen4_exp"])
def test_any_grid_gives_the_bits_of_a_cold_read(name, grid):
    runner = made(name, spacing=Spacing(grid, 210 * grid))
    finished(runner, TEXT[:210], marks=[75, 141])
    assert agrees(runner, [*TEXT[:150], *TEXT[:30]], 141 // grid * grid, "pages")


def test_before_a_drawn_opener_the_state_is_kept_also_among_accepted_drafts():
    """A tool call that is written back in another way goes on right before it."""
    plain = made("qwen4_exp")
    plain.seat(0, TEXT[:40], SamplingParams())
    answer, window = [], Window(0, 0, tuple(TEXT[:40]), 1)
    for at in range(40, 48):
        answer.append(plain.step([window])[0].drawn[-1].token)
        window = Window(0, at, (answer[-1],), 1)
    opener = next(token for token in answer[2:] if answer.index(token) >= 2)
    at = answer.index(opener)
    runner = made("qwen4_exp")
    runner.seat(0, TEXT[:40], SamplingParams(), 64, Sharing(openers=(opener,)))
    first = runner.step([Window(0, 0, tuple(TEXT[:40]), 1)])[0].drawn
    (stepped,) = runner.step([Window(0, 40, tuple(answer[: at + 3]), at + 3)])
    assert [d.token for d in (*first, *stepped.drawn)] == answer[: at + 1] and stepped.length == 40 + at
    runner.release(0)
    assert agrees(runner, [*TEXT[:40], *answer[:at], 1, 2], 40 + at, "pages")


@pytest.mark.parametrize("name", ["qwen4_exp", "llama"])
def test_open_ended_conversations_share_pages_that_one_of_them_can_fill(name):
    """Each may fill the context; all decode together as long as there are pages, then wait for each other."""

    def answers(requests, pages, log):
        keeping = Keeping(pages=pages, ahead=1, log=log)
        runner = DeviceRunner(model_of(name), ops_of(), Limits(3, 256, 256), keeping=keeping)
        engine = Engine(runner, EngineSettings(), log)
        engine.start()
        sessions = [engine.submit(request) for request in requests]
        found = [[e.token for e in session.events() if isinstance(e, Token)] for session in sessions]
        engine.stop()
        runner.cache.check()
        return found, engine.status()

    said = StringIO()
    requests = [Request(f"r{i}", tuple(TEXT[i : i + 20 + i]), None) for i in range(3)]
    alone = [answers([request], None, Log(stream=StringIO()))[0][0] for request in requests]
    together, status = answers(requests, 8, Log(stream=said))
    assert together == alone and [len(answer) for answer in alone] == [236, 235, 234]
    assert status["decoding_per_step"]["3"] > 60 and status["sessions"]["short"] > 100
    assert "waits for pages slot=" in said.getvalue() and "gave way" in said.getvalue()


def test_a_crowd_in_a_small_pool_says_what_each_says_alone(tmp_path):
    """Open-ended answers, private ones, branches, cancels and orders; RAM and disk overflow all the time."""
    draw = np.random.default_rng(11)
    disk, limits = OnDisk(tmp_path, 1 << 20, "tiny"), Limits(4, 192, 96)
    keeping = Keeping(pages=6, ram_bytes=1 << 19, ahead=1, disk=disk, log=Log(stream=StringIO()))
    runner = DeviceRunner(model_of("qwen3_next"), ops_of(), limits, keeping=keeping)
    engine = Engine(runner, EngineSettings(Settings(chunk_tokens=32)))
    engine.start()
    asked, found = [], {}
    for number in range(24):
        begin = 40 * int(draw.integers(3))
        tokens = (*TEXT[begin : begin + int(draw.integers(1, 90))], *TEXT[number * 3 :][: int(draw.integers(1, 30))])
        params = SamplingParams(temperature=0.9, seed=number) if number % 2 else SamplingParams()
        sharing = PRIVATE if number % 8 == 7 else Sharing((len(tokens) // 2,), tuple(draw.integers(4, 199, 5).tolist()))
        new = (None, 3, 30)[number % 3]
        asked.append(Request(f"r{number}", tokens, new, params, sharing=sharing))
    for at in range(0, len(asked), 6):
        sessions = [engine.submit(request) for request in asked[at : at + 6]]
        sessions[at % 5].cancel()
        engine.order(Order(("park", "save", "clear")[at // 6 % 3]), lambda answer: None)
        for session in sessions:
            *events, last = session.events()
            if last.reason is not Reason.CANCEL:
                found[session.request.id] = [e.token for e in events if isinstance(e, Token)]
    for request in asked:
        if request.id in found:
            cold = replace(request, id=f"cold-{request.id}", sharing=PRIVATE)
            again = [e.token for e in engine.submit(cold).events() if isinstance(e, Token)]
            assert again == found[request.id], request.id
    engine.stop()
    runner.cache.check()
    assert len(found) >= 20


def test_a_folder_that_another_process_has_is_a_warning_and_all_else_works(tmp_path):
    said = StringIO()
    one = made("qwen4_exp", tmp_path)
    other = made("qwen4_exp", tmp_path, log=Log(stream=said))
    assert said.getvalue().count("warning") == 1 and "another process uses this folder" in said.getvalue()
    finished(other, TEXT[:210])
    assert agrees(other, LONGER, 210, "pages") and other.status()["kept"]["budget"]["disk"] == 0
    finished(one, TEXT[:210])
    one.close()
    assert made("qwen4_exp", tmp_path).known(LONGER) == 210


@pytest.mark.parametrize("change", ["kv type", "grid", "model"])
def test_what_was_kept_with_other_settings_is_not_used_and_said(change, tmp_path):
    one = made("qwen3_next", tmp_path)
    finished(one, TEXT[:210])
    one.close()
    said = StringIO()
    settings = {"kv type": {"kv_type": "bf16"}, "grid": {"spacing": Spacing(32, 128)}, "model": {"name": "qwen4_exp"}}
    other = made(**({"name": "qwen3_next", "folder": tmp_path, "log": Log(stream=said)} | settings[change]))
    assert other.known(LONGER) == 0
    assert said.getvalue().count("kept conversations not used") == 1
    assert "of another model, other settings or another version" in said.getvalue()
    assert agrees(other, LONGER, 0, "pages")


def test_a_folder_that_cannot_be_is_refused_with_the_reason(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"--state-dir .*file: conversations cannot be kept there: Not a directory"):
        made("qwen3_next", tmp_path / "file")


@pytest.mark.parametrize("kv_type", ["bf16", "int8"])
def test_every_kind_of_cache_comes_back_from_disk(kv_type, tmp_path):
    runner = made("qwen4_exp", tmp_path, kv_type)
    finished(runner, TEXT[:210])
    runner.close()
    assert agrees(made("qwen4_exp", tmp_path, kv_type), LONGER, 210, "disk")


def test_two_that_run_share_pages_and_neither_sees_the_other():
    runner = made("qwen4_exp")
    read(runner, 0, TEXT[:150], marks=[128])
    held, second = read(runner, 1, [*TEXT[:128], *TEXT[:40]])
    assert held.tokens == 128 and runner.states.pages.held[0][:2] == runner.states.pages.held[1][:2]
    assert runner.status()["kept"]["shared_pages"] >= 2
    step = [Window(0, 150, (3, 4), 2), Window(1, 168, (5, 6), 2)]
    logits = runner.forward(step)
    for window in step:
        runner.states.commit(window.slot, 2, runner.ops)
    assert same_bits(second, cold(runner, [*TEXT[:128], *TEXT[:40]], len(second)))
    assert same_bits(logits[:2], cold(runner, [*TEXT[:150], 3, 4], 2))
    assert same_bits(logits[2:], cold(runner, [*TEXT[:128], *TEXT[:40], 5, 6], 2))
    runner.cache.check()


def test_more_conversations_than_pages_go_to_ram_and_come_back():
    runner = made("qwen4_exp", pages=8)
    texts = [[(t + i) % VOCABULARY for t in TEXT[:200]] for i in range(4)]
    for text in texts:
        finished(runner, text)
    for text in texts:
        held, logits = read(runner, 0, [*text, 1, 2, 3])
        assert (held.tokens, held.tier) == (200, "ram") or text is texts[3]
        runner.forget(0)
        plain = made("qwen4_exp")
        assert same_bits(logits, cold(plain, [*text, 1, 2, 3], len(logits)))
    runner.cache.check()


def flip(array, at=0):
    """The sign of the float32 that starts at byte `at`."""
    array[at + 3] ^= 0x80


@pytest.mark.parametrize("name", GGUF_NAMES)
def test_a_flipped_byte_in_a_parked_page_is_seen(name):
    """Negative control: one byte of one value of the last run, in each layer that has values."""
    runner = made(name)
    finished(runner, TEXT[:210])
    planes = [name for name in runner.contents.page_sizes if name.endswith(".v")]
    for plane in planes:
        at = 17 * 4 * dict(runner.states.planes())[plane].shape[-1]  # of the last entry: it is always looked at
        runner.order(Order("park"))
        (node,) = [node for node in runner.cache.tree.nodes() if node.end == 210]
        flip(node.parked[plane], at)
        assert not agrees(runner, LONGER, 210, "ram"), plane
        runner.order(Order("park"))
        flip(node.parked[plane], at)
        assert agrees(runner, LONGER, 210, "ram")
    assert planes


@pytest.mark.parametrize("name", ["qwen3_next", "qwen3_5_moe", "qwen4_exp"])
def test_a_flipped_byte_in_a_kept_state_is_seen(name):
    """Negative control: one byte of the largest value of every array of the recurrent state."""
    runner = made(name)
    finished(runner, TEXT[:210])
    (node,) = [node for node in runner.cache.tree.nodes() if node.end == 210]
    for which, array in node.state.items():
        at = 4 * int(np.abs(array.view(np.float32)).argmax())
        flip(array, at)
        assert not agrees(runner, LONGER, 210, "pages"), which
        flip(array, at)
    assert agrees(runner, LONGER, 210, "pages")
