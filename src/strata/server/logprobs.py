"""Likelihoods of tokens, in the form that OpenAI's chats and responses share."""

from collections.abc import Sequence
from typing import Any

from strata.chat.events import TokenLogprob

LOWEST = -9999.0
"""Stands for minus infinity, which JSON cannot say."""


def chat_items(items: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    """One object for each token."""

    def one(piece: bytes, value: float) -> dict[str, Any]:
        return {"token": piece.decode(errors="replace"), "logprob": max(value, LOWEST), "bytes": list(piece)}

    return [one(i.piece, i.logprob) | {"top_logprobs": [one(p, v) for p, v in i.top]} for i in items]
