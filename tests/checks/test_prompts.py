"""What is read is fixed, long enough, and in the model's own tokens."""

import json
from types import SimpleNamespace

from chat.tiny_tokenizer import metadata_of, tiny, tokenizer_json
from models.made import path_of
from strata.checkpoint.locate import open_checkpoint
from strata.checks.prompts import SHORT, check_prompts, has_tokenizer, long_text, reading

WORDY = SimpleNamespace(kind="gguf", metadata=metadata_of(json.loads(tokenizer_json("qwen2")), "qwen2"))


def test_lines_of_the_ledger_differ():
    lines = long_text(500).splitlines()
    assert len(lines) == 500 == len(set(lines))


def test_prompts_are_texts_in_the_models_tokens():
    found = check_prompts(WORDY, 900, 384)
    assert found[0] == tiny().encode(SHORT)
    assert len(found) == 4 and len(found[3]) == 384 and len({len(p) for p in found}) == 4
    assert found[3] == reading(WORDY, 900, 384) and reading(WORDY, 900, 100) == found[3][:100]


def test_a_model_without_a_tokenizer_gets_ids_of_its_vocabulary():
    for form in ("saved", "gguf"):
        checkpoint = open_checkpoint(path_of("llama", form))
        assert not has_tokenizer(checkpoint) and has_tokenizer(WORDY)
        found = check_prompts(checkpoint, 199, 100)
        assert [len(p) for p in found] == [5, 23, 40, 100]
        assert all(0 <= t < 199 for p in found for t in p) and found == check_prompts(checkpoint, 199, 100)
