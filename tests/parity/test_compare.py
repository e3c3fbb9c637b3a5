"""The comparison names the operation that is wrong, and nothing when none is."""

import functools

import numpy as np
import pytest

from oracles.build import ORACLES
from strata.checkpoint.locate import open_checkpoint
from strata.parity.compare import Comparison, compare, operations, structure
from strata.parity.forward import expected_ops, forward, load
from strata.parity.production import joined, split

CHUNKS = (20, 5, 1, 19)


@pytest.fixture(scope="module")
def traced(files):
    """name -> (reference model, ids, operations of a faultless production, its logits)."""

    @functools.cache
    def trace(name):
        oracle, path = files(name, "gguf")
        model = load(open_checkpoint(path))
        taps, logits = forward(model, oracle.ids)
        return model, oracle.ids, as_steps(taps, len(oracle.ids)), logits.astype(np.float32)

    return trace


def as_steps(taps, total):
    """The operations as production would report them: float32, one chunk after the other."""
    found, start = [], 0
    for size in split(total, CHUNKS):
        for op, tensors in taps:
            cut = {k: v[start : start + size] for k, v in tensors.items()}
            found.append((op, {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in cut.items()}))
        start += size
    return found


def changed(taps, op, change):
    """The same steps, with one operation's tensors changed."""
    return [(name, change({k: v.copy() for k, v in t.items()}) if name == op else (t)) for name, t in taps]


def first_of(traced, name, change):
    """The first operation beyond tolerance once the steps are changed."""
    model, ids, taps, _ = traced(name)
    figures = operations(model, ids, change(taps), len(split(len(ids), CHUNKS)))
    return next((f for f in figures if not f.passed), None)


@pytest.mark.parametrize("name", ORACLES)
def test_a_faultless_production_passes(traced, name):
    model, ids, taps, logits = traced(name)
    found = compare(model, ids, taps, logits, len(split(len(ids), CHUNKS)))
    assert found.first is None, str(found.first)
    assert {f.op for f in found.figures} == {*expected_ops(model.settings), "logits"}


def by_kind(model):
    """One operation of every kind: the last layer that has it."""
    return {(op.split(".", 2)[2] if op.startswith("blk.") else op): op for op in expected_ops(model.settings)}


def scaled(part, factor):
    def change(tensors):
        tensors[part] = (tensors[part] * factor).astype(tensors[part].dtype)
        return tensors

    return change


OUTPUTS = {"router": "weights", "hyper_attn.read": "mixed", "hyper_ffn.read": "mixed"}


@pytest.mark.parametrize("name", ORACLES)
def test_every_operation_is_named_when_it_is_one_percent_off(traced, name):
    model, ids, taps, _ = traced(name)
    steps = len(split(len(ids), CHUNKS))
    for kind, op in by_kind(model).items():
        if kind in ("ple.rows", "attention.selected"):
            continue
        off = changed(taps, op, scaled(OUTPUTS.get(kind, "y"), 1.01))
        comparison = Comparison(model, ids, joined(off, steps)[0])
        comparison.check(op)
        assert not all(f.passed for f in comparison.figures), op
        assert {f.op for f in comparison.figures} == {op}


def test_the_first_one_is_named_when_later_ones_follow_from_it(traced):
    def change(taps):
        return changed(changed(taps, "blk.1.ffn", scaled("y", 1.01)), "blk.2.ffn", scaled("y", 1.5))

    first = first_of(traced, "llama", change)
    assert first is not None and (first.op, first.part) == ("blk.1.ffn", "y")


@pytest.mark.parametrize("name", ORACLES)
def test_every_operation_is_named_when_it_is_missing_repeated_or_new(traced, name):
    model, ids, taps, _ = traced(name)
    steps = len(split(len(ids), CHUNKS))
    assert structure(model, *joined(taps, steps), steps) == []
    for op in by_kind(model).values():
        (missing,) = structure(model, *joined([t for t in taps if t[0] != op], steps), steps)
        assert missing.op == op and "expected here, not found" in missing.note
        (twice,) = structure(model, *joined([*taps, next(t for t in taps if t[0] == op)], steps), steps)
        assert twice.op == op and f"found {steps + 1} times in {steps} steps" in twice.note
        renamed = [("new." + n if n == op else n, t) for n, t in taps]
        _, added = structure(model, *joined(renamed, steps), steps)
        assert added.op == "new." + op and "not expected" in added.note


