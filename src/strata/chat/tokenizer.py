"""Text to token ids and back, built from GGUF metadata or tokenizer.json.

Text that spells a special token ("<|im_end|>") becomes that token, in user content too, as in transformers and
llama.cpp: the template is one text and marks no borders between what it wrote and what a user wrote.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from strata.checkpoint.checkpoint import Checkpoint
from strata.checkpoint.jsonfile import read_object
from strata.checkpoint.metadata import Metadata
from strata.core.errors import CheckpointError, RequestError, UnsupportedError

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2_SPLIT = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_TAIL}"
QWEN35_SPLIT = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_TAIL}"
)
LLAMA3_SPLIT = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_TAIL}"

_CONTROL, _USER_DEFINED = 3, 4
_LARGEST_VOCABULARY = 1 << 22
_LARGEST_JSON = 1 << 28

END_OF_TURN = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>", "<|end|>", "</s>")
"""Control tokens that end an answer by their name, whatever the metadata lists (llama.cpp's rule)."""


MARKERS = frozenset(("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"))
"""Always text, though some vocabularies call them control tokens: an answer is split at them."""


def _by_regex(pattern: str) -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False)
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _smollm() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


_PRE = {
    "qwen2": lambda: _by_regex(QWEN2_SPLIT),
    "qwen35": lambda: _by_regex(QWEN35_SPLIT),
    "llama-bpe": lambda: _by_regex(LLAMA3_SPLIT),
    "smollm": _smollm,
    "gpt-2": _gpt2,
}
"""tokenizer.ggml.pre -> how text is split before merging."""
_NFC = frozenset(("qwen2", "qwen35"))
_WHOLE_WORDS_FIRST = frozenset(("llama-bpe",))
_BOS_BY_DEFAULT = frozenset(("llama-bpe",))


def _byte_letters() -> dict[str, int]:
    """GPT-2's printable letter of each byte (radford et al. 2019, encoder.py): letter -> byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {chr(b): b for b in plain}
    others = [b for b in range(256) if b not in set(plain)]
    return letters | {chr(256 + i): b for i, b in enumerate(others)}


BYTE_OF_LETTER = _byte_letters()


class Tokenizer:
    """Byte-level BPE. Thread-safe: nothing changes after construction."""

    def __init__(
        self,
        backend: Backend,
        pieces: Sequence[str],
        added: Mapping[int, str],
        control: frozenset[int],
        stop_ids: frozenset[int],
        bos: int | None,
        ascii_backend: Backend | None = None,
    ) -> None:
        """`pieces`: token texts by id in byte letters; `added`: those in plain letters; `bos`: put first, if any;
        `ascii_backend`: the same for texts of ASCII alone, where it does less.
        """
        self._backend = backend
        self._ascii_backend = ascii_backend or backend
        self._pieces = pieces
        self._added = added
        self.control = frozenset(token for token in control if added.get(token) not in MARKERS)
        """Tokens that are never text (turn markers and the like)."""
        self.bos = bos
        self.ids: Mapping[str, int] = {text: token for token, text in added.items()}
        """Added tokens by their text."""
        names = (self.ids.get(name) for name in END_OF_TURN)
        by_name = {token for token in names if token is not None and token in control}
        self.stop_ids = tuple(sorted(stop_ids | by_name))
        """Tokens that end an answer."""

    @property
    def size(self) -> int:
        """Number of token ids."""
        return len(self._pieces)

    def encode(self, text: str, bos: bool = True) -> list[int]:
        """Ids of `text`; the begin token goes first when the model wants one and the text does not start with it."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(f"the text is not valid Unicode: {error.reason} at character {error.start}") from error
        # The fast form keeps no account of where in the text each token was.
        backend = self._ascii_backend if text.isascii() else self._backend
        ids: list[int] = backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
        if bos and self.bos is not None and ids[:1] != [self.bos]:
            return [self.bos, *ids]
        return ids

    def piece(self, token: int) -> bytes:
        """The bytes a token stands for (control tokens: their name); padding ids above the vocabulary: nothing."""
        if token in self._added:
            return self._added[token].encode()
        if not 0 <= token < len(self._pieces):
            return b""
        text = self._pieces[token]
        try:
            return bytes(BYTE_OF_LETTER[letter] for letter in text)
        except KeyError:
            return text.encode()

    def decode(self, ids: Sequence[int], control: bool = False) -> str:
        """Text of `ids`; control tokens only when asked for; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(self.piece(i) for i in ids if control or i not in self.control).decode(errors="replace")


def load_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """The model's tokenizer; CheckpointError or UnsupportedError when there is none that can be read."""
    if checkpoint.kind == "gguf":
        return from_metadata(checkpoint.metadata)
    return from_folder(checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent, checkpoint.metadata)


