"""Numbers in, numbers and reasons out."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.errors import UsageError
from strata.plan.machine import Machine, available_memory
from strata.plan.plan import SHARE_FOR_STATES, STEP_TOKENS, ModelSizes, choose_warming, make_plan
from strata.plan.pool import StateRoom

GIB, MIB = 1 << 30, 1 << 20
MODEL = ModelSizes(context=8192, token_bytes=1 << 12, sequence_bytes=MIB, expert_bytes=3 * GIB)


def plan(memory=8 * GIB, sizes=MODEL, context=None, slots="auto", chunk="auto", ram=None):
    return make_plan(Machine(4, "avx2", memory, "four cores"), sizes, context, slots, chunk, ram)


def reason(made, name):
    return next(c.reason for c in made.choices if c.name == name)


def test_nothing_asked_gives_the_models_own_context_and_four_slots():
    made = plan()
    assert (made.context, made.slots, made.requested_slots, made.arena) == (8192, 4, 4, False)
    assert (made.chunk, made.step_tokens) == (STEP_TOKENS, STEP_TOKENS + 4)
    assert reason(made, "context") == "the model's own" and made.slots_reason == "default"


def test_what_is_asked_is_what_is_done():
    made = plan(context=1000, slots=7, chunk=600, ram=3.5)
    assert (made.context, made.slots, made.chunk, made.step_tokens, made.arena) == (1000, 7, 600, 607, True)
    assert all(reason(made, n) == "as asked" for n in ("context", "slots", "prompt_chunk", "experts"))
    assert plan(chunk=9).step_tokens == STEP_TOKENS + 4


def test_the_cache_says_what_it_takes_and_what_bf16_would_save():
    exact = ModelSizes(8192, 1 << 12, MIB, GIB, "f32", 1 << 11)
    said = "default, exact: 32 MiB a conversation of 8192 tokens; --kv-type bf16 saves 16 MiB and reads half"
    assert reason(plan(sizes=exact), "kv_type").startswith(said)
    halved = ModelSizes(8192, 1 << 11, MIB, GIB, "bf16", 1 << 11)
    assert reason(plan(sizes=halved), "kv_type").startswith("as asked: 16 MiB a conversation of 8192 tokens")


def test_less_memory_gives_less_context_then_fewer_slots_and_says_so():
    made = plan(memory=64 * MIB)
    assert made.context == 23 * MIB // 4096 // 256 * 256, "a quarter is left to further conversations"
    assert reason(made, "context") == "23 MiB hold no more at 4096 bytes a token"
    assert made.slots == 2 and made.requested_slots == 4
    said = "32 MiB for states hold 2 of 4 conversations: 24 MiB for the longest, 5 MiB for each further one"
    assert made.slots_reason == said
    assert made.pages == 30 * MIB // (64 * 4096)
    assert reason(made, "pages").startswith("30 MiB for 7680 tokens of all conversations; one may have 5888, and who")


def test_many_long_contexts_share_what_one_of_them_fills():
    long = ModelSizes(context=1 << 18, token_bytes=48 << 10, sequence_bytes=64 * MIB, expert_bytes=GIB)
    made = plan(memory=32 * GIB, sizes=long, slots=8)
    assert made.slots == 8 and made.context > 200_000 and made.pages * 64 < 2 * made.context
    assert plan(memory=32 * GIB, sizes=long, slots=8, context=1 << 15).pages == 8 * (1 << 15) // 64


def test_pages_are_as_many_as_asked():
    room = StateRoom(4 * GIB, 8 * GIB, 64 * MIB)
    machine = Machine(4, "avx2", 8 * GIB, "four cores")
    made = make_plan(machine, MODEL, None, "auto", "auto", None, room)
    assert (made.context, made.slots, made.pages) == (8192, 4, 256)
    assert reason(made, "pages") == "as asked: 16384 tokens of all conversations"
    small = make_plan(machine, MODEL, None, "auto", "auto", None, replace(room, pages=4 * MIB))
    assert (small.context, small.pages) == (1024, 16)
    for pages, words in ((4 * MIB, "--kv-gib 0.00390625: a conversation of 2048 tokens needs 0.00781 GiB of pages"),
                         (9 * GIB, "--kv-gib 9: 8.0 GiB are free")):  # fmt: skip
        with pytest.raises(UsageError, match=words):
            make_plan(machine, MODEL, 2048, "auto", "auto", None, replace(room, pages=pages))


def test_a_context_that_was_asked_for_may_take_more_than_the_share_but_not_more_than_there_is():
    made = plan(memory=48 * MIB, context=8192, slots=2)
    assert (made.slots, made.context) == (1, 8192)
    assert made.slots_reason.startswith("24 MiB for states hold 1 of 2 conversations: 33 MiB for the longest")
    with pytest.raises(UsageError, match=r"a conversation of 8192 tokens needs 33 MiB, 32 MiB are free"):
        plan(memory=32 * MIB, context=8192)


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"context": 8193}, r"--ctx-size 8193: the model was trained for 8192 tokens"),
        ({"slots": 0}, r"--parallel 0: at least one slot is needed"),
        ({"ram": 2.5}, r"--ram-gib 2.5: the experts need 3.0 GiB"),
        ({"ram": 9.0, "memory": 2 * GIB}, r"the experts need 3.0 GiB, 2.0 GiB are free"),
        ({"memory": 3 * MIB}, r"the states of one conversation do not fit: 1 MiB are free for them"),
    ],
)
def test_what_cannot_be_met_is_refused_with_both_numbers(wish, words):
    with pytest.raises(UsageError, match=words):
        plan(**wish)


@given(
    memory=st.integers(MIB, 1 << 36),
    token=st.integers(0, 1 << 20),
    sequence=st.integers(0, 1 << 24),
    context=st.integers(1, 1 << 20),
    slots=st.one_of(st.just("auto"), st.integers(1, 64)),
    asked=st.one_of(st.none(), st.integers(1, 1 << 20)),
)
def test_the_states_of_a_plan_fit(memory, token, sequence, context, slots, asked):
    sizes = ModelSizes(context, token, sequence, GIB)
    try:
        made = plan(memory, sizes, asked, slots)
    except UsageError:
        return
    one = made.context * token + sequence
    assert 1 <= made.slots <= made.requested_slots and 1 <= made.context <= context
    assert one <= memory
    assert made.pages * 64 >= made.context, "one of them fits"
    taken = made.pages * 64 * token + made.slots * sequence
    if made.slots > 1:
        assert taken <= memory * SHARE_FOR_STATES + 64 * token
    if taken < memory * SHARE_FOR_STATES - 64 * token and made.slots == made.requested_slots and token:
        assert made.pages >= made.slots * (made.context // 64)
    if made.slots < made.requested_slots:
        assert "conversations" in made.slots_reason
    assert asked in (None, made.context)


@given(memory=st.integers(8 * MIB, 1 << 34))
def test_more_memory_never_gives_less(memory):
    less, more = plan(memory), plan(memory + memory // 3)
    assert less.context <= more.context
    if less.context == more.context:
        assert less.slots <= more.slots


def test_the_reason_of_the_threads_is_the_machines():
    assert reason(plan(), "threads") == "four cores"


def test_a_file_is_read_ahead_when_it_fits_and_when_that_is_wished():
    fits = choose_warming(9 * GIB, 2 * GIB, 10 * GIB, wished=True)
    assert (fits.name, fits.value) == ("weights", "read ahead")
    assert fits.reason == "2048 of 9216 MiB are not in memory yet"
    large = choose_warming(9 * GIB + GIB // 10, 2 * GIB, 10 * GIB, wished=True)
    assert large.value == "as touched" and large.reason.endswith("9318 MiB, 10240 MiB are free")
    assert choose_warming(1, 1, GIB, wished=False).reason == "as asked"


def test_the_systems_word_is_taken_for_free_memory(tmp_path):
    file = tmp_path / "meminfo"
    file.write_text("MemTotal:       100 kB\nMemAvailable:   37 kB\nBuffers: 1 kB\n")
    assert available_memory(file) == 37 * 1024
    assert available_memory(tmp_path / "none") > MIB
