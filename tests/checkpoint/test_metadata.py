"""Getters give what was asked for, or say what they found."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from strata.checkpoint.metadata import Metadata, Value
from strata.core.errors import CheckpointError

VALUES: dict[str, Value] = {
    "int": 5,
    "big": 2**64 - 1,
    "huge": 10**400,
    "float": 0.5,
    "text": "abc",
    "yes": True,
    "none": None,
    "ints": (1, 2**63),
    "mixed": (1, 0.5),
    "texts": ("a", "b"),
    "bools": (True, False),
    "empty": (),
    "nan": math.nan,
    "inf": math.inf,
    "nans": (1.0, math.nan),
    "infs": (1.0, -math.inf),
}


@pytest.fixture
def metadata() -> Metadata:
    return Metadata(Path("m.gguf"), VALUES)


def test_values_come_back(metadata: Metadata) -> None:
    assert metadata.integer("int", 0, 10) == 5
    assert metadata.integer("big", 0, 2**64) == 2**64 - 1
    assert metadata.number("int", 0, 10) == 5.0
    assert metadata.number("float", 0, math.inf) == 0.5
    assert metadata.string("text") == "abc"
    assert metadata.flag("yes") is True
    assert metadata.integers("ints", 2) == (1, 2**63)
    assert metadata.integers("empty") == ()
    assert metadata.numbers("mixed") == (1.0, 0.5)
    assert metadata.strings("texts") == ("a", "b")
    assert metadata.flags("bools") == (True, False)


def test_null_counts_as_absent(metadata: Metadata) -> None:
    assert "int" in metadata and "none" not in metadata and "other" not in metadata
    assert metadata.integer("none", 0, 10, 7) == 7
    assert metadata.number("other", 0, 10, 7.5) == 7.5
    assert metadata.string("none", "x") == "x"
    assert metadata.flag("none", False) is False


@pytest.mark.parametrize(
    ("get", "says"),
    [
        (lambda m: m.integer("int", 6, 10), "key int: expected an integer from 6 to 10, found 5"),
        (lambda m: m.integer("int", 6, 10, 7), "key int: expected an integer from 6 to 10, found 5"),
        (lambda m: m.integer("yes", 0, 10), "key yes: expected an integer from 0 to 10, found True"),
        (lambda m: m.integer("float", 0, 10), "found 0.5"),
        (lambda m: m.integer("other", 0, 10), "key other: expected an integer from 0 to 10, found nothing"),
        (lambda m: m.number("nan", -math.inf, math.inf), "key nan: expected a number from -inf to inf, found nan"),
        (lambda m: m.number("inf", 0, math.inf), "key inf: expected a finite number, found inf"),
        (lambda m: m.number("huge", 0, math.inf), "key huge: expected a finite number, found 1000"),
        (lambda m: m.number("yes", 0, 10), "found True"),
        (lambda m: m.number("text", 0, 10), "found 'abc'"),
        (lambda m: m.numbers("nans"), "key nans[1]: expected a finite number, found nan"),
        (lambda m: m.numbers("infs"), "key infs[1]: expected a finite number, found -inf"),
        (lambda m: m.numbers("bools"), "key bools[0]: expected a number, found True"),
        (lambda m: m.string("int"), "key int: expected a string, found 5"),
        (lambda m: m.flag("int"), "key int: expected true or false, found 5"),
        (lambda m: m.integers("mixed"), "key mixed[1]: expected an integer, found 0.5"),
        (lambda m: m.integers("bools"), "key bools[0]: expected an integer, found True"),
        (lambda m: m.integers("ints", 3), "key ints: expected an array of 3 integers, found 2 of them"),
        (lambda m: m.integers("text"), "key text: expected an array of integers, found 'abc'"),
        (lambda m: m.strings("ints"), "key ints[0]: expected a string, found 1"),
        (lambda m: m.strings("texts", 3), "key texts: expected an array of 3 strings, found 2 of them"),
        (lambda m: m.flags("ints"), "key ints[0]: expected true or false, found 1"),
    ],
)
def test_errors_name_key_expected_and_found(metadata: Metadata, get: Callable[[Metadata], object], says: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        get(metadata)
    assert caught.value.message.startswith("m.gguf: key ")
    assert says in caught.value.message


def test_long_values_are_shown_short() -> None:
    metadata = Metadata(Path("m"), {"k": tuple(str(i) for i in range(300_000))})
    with pytest.raises(CheckpointError) as caught:
        metadata.integer("k", 0, 1)
    assert len(caught.value.message) < 200
