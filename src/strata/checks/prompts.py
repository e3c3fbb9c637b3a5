"""What checks and benchmarks read: fixed texts in the model's own tokens."""

import random
from collections.abc import Sequence

from strata.chat.tokenizer import load_tokenizer
from strata.checkpoint.checkpoint import Checkpoint

SHORT = "The capital of France is"
DIALOGUE = (
    "Anna asked the keeper of the lighthouse how far a lamp can be seen. On a clear night, he said, twenty miles; in"
    " fog, hardly two. Then she asked him what he does in fog."
)
CODE = "def area(width: float, height: float) -> float:\n    return width * height\n\nprint(area(3, 4))"

_PLACES = ("harbour", "mill", "market", "library", "bridge", "orchard", "school", "tower")
_CARGO = ("salt", "paper", "copper", "wool", "lamp oil", "apples", "letters", "glass", "rope")
_PEOPLE = ("Mara", "Ivo", "Old Benno", "the twins", "Captain Reyes", "a stranger")


def long_text(lines: int, first: int = 1) -> str:
    """A ledger of `lines` lines from day `first` on, no two alike: some 25 tokens each."""
    return "\n".join(
        f"Day {day}: {_PEOPLE[day % 6]} brought {7 * day % 90 + 3} crates of {_CARGO[day % 9]} to the"
        f" {_PLACES[day % 8]} and left with {day * day % 37} coins."
        for day in range(first, first + lines)
    )


def has_tokenizer(checkpoint: Checkpoint) -> bool:
    """Whether the model comes with one at all (a model of random weights may not)."""
    if checkpoint.kind == "gguf":
        return "tokenizer.ggml.model" in checkpoint.metadata
    return (checkpoint.path / "tokenizer.json").is_file()


def drawn_ids(count: int, vocabulary: int, seed: int) -> list[int]:
    """Ids drawn with a fixed seed, for models without a tokenizer."""
    draw = random.Random(seed)
    return [draw.randrange(vocabulary) for _ in range(count)]


def check_prompts(checkpoint: Checkpoint, vocabulary: int, longest: int) -> list[list[int]]:
    """Four prompts, the last of `longest` tokens: more than a sparse attention's budget, so that blocks drop out."""
    if not has_tokenizer(checkpoint):
        return [drawn_ids(count, vocabulary, count) for count in (5, 23, 40, longest)]
    tokenizer = load_tokenizer(checkpoint)
    short: list[Sequence[int]] = [tokenizer.encode(text) for text in (SHORT, DIALOGUE, CODE)]
    return [*(list(ids) for ids in short), reading(checkpoint, vocabulary, longest)]


def reading(checkpoint: Checkpoint, vocabulary: int, count: int) -> list[int]:
    """`count` tokens of the long text; of drawn ids where there is no tokenizer."""
    if not has_tokenizer(checkpoint):
        return drawn_ids(count, vocabulary, 1)
    tokenizer = load_tokenizer(checkpoint)
    # No line has fewer tokens than this many, whatever the vocabulary.
    lines = -(-count // 8)
    return tokenizer.encode(long_text(lines))[:count]
