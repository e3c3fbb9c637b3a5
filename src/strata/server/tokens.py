"""Text to token ids and back over HTTP, and what the server was started with, as llama.cpp's and vLLM's clients ask."""

from typing import Annotated, Any

import msgspec

from strata import __version__
from strata.server.errors import ApiError
from strata.server.served import ServedModel

LONGEST_IDS = 1 << 22


class TokenizeFields(msgspec.Struct, frozen=True):
    """Body of POST /tokenize: the text is `content` (llama.cpp) or `prompt` (vLLM)."""

    content: str | None = None
    prompt: str | None = None
    model: str | None = None
    add_special: bool = False
    """Whether the token that begins every text comes first, for models that have one."""
    add_special_tokens: bool | None = None
    with_pieces: bool = False
    return_token_strs: bool = False


class DetokenizeFields(msgspec.Struct, frozen=True):
    """Body of POST /detokenize."""

    tokens: Annotated[list[int], msgspec.Meta(max_length=LONGEST_IDS)]
    model: str | None = None


def tokenize(fields: TokenizeFields, served: ServedModel, context: int | None) -> dict[str, Any]:
    """The ids of a text; ApiError when it has none, or two."""
    served.check_name(fields.model)
    if (fields.content is None) == (fields.prompt is None):
        found = "neither" if fields.content is None else "both"
        raise ApiError(400, f"expected either content or prompt, found {found}", "content", "invalid_value")
    text = fields.content if fields.content is not None else fields.prompt
    special = fields.add_special if fields.add_special_tokens is None else fields.add_special_tokens
    tokenizer = served.conversation.tokenizer
    ids = tokenizer.encode(text or "", special)
    found_ids: dict[str, Any] = {"tokens": ids, "count": len(ids), "max_model_len": context}
    if fields.with_pieces:
        found_ids["tokens"] = [{"id": token, "piece": piece_of(tokenizer.piece(token))} for token in ids]
    if fields.return_token_strs:
        found_ids["token_strs"] = [tokenizer.piece(token).decode(errors="replace") for token in ids]
    return found_ids


def piece_of(piece: bytes) -> str | list[int]:
    """Text, or bytes where a character is cut in two."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


def detokenize(fields: DetokenizeFields, served: ServedModel) -> dict[str, Any]:
    """The text of ids, control tokens too; ApiError for an id that is none."""
    served.check_name(fields.model)
    tokenizer = served.conversation.tokenizer
    for place, token in enumerate(fields.tokens):
        if not 0 <= token < tokenizer.size:
            raise ApiError(
                400, f"tokens[{place}]: expected an id below {tokenizer.size}, found {token}", "tokens", "invalid_value"
            )
    text = tokenizer.decode(fields.tokens, control=True)
    return {"content": text, "prompt": text}


def props(served: ServedModel, context: int | None, slots: int | None) -> dict[str, Any]:
    """What llama.cpp's clients read of a server before they talk to it."""
    template = served.conversation.template
    return {
        "default_generation_settings": {"n_ctx": context, "params": served.sampling()},
        "total_slots": slots,
        "model_alias": served.name,
        "chat_template": None if template is None else template.source,
        "modalities": {"vision": False, "audio": False},
        "build_info": f"strata {__version__}",
    }
