"""Which tokens drafts are made of."""

import pytest

from strata.core.errors import CheckpointError, UsageError
from strata.speculate.vocabulary import SMALL, draft_tokens, end_ids, most_used


def test_small_vocabularies_are_used_whole_and_a_quarter_of_large_ones():
    assert draft_tokens("auto", SMALL, [5]) is None
    assert draft_tokens("full", 100_000, [5]) is None
    found = draft_tokens("auto", 40_000, [39_999, 3, 39_000, 50_000])
    assert list(found) == [*range(10_000), 39_000, 39_999]


def test_a_number_and_a_file(tmp_path):
    assert draft_tokens("3", 10, [9]) == [0, 1, 2, 9]
    assert draft_tokens("10", 10, []) is None
    file = tmp_path / "ids.txt"
    file.write_text("7 3\n5 3\n")
    assert draft_tokens(str(file), 10, [1]) == [1, 3, 5, 7]


@pytest.mark.parametrize("text", ["", "1 x", "1 10", "-1"])
def test_what_is_no_list_of_ids_is_refused(tmp_path, text):
    file = tmp_path / "ids.txt"
    file.write_text(text)
    with pytest.raises(UsageError, match="expected token ids from 0 to 9, found"):
        draft_tokens(str(file), 10, [])


def test_numbers_out_of_range_and_missing_files_are_refused():
    for wish in ("0", "11"):
        with pytest.raises(UsageError, match="expected 1 to 10 tokens"):
            draft_tokens(wish, 10, [])
    with pytest.raises(UsageError, match="No such file"):
        draft_tokens("/nowhere/ids", 10, [])


def test_ends_are_found_under_the_names_of_either_container():
    keys = {"tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.eot_token_id": 5, "other": 9}
    assert end_ids(keys) == {2, 5}
    assert end_ids({"eos_token_id": [3, 4], "generation.eos_token_id": 7, "pad_token_id": 1}) == {3, 4, 7}


def test_what_a_file_has_built_in_is_what_auto_means():
    assert draft_tokens("auto", 100, [7], [9, 3]) == [3, 7, 9]
    assert draft_tokens("2", 100, [7], [9, 3]) == [0, 1, 7]
    assert draft_tokens("full", 100, [7], [9, 3]) is None
    for wrong in ("text", [], 5, [3, 100], [3, -1], [1.5]):
        with pytest.raises(CheckpointError, match=r"strata\.draft_tokens: expected"):
            draft_tokens("auto", 100, [7], wrong)


def test_the_fewest_tokens_that_cover_a_share():
    counts = {5: 50, 1: 30, 9: 10, 2: 10}
    assert most_used(counts, 0.5) == [5] and most_used(counts, 0.51) == [5, 1]
    assert most_used(counts, 0.85) == [5, 1, 2] and most_used(counts, 1.0) == [5, 1, 2, 9]
    assert most_used({}, 0.5) == []
