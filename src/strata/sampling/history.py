"""Which tokens a sequence has seen, for penalties."""

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


class TokenCounts:
    """The set of the prompt's tokens and the counts of the answer's, with rollback of answer tokens."""

    def __init__(self, prompt: Iterable[int] = ()) -> None:
        self._prompt = frozenset(prompt)
        self._prompt_ids = np.array(sorted(self._prompt), dtype=np.int64)
        self._answer: list[int] = []
        self._counts: Counter[int] = Counter()

    def __len__(self) -> int:
        """Answer tokens."""
        return len(self._answer)

    def append(self, token: int) -> None:
        """`token` is now part of the answer."""
        self._answer.append(token)
        self._counts[token] += 1

    def rollback(self, count: int) -> None:
        """Forget the last `count` answer tokens; ValueError when there are fewer."""
        if not 0 <= count <= len(self._answer):
            raise ValueError(f"cannot roll back {count} of {len(self._answer)} answer tokens")
        for _ in range(count):
            token = self._answer.pop()
            self._counts[token] -= 1
            if not self._counts[token]:
                del self._counts[token]

    def seen(self) -> NDArray[np.int64]:
        """Every token of prompt or answer, each once, in no particular order."""
        new = [token for token in self._counts if token not in self._prompt]
        return np.concatenate([self._prompt_ids, np.array(new, dtype=np.int64)])

    def answered(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(tokens of the answer, each once; how often each occurs)."""
        ids = np.fromiter(self._counts.keys(), dtype=np.int64, count=len(self._counts))
        return ids, np.fromiter(self._counts.values(), dtype=np.int64, count=len(self._counts))