def test_not_a_number_fails(traced):
    def spoil(tensors):
        tensors["y"].flat[0] = np.nan
        return tensors

    first = first_of(traced, "llama", lambda t: changed(t, "blk.1.ffn", spoil))
    assert first is not None and first.op == "blk.1.ffn"


def test_a_wrong_shape_is_said(traced):
    first = first_of(traced, "llama", lambda t: changed(t, "blk.1.ffn", lambda x: {**x, "y": x["y"][:, :3]}))
    assert first is not None and first.op == "blk.1.ffn" and "shape" in first.note


def test_wrong_logits_fail_though_every_operation_passes(traced):
    model, ids, taps, logits = traced("llama")
    found = compare(model, ids, taps, logits * np.float32(1.01), len(split(len(ids), CHUNKS)))
    assert found.first is not None and found.first.op == "logits"


def test_a_dropped_residual_is_named_by_the_operation_that_reads_it(traced):
    """Every operation is right for its own input; only the input is not what went before."""

    def drop(tensors):
        tensors["x"] = tensors["x"] * np.float32(0.5)
        tensors["y"] = tensors["y"]
        return tensors

    model, ids, taps, logits = traced("llama")
    halved = changed(taps, "blk.1.ffn_norm", drop)
    first = compare(model, ids, halved, logits, len(split(len(ids), CHUNKS))).first
    assert first is not None and first.op == "blk.1.ffn_norm" and first.part == "input x"


def test_an_ngram_embedding_on_the_wrong_layer_is_named(traced):
    first = first_of(traced, "qwen4_exp", lambda t: [(n.replace("blk.1.ple", "blk.2.ple"), x) for n, x in t])
    assert first is not None and first.op == "blk.1.ple.rows" and "not found" in first.note


def test_one_wrong_table_row_is_named(traced):
    def change(tensors):
        tensors["y"][-1, -1] += 1
        return tensors

    first = first_of(traced, "qwen4_exp", lambda t: changed(t, "blk.1.ple.rows", change))
    assert first is not None and (first.op, first.part) == ("blk.1.ple.rows", "y")
    assert first.worst == len(split(45, CHUNKS))


def test_one_wrong_position_is_named(traced):
    def change(tensors):
        # the last query of the step gives up a block for one it did not choose
        row, count = tensors["positions"][-1], tensors["count"][-1]
        free = next(p for p in range(0, 40, 4) if p not in row)
        row[:count] = sorted([*row[4:count], *range(free, free + 4)])
        return tensors

    taps = traced("qwen4_exp")[2]
    last = [i for i, (n, _) in enumerate(taps) if n == "blk.7.attention.selected"][-1]
    spoiled = [
        (n, change({k: v.copy() for k, v in t.items()})) if i == last else (n, t) for i, (n, t) in enumerate(taps)
    ]
    first = first_of(traced, "qwen4_exp", lambda _: spoiled)
    assert first is not None and (first.op, first.worst) == ("blk.7.attention.selected", 1.0)


def test_swapped_experts_are_named_and_equal_ones_are_not(traced):
    def swap(tensors):
        tensors["ids"] = tensors["ids"][:, [1, 0, 2]]
        return tensors

    first = first_of(traced, "qwen3_moe", lambda t: changed(t, "blk.2.router", swap))
    assert first is not None and (first.op, first.part) == ("blk.2.router", "ids")


def test_split_repeats_the_sizes_to_the_end():
    assert split(10, (4, 1)) == [4, 1, 4, 1]
    assert split(3, (20,)) == [3]
    with pytest.raises(ValueError, match="positive"):
        split(3, (0,))
