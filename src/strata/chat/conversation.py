"""Messages to prompt tokens."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from strata.chat.marks import marks_of, opener_ids
from strata.chat.reasoning import CLOSE, OPEN
from strata.chat.template import CHATML, ChatTemplate, template_source
from strata.chat.tokenizer import Tokenizer, load_tokenizer, special_texts
from strata.checkpoint.checkpoint import Checkpoint
from strata.core.errors import RequestError, UnsupportedError
from strata.core.log import Log
from strata.core.sharing import PRIVATE, Sharing

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool that an assistant's turn made."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """One message."""

    role: Role
    content: str
    reasoning: str | None = None
    """Of an assistant's turn: what it thought before."""
    name: str | None = None
    calls: tuple[Call, ...] = ()
    """Of an assistant's turn, after its text."""
    call_id: str | None = None
    """Of a tool's turn: the call that it answers."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the engine reads."""

    tokens: tuple[int, ...]
    opened: bool
    """It ends inside <think>, so the answer starts as reasoning."""
    thought: bool = False
    """It ends behind </think>, so the answer has no reasoning."""


@dataclass(frozen=True, slots=True)
class TemplateOptions:
    """What a request can tell the template."""

    thinking: bool | None = None
    """enable_thinking; None leaves it to the template."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[Mapping[str, Any]] = ()
    """What may be called, as OpenAI writes functions; templates were written for that form."""


class Conversation:
    """A model's way of writing chats: tokenizer and template."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        self.tokenizer = tokenizer
        self.template = template
        self.openers = opener_ids(tokenizer)
        self._thinks: bool | None = None

    def prompt(self, turns: Sequence[Turn], options: TemplateOptions | None = None) -> Prompt:
        """Render and encode; a last turn of the assistant is left open, so that the answer continues it."""
        options = options or TemplateOptions()
        text = self.render(turns, options)
        end = text.rstrip()
        return Prompt(tuple(self.tokenizer.encode(text)), end.endswith(OPEN), end.endswith(CLOSE))

    @property
    def thinks(self) -> bool:
        """Whether answers open <think> by themselves unless they are told not to.

        A template of such a model writes an empty <think></think> where thinking is switched off.
        """
        if self._thinks is None:
            off = TemplateOptions(thinking=False)
            text = self.render([Turn("user", "?")], off) if self.template is not None else ""
            self._thinks = text.rstrip().endswith(CLOSE)
        return self._thinks

    def sharing(self, tokens: Sequence[int], cached: bool = True) -> Sharing:
        """Where other prompts may differ from `tokens` and from the answer; without `cached` nothing is shared."""
        return Sharing(marks_of(tokens, self.tokenizer), self.openers) if cached else PRIVATE

    def render(self, turns: Sequence[Turn], options: TemplateOptions) -> str:
        """The prompt as text; RequestError when the template refuses."""
        if self.template is None:
            raise UnsupportedError("this model has no chat template", hint="use /v1/completions, or `strata run --raw`")
        if not turns:
            raise RequestError("messages is empty", param="messages")
        variables = dict(options.extra)
        if options.tools:
            if "tools" not in self.template.source:
                raise RequestError("this model's chat template knows no tools", param="tools")
            variables["tools"] = list(options.tools)
        if options.thinking is not None:
            variables["enable_thinking"] = options.thinking
        messages = [_message(turn) for turn in turns]
        if turns[-1].role != "assistant" or turns[-1].calls:
            return self.template.render(messages, add_generation_prompt=True, options=variables)
        # A mark that no template can know shows where the last turn's text ends.
        mark = f"[{uuid.uuid4().hex}]"
        messages[-1]["content"] += mark
        text, found, _ = self.template.render(messages, add_generation_prompt=False, options=variables).partition(mark)
        if not found:
            raise RequestError("the chat template does not write the last assistant message", param="messages")
        return text


def _message(turn: Turn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": turn.role, "content": turn.content}
    if turn.reasoning is not None:
        message["reasoning_content"] = turn.reasoning
    if turn.name is not None:
        message["name"] = turn.name
    if turn.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
            for call in turn.calls
        ]
    if turn.call_id is not None:
        message["tool_call_id"] = turn.call_id
    return message


def load_conversation(checkpoint: Checkpoint, log: Log) -> Conversation:
    """The model's own tokenizer and template; ChatML only when the vocabulary has its markers, and said so."""
    tokenizer = load_tokenizer(checkpoint)
    if checkpoint.kind == "gguf":
        special = _metadata_specials(checkpoint, tokenizer)
    else:
        special = special_texts(checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent)
    found = template_source(checkpoint)
    if found is not None:
        return Conversation(tokenizer, ChatTemplate(found[0], found[1], special))
    if {"<|im_start|>", "<|im_end|>"} <= tokenizer.ids.keys():
        log.warning("chat template", found="none", used="ChatML", reason="the vocabulary has its markers")
        return Conversation(tokenizer, ChatTemplate(CHATML, "ChatML fallback", special))
    log.warning("chat template", found="none", used="none", reason="the vocabulary has no ChatML markers")
    return Conversation(tokenizer, None)


def _metadata_specials(checkpoint: Checkpoint, tokenizer: Tokenizer) -> dict[str, str | None]:
    """The texts a template may ask for, from the GGUF's token ids."""
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    texts: dict[str, str | None] = {}
    for name, key in names.items():
        full = f"tokenizer.ggml.{key}_token_id"
        if full in checkpoint.metadata:
            token = checkpoint.metadata.integer(full, 0, tokenizer.size - 1)
            texts[name] = tokenizer.piece(token).decode(errors="replace")
    return texts
