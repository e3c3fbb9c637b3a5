"""Routing traces: files, and generated ones that follow the published curves."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.core.errors import CheckpointError, UsageError
from strata.experts.traces import ADVERSE, TYPICAL, RoutingTrace, generate, load_trace, residency_curve

SHAPE = (900, 4, 8)


@pytest.fixture(scope="module")
def typical():
    return generate(TYPICAL, SHAPE, 256, 0.3, 1)


def trace(ids, experts=4):
    return RoutingTrace(np.array(ids, np.int32), experts, "by hand")


def test_the_typical_curve_goes_through_the_published_points(typical):
    for (share, hits), expected in zip(
        residency_curve(typical, (0.12, 0.30, 0.52), 0.6), (0.60, 0.86, 0.99), strict=True
    ):
        assert hits == pytest.approx(expected, abs=0.04), (share, hits)


def test_the_adverse_curve_hardly_has_favourites():
    ((_, hits),) = residency_curve(generate(ADVERSE, (4000, 2, 8), 128, 0.3, 1), (0.5,), 0.6)
    assert hits == pytest.approx(0.65, abs=0.04)


def test_a_trace_without_favourites_does_not_pass_for_a_typical_one():
    """The negative control of the two above."""
    rng = np.random.default_rng(0)
    flat = np.array([[rng.permutation(256)[:8] for _ in range(4)] for _ in range(900)], np.int32)
    found = dict(residency_curve(RoutingTrace(flat, 256, "flat"), (0.12, 0.5), 0.6))
    assert found[0.12] < 0.3 and found[0.5] < 0.6


def test_locality_repeats_near_choices_and_keeps_the_shares():
    near, far = (generate(TYPICAL, (1500, 1, 8), 256, locality, 3) for locality in (0.6, 0.0))

    def alike(t):
        return np.mean([len(set(a[0]) & set(b[0])) for a, b in zip(t.ids, t.ids[1:], strict=False)]) / 8

    assert alike(near) > alike(far) + 0.03
    top = [np.sort(t.uses()[0])[::-1][:31].sum() / t.uses().sum() for t in (near, far)]
    assert top[0] == pytest.approx(top[1], abs=0.06)


def test_layers_have_favourites_of_their_own(typical):
    favourites = typical.uses().argmax(axis=1)
    assert len(set(favourites.tolist())) > 1


def test_the_same_seed_gives_the_same_trace():
    a, b, c = (generate(ADVERSE, (20, 2, 3), 16, 0.2, seed) for seed in (5, 5, 6))
    assert np.array_equal(a.ids, b.ids) and not np.array_equal(a.ids, c.ids)
    assert a.origin == "generated: curve adverse, locality 0.2, seed 5"


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(0, 99), st.floats(0, 0.9))
def test_choices_are_distinct_and_in_range(k, seed, locality):
    made = generate(ADVERSE, (12, 2, k), 24, locality, seed)  # the constructor checks
    assert made.ids.shape == (12, 2, k)


def test_impossible_wishes_are_named():
    with pytest.raises(ValueError, match="cannot follow the curve typical"):
        generate(TYPICAL, (2, 1, 8), 16, 0.0, 0)
    with pytest.raises(ValueError, match="locality of 1"):
        generate(TYPICAL, (2, 1, 1), 16, 1.0, 0)


def test_a_file_comes_back(tmp_path, typical):
    path = tmp_path / "trace.npz"
    typical.save(path)
    found = load_trace(path)
    assert np.array_equal(found.ids, typical.ids) and found.experts == 256 and found.origin == typical.origin


def test_rows_start_again_after_the_last():
    t = trace([[[0, 1]], [[2, 3]], [[1, 3]]])
    assert t.rows(2, 3)[:, 0].tolist() == [[1, 3], [0, 1], [2, 3]]
    assert t.uses().tolist() == [[1, 2, 1, 2]]


@pytest.mark.parametrize(
    ("ids", "experts", "reason"),
    [
        ([[0, 1]], 4, "expected ids"),
        ([[[0, 4]]], 4, "experts 0..4 of 4"),
        ([[[-1, 0]]], 4, "experts -1..0"),
        ([[[1, 2, 1]]], 4, "twice"),
        (np.empty((0, 1, 1)), 4, "expected ids"),
    ],
)
def test_a_trace_that_is_none_is_refused(ids, experts, reason):
    with pytest.raises(ValueError, match=reason):
        trace(ids, experts)


def test_a_model_of_other_sizes_is_refused():
    t = trace([[[0, 1]]])
    t.check_fits(1, 4, 2)
    with pytest.raises(UsageError, match="for 1 layers with 2 of 4, not 2 layers with 2 of 4 experts"):
        t.check_fits(2, 4, 2)


def test_files_that_are_no_trace_are_refused(tmp_path):
    path = tmp_path / "x.npz"
    with pytest.raises(CheckpointError, match="not a routing trace"):
        load_trace(path)
    saved = io.BytesIO()
    np.savez(saved, ids=np.zeros((1, 1, 1), np.float32), experts=4, origin="x")
    for content in (b"", b"PK", b"text", saved.getvalue()):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="not a routing trace"):
            load_trace(path)
