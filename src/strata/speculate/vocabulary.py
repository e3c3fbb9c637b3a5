"""Which tokens a drafter proposes: most of a large vocabulary is hardly ever used, and costs every draft its row. Pure.

What is drafted is checked by the full model, so leaving tokens out changes speed only.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from strata.core.errors import CheckpointError, UsageError

SMALL = 8192
"""Vocabularies up to this size are used whole."""
SHARE = 4
"""A quarter of the others: byte-level BPE numbers its tokens by how often they were merged, so the first are the most
frequent ones."""


BUILT_IN = "strata.draft_tokens"
"""A model file's own choice, ids (`strata quantize --draft-vocab`)."""


def draft_tokens(wish: str, vocabulary: int, always: Iterable[int], built_in: object = None) -> Sequence[int] | None:
    """The ids that `wish` means, increasing, with those that are `always` in; None: all of the vocabulary.

    auto: what the model's file has `built_in`, else a quarter of a large vocabulary; full: all; N: the first N; else a
    file of ids, as `strata vocab` writes it. UsageError: none of these.
    """
    chosen = built_in_ids(built_in, vocabulary) if wish == "auto" else None
    if wish == "full" or (wish == "auto" and chosen is None and vocabulary <= SMALL):
        return None
    if chosen is not None:
        ids = set(chosen)
    elif wish == "auto" or wish.isdecimal():
        count = vocabulary // SHARE if wish == "auto" else int(wish)
        if not 0 < count <= vocabulary:
            raise UsageError(f"--draft-vocab {wish}: expected 1 to {vocabulary} tokens")
        ids = set(range(count))
    else:
        ids = set(listed(Path(wish), vocabulary))
    ids |= {token for token in always if 0 <= token < vocabulary}
    return sorted(ids) if len(ids) < vocabulary else None


def built_in_ids(value: object, vocabulary: int) -> list[int] | None:
    """The ids of a model file's own choice; None where it has none. CheckpointError: not ids of the vocabulary."""
    if value is None:
        return None
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise CheckpointError(f"{BUILT_IN}: expected a list of token ids, found {str(value)[:40]}")
    ids = [item for item in value if isinstance(item, int) and 0 <= item < vocabulary]
    if len(ids) != len(value):
        raise CheckpointError(f"{BUILT_IN}: expected token ids from 0 to {vocabulary - 1}, found others")
    return ids


def most_used(counts: Mapping[int, int], cover: float) -> list[int]:
    """The fewest tokens that make up the share `cover` of all that was counted, most frequent first (then lowest)."""
    ranked = sorted(counts, key=lambda token: (-counts[token], token))
    wanted, chosen, seen = cover * sum(counts.values()), [], 0
    for token in ranked:
        if seen >= wanted:
            break
        chosen.append(token)
        seen += counts[token]
    return chosen


END_KEYS = (
    *(f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom")),
    *("tokenizer.ggml.eos_token_ids", "eos_token_id", "generation.eos_token_id"),
)


def end_ids(metadata: Mapping[str, object]) -> frozenset[int]:
    """Tokens that end an answer, which every draft vocabulary has to have, as a model's files name them."""
    found: set[int] = set()
    for key in END_KEYS:
        value = metadata.get(key)
        values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        found |= {item for item in values if isinstance(item, int)}
    return frozenset(found)


def listed(file: Path, vocabulary: int) -> list[int]:
    """Ids in a text file, separated by white space."""
    try:
        words = file.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--draft-vocab {file}: {error}", "auto, full, a number, or a file of token ids") from None
    bad = next((word for word in words if not word.isdecimal() or int(word) >= vocabulary), None)
    if bad is not None or not words:
        found = "nothing" if bad is None else repr(bad[:20])
        raise UsageError(f"--draft-vocab {file}: expected token ids from 0 to {vocabulary - 1}, found {found}")
    return [int(word) for word in words]
