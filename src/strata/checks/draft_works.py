"""What drafts are measured on: noise, an edit of code, stories, JSON, and a drafter that is right at known rates."""

from collections.abc import Sequence

import numpy as np

from strata.chat.tokenizer import Tokenizer
from strata.checks.draft_rates import Workload

RATES = (0.8, 0.7, 0.6)
CODE = """def total_price(items, tax_rate, discount=0.0):
    subtotal = 0.0
    for item in items:
        if item.quantity < 1:
            raise ValueError("quantity must be positive")
        subtotal += item.price * item.quantity
    discounted = subtotal * (1.0 - discount)
    return round(discounted * (1.0 + tax_rate), 2)


def describe(items):
    lines = []
    for number, item in enumerate(items, 1):
        lines.append(f"{number}. {item.name}: {item.quantity} x {item.price:.2f}")
    return "\\n".join(lines)
"""
EDITS = (("total_price", "order_total"), ("discount", "rebate"), ("lines", "rows"))
ASKED = {
    "story": (
        "Tell me a short story about a shy robot.",
        "Write a very short story about a fox and a lantern. Use simple words.",
        "Tell me a story about two friends in a castle.",
        "Write a story about a lost kitten in one paragraph.",
    ),
    "json": (
        "Give me a JSON object for a user named Ann who is 30 years old.",
        "Write a JSON list with three fruits and their colors.",
        "Give me JSON for a book with title, author and year.",
        "Return a JSON object with the capital of France.",
    ),
}


def rehearsed(vocabulary: int, requests: int, tokens: int) -> Workload:
    """Random prompts, and a drafter that is right at RATES."""
    return Workload("rehearsed 0.8/0.7/0.6", noise(vocabulary, requests, 24, 7), tokens, rates=RATES)


def random_text(vocabulary: int, requests: int, tokens: int) -> Workload:
    """Answers that are noise: nothing can be foreseen."""
    return Workload("random", noise(vocabulary, requests, 24, 8), tokens, noise(vocabulary, requests, tokens, 9))


def noise(vocabulary: int, count: int, length: int, seed: int) -> list[list[int]]:
    """Random tokens."""
    found: list[list[int]] = np.random.default_rng(seed).integers(0, vocabulary, (count, length)).tolist()
    return found


def edit(tokenizer: Tokenizer, requests: int) -> Workload:
    """A file, and the same file with some names changed: most of it is a copy."""
    changed, prompts, answers = CODE, [], []
    for old, new in EDITS:
        changed = changed.replace(old, new)
    for i in range(requests):
        prompts.append(tokenizer.encode(f"# version {i}\n{CODE}\n# the same with other names\n"))
        answers.append(tokenizer.encode(changed))
    return Workload("code edit", prompts, min(map(len, answers)), answers)


def asked(tokenizer: Tokenizer, name: str, requests: int, tokens: int) -> Workload:
    """Questions in the form of ChatML, answered until they end."""
    texts: Sequence[str] = ASKED[name]
    prompts = [
        tokenizer.encode(f"<|im_start|>user\n{texts[i % len(texts)]}<|im_end|>\n<|im_start|>assistant\n")
        for i in range(requests)
    ]
    return Workload(name, prompts, tokens, stop_ids=tuple(sorted(tokenizer.stop_ids)))
