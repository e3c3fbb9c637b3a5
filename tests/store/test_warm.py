"""Reading a mapped file ahead of its use."""

import os

import numpy as np
import pytest

from strata.checkpoint.mapped import MappedFile
from strata.core.errors import EngineError
from strata.kernels import _native
from strata.store.warm import PIECE, Span, cut, missing_bytes, spans_of, warm

MIB = 1 << 20


@pytest.fixture
def mapped(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(4 * MIB + 123))
    return MappedFile(path)


def dropped(mapped):
    """Whether the system would forget the file's pages."""
    with mapped.path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return missing_bytes(spans_of([mapped.view(0, mapped.size, "all")])) > MIB


def test_what_was_missing_is_there_afterwards(mapped):
    spans, said = spans_of([mapped.view(0, mapped.size, "all")]), []
    if not dropped(mapped):
        pytest.skip("the file system keeps its pages")
    warm(spans, lambda done, total: said.append((done, total)))
    assert missing_bytes(spans) == 0
    assert said[-1] == (mapped.size, mapped.size)


def test_views_are_joined_where_they_touch_and_cut_at_fixed_places():
    base = np.zeros(10 * MIB, np.uint8)
    first = base.ctypes.data
    views = [base[5 * MIB :], base[: 2 * MIB], base[2 * MIB + 64 : 3 * MIB], base[7:7]]
    assert spans_of(views) == (Span(first, 3 * MIB), Span(first + 5 * MIB, 5 * MIB))
    pieces = cut(Span(3 * PIECE - 5, 2 * PIECE))
    assert pieces == [Span(3 * PIECE - 5, 5), Span(3 * PIECE, PIECE), Span(4 * PIECE, PIECE - 5)]
    assert cut(Span(PIECE, PIECE)) == [Span(PIECE, PIECE)]


def test_a_file_that_was_cut_is_an_error_and_not_a_crash(mapped):
    spans = spans_of([mapped.view(0, mapped.size, "all")])
    os.truncate(mapped.path, MIB)
    with pytest.raises(EngineError, match="the model's file cannot be read"):
        warm(spans, lambda done, total: None)


def test_only_whole_huge_pages_are_asked_for():
    base = np.zeros(4 * MIB, np.uint8)
    assert not _native.advise_huge(base.ctypes.data, MIB)