def from_metadata(metadata: Metadata) -> Tokenizer:
    """From a GGUF's tokenizer.ggml.* keys."""
    file = metadata.file
    model = metadata.string("tokenizer.ggml.model")
    if model != "gpt2":
        raise UnsupportedError(f"{file}: key tokenizer.ggml.model: {model!r} is not built", hint="gpt2 is")
    pre = metadata.string("tokenizer.ggml.pre")
    if pre not in _PRE:
        raise UnsupportedError(
            f"{file}: key tokenizer.ggml.pre: {pre!r} is not built", hint=f"known are {', '.join(_PRE)}"
        )
    tokens = metadata.strings("tokenizer.ggml.tokens")
    vocabulary = {text: i for i, text in enumerate(tokens)}
    if len(vocabulary) != len(tokens) or not 0 < len(tokens) <= _LARGEST_VOCABULARY:
        raise CheckpointError(
            f"{file}: key tokenizer.ggml.tokens: expected 1 to {_LARGEST_VOCABULARY} different tokens, found"
            f" {len(tokens)} of which {len(vocabulary)} differ"
        )
    kinds = metadata.integers("tokenizer.ggml.token_type", len(tokens))
    pairs = models.BPE(
        vocab=vocabulary,
        merges=_merges(file, metadata.strings("tokenizer.ggml.merges"), vocabulary),
        ignore_merges=pre in _WHOLE_WORDS_FIRST,
    )
    added = {i: tokens[i] for i, kind in enumerate(kinds) if kind in (_CONTROL, _USER_DEFINED) and tokens[i]}
    special = [AddedToken(text, normalized=False, special=kinds[i] == _CONTROL) for i, text in added.items()]

    def backend() -> Backend:
        made = Backend(pairs)  # which they share
        made.pre_tokenizer = _PRE[pre]()
        made.decoder = decoders.ByteLevel()
        made.add_tokens(special)
        return made

    whole, plain = backend(), backend()
    if pre in _NFC:
        whole.normalizer = normalizers.NFC()  # ASCII is its own: an eighth of the time of reading it
    control = frozenset(i for i, kind in enumerate(kinds) if kind == _CONTROL)
    stops, bos = _metadata_stops(metadata, len(tokens)), _metadata_bos(metadata)
    return Tokenizer(whole, tokens, added, control, stops, bos, plain)


def _merges(file: Path, lines: Sequence[str], vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """Merge rules as pairs, each checked against the vocabulary."""
    merges = []
    for number, line in enumerate(lines):
        left, space, right = line.partition(" ")
        if not space or left not in vocabulary or right not in vocabulary or left + right not in vocabulary:
            raise CheckpointError(
                f"{file}: key tokenizer.ggml.merges[{number}]: expected two tokens of the vocabulary whose join is one"
                f" too, found {line[:60]!r}"
            )
        merges.append((left, right))
    return merges


_STOP_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


def _metadata_stops(metadata: Metadata, size: int) -> frozenset[int]:
    keys = [f"tokenizer.ggml.{name}" for name in _STOP_KEYS]
    stops = {metadata.integer(key, 0, size - 1) for key in keys if key in metadata}
    if "tokenizer.ggml.eos_token_ids" in metadata:
        stops |= set(metadata.integers("tokenizer.ggml.eos_token_ids"))
    return frozenset(stops)


def _metadata_bos(metadata: Metadata) -> int | None:
    default = metadata.string("tokenizer.ggml.pre") in _BOS_BY_DEFAULT
    if not metadata.flag("tokenizer.ggml.add_bos_token", default):
        return None
    return metadata.integer("tokenizer.ggml.bos_token_id", 0, _LARGEST_VOCABULARY)


def from_folder(folder: Path, metadata: Metadata) -> Tokenizer:
    """From a safetensors folder's tokenizer.json and tokenizer_config.json; `metadata` (its configs) has end ids."""
    file = folder / "tokenizer.json"
    definition = read_object(file, _LARGEST_JSON)
    model = definition.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE" or not isinstance(vocabulary, dict):
        kind = model.get("type") if isinstance(model, dict) else model
        raise UnsupportedError(f"{file}: model type {kind!r} is not built", hint="byte-level BPE is")
    if '"ByteLevel"' not in json.dumps(definition.get("decoder")):
        raise UnsupportedError(f"{file}: decoder {definition.get('decoder')!r} is not built", hint="ByteLevel is")
    try:
        backend = Backend.from_str(json.dumps(definition))
    except Exception as error:
        raise CheckpointError(f"{file}: not a tokenizer definition: {error}") from error
    added = {int(i): token for i, token in backend.get_added_tokens_decoder().items()}
    size = 1 + max([*vocabulary.values(), *added], default=-1)
    pieces = [""] * size
    for text, i in vocabulary.items():
        pieces[i] = text
    control = frozenset(i for i, token in added.items() if token.special)
    texts = {i: token.content for i, token in added.items()}
    begin = backend.encode("", add_special_tokens=True).ids
    return Tokenizer(
        backend, pieces, texts, control, _folder_stops(folder, metadata, texts), begin[0] if begin else None
    )


def _folder_stops(folder: Path, metadata: Metadata, added: Mapping[int, str]) -> frozenset[int]:
    """The union of all end ids that the folder's files declare."""
    stops: set[int] = set()
    for key in ("eos_token_id", "generation.eos_token_id"):
        if isinstance(metadata.values.get(key), int):
            stops.add(metadata.integer(key, 0, _LARGEST_VOCABULARY))
        elif key in metadata:
            stops |= set(metadata.integers(key))
    end = special_texts(folder).get("eos_token")
    return frozenset(stops | {i for i, text in added.items() if text == end})


def special_texts(folder: Path) -> dict[str, str | None]:
    """bos_token, eos_token, unk_token and pad_token as texts, from tokenizer_config.json."""
    file = folder / "tokenizer_config.json"
    config = read_object(file) if file.is_file() else {}
    texts: dict[str, str | None] = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = config.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        if value is not None and not isinstance(value, str):
            raise CheckpointError(f"{file}: key {name}: expected a string, found {value!r}")
        texts[name] = value
    return texts
