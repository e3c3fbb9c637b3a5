"""Bounded JSON."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.checkpoint.jsonfile import MOST_DEPTH, parse_object, read_object
from strata.core.errors import CheckpointError

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))


@given(st.dictionaries(st.text(), values, max_size=4))
def test_valid_objects_are_read(value: dict[str, object]) -> None:
    assert parse_object(json.dumps(value).encode(), "x") == value
    assert parse_object(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"), "x").keys() is not None


@given(st.binary(max_size=60) | st.text('{}[]",:\\ 1a', max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        assert isinstance(parse_object(data, "x"), dict)
    except CheckpointError as error:
        assert error.message.startswith("x: ")


def test_depth_counts_brackets_outside_texts() -> None:
    deep = {"text": "[{" * 500 + '\\"' * 3}
    assert parse_object(json.dumps(deep).encode(), "x") == deep
    for depth, fits in ((MOST_DEPTH, True), (MOST_DEPTH + 1, False)):
        data = b'{"a":' * depth + b"1" + b"}" * depth
        if fits:
            parse_object(data, "x")
        else:
            with pytest.raises(CheckpointError, match="within 64 levels"):
                parse_object(data, "x")


def test_hostile_quotes_stay_linear() -> None:
    # a scan that starts again at every quote would take hours here
    for data in (b'{"' + b'\\"' * 2_000_000, b'"' * 3_000_001, b"[" * 3_000_000, b'"' + b"\\" * 4_000_001):
        with pytest.raises(CheckpointError):
            parse_object(data, "x")


def test_size_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": 1}')
    assert read_object(path, 8) == {"a": 1}
    with pytest.raises(CheckpointError, match=r"a\.json: expected at most 7 bytes"):
        read_object(path, 7)
    with pytest.raises(CheckpointError, match="expected a file, found a folder"):
        read_object(tmp_path)
    with pytest.raises(CheckpointError, match="expected a file, found nothing"):
        read_object(tmp_path / "none.json")
