"""Where another prompt may differ from this one, so that the engine keeps its state there."""

from collections.abc import Sequence

from strata.chat.tokenizer import Tokenizer

TOOL_OPENERS = ("<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<|tool_call_begin|>", "<|tool_calls_section_begin|>")
"""What tool calls begin with where it is one token of the vocabulary: clients write calls back in their own way."""


def opener_ids(tokenizer: Tokenizer) -> tuple[int, ...]:
    """The tokens that begin a tool call."""
    found = (tokenizer.ids.get(text) for text in TOOL_OPENERS)
    return tuple(token for token in found if token is not None)


def marks_of(tokens: Sequence[int], tokenizer: Tokenizer) -> tuple[int, ...]:
    """Lengths of the prompt behind every end of a turn and before every tool call, increasing.

    The first is the end of the system prompt, the last the beginning of the answer: what the template writes there
    (an opened <think>) is often left out when the turn is no longer the last one.
    """
    ends, openers = frozenset(tokenizer.stop_ids), frozenset(opener_ids(tokenizer))
    either = ends | openers
    found = [(place, token) for place, token in enumerate(tokens) if token in either]
    behind = {place + 1 for place, token in found if token in ends}
    before = {place for place, token in found if token in openers}
    return tuple(sorted((behind | before) - {0, len(tokens)}))
