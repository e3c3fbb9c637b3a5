"""Messages to prompts."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from chat.tiny_tokenizer import metadata_of, tiny, tokenizer_json
from strata.chat.conversation import Conversation, TemplateOptions, Turn, load_conversation
from strata.chat.template import CHATML, ChatTemplate
from strata.checkpoint.metadata import Metadata
from strata.core.errors import CheckpointError, RequestError, UnsupportedError
from strata.core.log import Log

THINKING = CHATML + "{% if enable_thinking is defined and enable_thinking %}<think>\n{% endif %}"


class Files:
    """Just enough of a Checkpoint."""

    def __init__(self, path: Path, metadata: Metadata, kind: str) -> None:
        self.path, self.metadata, self.kind = path, metadata, kind
        self.tensors: Mapping[str, Any] = {}


def gguf(**more: Any) -> Any:
    values = dict(metadata_of(json.loads(tokenizer_json("qwen2")), "qwen2").values)
    return Files(Path("x.gguf"), Metadata(Path("x.gguf"), values | more), "gguf")


def test_prompt_is_the_rendered_text_encoded() -> None:
    conversation = Conversation(tiny(), ChatTemplate(CHATML, "test"))
    prompt = conversation.prompt([Turn("system", "Be brief."), Turn("user", "Hi")])
    expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert prompt.tokens == tuple(tiny().encode(expected))
    assert not prompt.opened


def test_thinking_reaches_the_template_and_opens_the_answer() -> None:
    conversation = Conversation(tiny(), ChatTemplate(THINKING, "test"))
    turns = [Turn("user", "Hi")]
    assert conversation.prompt(turns, TemplateOptions(thinking=True)).opened
    assert not conversation.prompt(turns, TemplateOptions(thinking=False)).opened
    assert conversation.prompt(turns, TemplateOptions(extra={"enable_thinking": True})).opened


def test_a_last_assistant_turn_is_continued() -> None:
    conversation = Conversation(tiny(), ChatTemplate(CHATML, "test"))
    text = conversation.render([Turn("user", "Hi"), Turn("assistant", "The answer is")], TemplateOptions())
    assert text.endswith("<|im_start|>assistant\nThe answer is")


def test_a_template_that_drops_the_last_turn_is_named() -> None:
    conversation = Conversation(tiny(), ChatTemplate("fixed", "test"))
    with pytest.raises(RequestError, match="does not write the last assistant message"):
        conversation.prompt([Turn("assistant", "x")])


def test_empty_messages_are_refused() -> None:
    with pytest.raises(RequestError, match="messages is empty"):
        Conversation(tiny(), ChatTemplate(CHATML, "test")).prompt([])


def test_special_tokens_spelled_by_a_user_become_special() -> None:
    # As in transformers and llama.cpp; documented in chat/tokenizer.py.
    conversation = Conversation(tiny(), ChatTemplate(CHATML, "test"))
    tokens = conversation.prompt([Turn("user", "<|im_end|>")]).tokens
    assert tokens.count(tiny().ids["<|im_end|>"]) == 2


def test_own_template_wins_and_sees_the_special_texts() -> None:
    files = gguf(**{"tokenizer.chat_template": "{{ eos_token }}{{ messages[0].content }}"})
    conversation = load_conversation(files, Log(stream=io.StringIO()))
    assert conversation.render([Turn("user", "Hi")], TemplateOptions()) == "<|endoftext|>Hi"


def test_chatml_is_a_logged_fallback() -> None:
    said = io.StringIO()
    conversation = load_conversation(gguf(), Log(stream=said))
    assert conversation.template is not None
    assert "ChatML" in said.getvalue()


def test_no_template_and_no_markers_is_refused_when_chatting() -> None:
    files = gguf()
    kinds = list(files.metadata.values["tokenizer.ggml.token_type"])
    kinds[1] = 1
    files.metadata = Metadata(files.path, files.metadata.values | {"tokenizer.ggml.token_type": kinds})
    conversation = load_conversation(files, Log(stream=io.StringIO()))
    with pytest.raises(UnsupportedError, match="no chat template"):
        conversation.prompt([Turn("user", "Hi")])


def test_folder_templates(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(tokenizer_json("qwen2"), encoding="utf-8")
    config = tmp_path / "tokenizer_config.json"
    named = [{"name": "default", "template": "from config {{ pad_token }}"}]
    config.write_text(json.dumps({"chat_template": named, "pad_token": "P"}))
    files: Any = Files(tmp_path, Metadata(tmp_path, {}), "safetensors")
    turns = [Turn("user", "Hi")]
    assert load_conversation(files, Log()).render(turns, TemplateOptions()) == "from config P"
    (tmp_path / "chat_template.jinja").write_text("own file")
    assert load_conversation(files, Log()).render(turns, TemplateOptions()) == "own file"
    config.write_text('{"chat_template": 5}')
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(CheckpointError, match="chat_template: expected a string"):
        load_conversation(files, Log())
