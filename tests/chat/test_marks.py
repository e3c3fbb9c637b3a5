"""Where prompts may part."""

from chat.tiny_tokenizer import tiny
from strata.chat.conversation import Conversation, TemplateOptions, Turn
from strata.chat.marks import marks_of, opener_ids
from strata.chat.template import CHATML, ChatTemplate
from strata.core.sharing import PRIVATE

THINKING = CHATML + "{% if enable_thinking is defined and enable_thinking %}<think>\n{% endif %}"
TURNS = [Turn("system", "Be brief."), Turn("user", "Hi"), Turn("assistant", "Yes?"), Turn("user", "Count.")]


def talk() -> Conversation:
    return Conversation(tiny(), ChatTemplate(THINKING, "test"))


def common(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def nearest(marks: tuple[int, ...], place: int) -> int:
    return max(mark for mark in marks if mark <= place)


def test_every_end_of_a_turn_is_marked() -> None:
    prompt = talk().prompt(TURNS)
    text = [tiny().piece(token) for token in prompt.tokens]
    marks = talk().sharing(prompt.tokens).marks
    assert [text[mark - 1] for mark in marks] == [b"<|im_end|>"] * 4 and text.count(b"<|im_end|>") == 4


def test_what_is_edited_parts_at_a_mark_or_a_few_tokens_behind_it() -> None:
    """A system prompt with another question, an edited last message, a reply without its opened reasoning."""
    first = talk().prompt(TURNS, TemplateOptions(thinking=True)).tokens
    marks = talk().sharing(first).marks
    for other, behind in (
        ([TURNS[0], Turn("user", "Bye")], 0),
        ([*TURNS[:3], Turn("user", "Sing.")], 2),
        ([*TURNS, Turn("assistant", "1 2"), Turn("user", "On")], 3),
    ):
        parted = common(first, talk().prompt(other).tokens)
        assert nearest(marks, parted) == marks[behind] and parted - marks[behind] <= 6


def test_tool_calls_are_marked_before_they_begin() -> None:
    tokens = tiny().encode("a<tool_call>b<tool_call>c")
    opener = tiny().ids["<tool_call>"]
    assert opener_ids(tiny()) == (opener,) == talk().sharing(tokens).openers
    assert marks_of(tokens, tiny()) == tuple(i for i, token in enumerate(tokens) if token == opener)


def test_the_ends_of_a_prompt_are_no_marks() -> None:
    assert marks_of(tiny().encode("<tool_call>a<|im_end|>"), tiny()) == ()


def test_without_the_cache_nothing_is_shared() -> None:
    assert talk().sharing(tiny().encode("a<|im_end|>b"), cached=False) == PRIVATE
