"""Tokens to text as they come, without ever splitting a character."""

import codecs

from strata.chat.tokenizer import Tokenizer


class Detokenizer:
    """Feeds token bytes through an incremental UTF-8 decoder: joined, the deltas are the bytes' text exactly."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """Text that became complete with `token`; control tokens are no text."""
        if token in self._tokenizer.control:
            return ""
        return self._decoder.decode(self._tokenizer.piece(token))

    def flush(self) -> str:
        """What is left at the end: U+FFFD for a character cut short, else nothing."""
        return self._decoder.decode(b"", final=True)
