"""A small byte-level BPE trained on the spot, as tokenizer.json and as GGUF metadata."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, trainers

from strata.chat import tokenizer as chat_tokenizer
from strata.checkpoint.metadata import Metadata

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
PLAIN = ("<think>", "</think>", "<tool_call>")

CORPUS = (
    "The quick brown fox jumps over the lazy dog. It's 1234 degrees, isn't it? We'll see; they've seen 42.\n"
    "def f(x):\n    return [i ** 2 for i in range(x)]  # squares\n\n\tif a != b: print('no')\r\n"
    "Straße naïve café déjà vu Ω≈ç√ ﬁ 漢字かな交じり文 中文句子。한국어 नमस्ते שלום العربية 😀👨‍👩‍👧🇨🇭 e\u0301 a\u0308\n"
    "for while system user assistant answer question story capital France Paris times equals plus minus\n"
) * 4


@cache
def tokenizer_json(pre: str, size: int = 700) -> str:
    """A trained tokenizer.json that splits as `pre`."""
    built = Tokenizer(models.BPE(ignore_merges=pre == "llama-bpe"))
    if pre in {"qwen2", "qwen35"}:
        built.normalizer = normalizers.NFC()
    built.pre_tokenizer = chat_tokenizer._PRE[pre]()
    built.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[AddedToken(text, normalized=False, special=True) for text in CONTROL],
        initial_alphabet=sorted(chat_tokenizer.BYTE_OF_LETTER),
        show_progress=False,
    )
    built.train_from_iterator([CORPUS], trainer)
    built.add_tokens([AddedToken(text, normalized=False, special=False) for text in PLAIN])
    return built.to_str()


def metadata_of(definition: dict[str, Any], split: str, /, **more: Any) -> Metadata:
    """The GGUF keys a converter writes for `definition` (a tokenizer.json object)."""
    vocabulary: dict[str, int] = dict(definition["model"]["vocab"])
    added = {token["content"]: token for token in definition["added_tokens"]}
    vocabulary |= {text: token["id"] for text, token in added.items()}
    tokens = [""] * len(vocabulary)
    kinds = [1] * len(vocabulary)
    for text, i in vocabulary.items():
        tokens[i] = text
        if text in added:
            kinds[i] = 3 if added[text]["special"] else 4
    merges = [m if isinstance(m, str) else " ".join(m) for m in definition["model"]["merges"]]
    values: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": split,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": vocabulary["<|endoftext|>"],
        "tokenizer.ggml.add_bos_token": False,
    }
    return Metadata(Path("tiny.gguf"), values | {f"tokenizer.ggml.{k}": v for k, v in more.items()})


def tiny(pre: str = "qwen2", **more: Any) -> chat_tokenizer.Tokenizer:
    """The tokenizer as read from GGUF metadata."""
    return chat_tokenizer.from_metadata(metadata_of(json.loads(tokenizer_json(pre)), pre, **more))
