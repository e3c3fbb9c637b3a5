"""The engine's equalities on every oracle, and that each of them can fail."""

import functools
from pathlib import Path

import numpy as np
import pytest
import torch

from models.made import ops_of, oracle, path_of, runner_of, same_bits
from oracles.build import ORACLES, build
from oracles.gguf_writer import blocks, write
from strata.checks.equalities import Equalities, Plan, flip, spoil, verdict

NAMES = ("one slot = many slots", "chunked prompt = whole prompt", "drafts on = drafts off", "restored = never parked")
CASES = [(name, 2, "auto") for name in ORACLES] + [("qwen4_exp", 2, "portable")]


def prompts(name):
    """Shorter and longer than the selection's budget, one of them with an end-of-text token inside."""
    ids = oracle(name).ids
    return [ids[:5], ids[7:30], ids[20:32]]


def equalities(name, threads=1, isa="auto", tamper=False, steps=9):
    runner = runner_of(path_of(name, "gguf"), ops_of(threads, isa), slots=3)
    return Equalities(runner, Plan(prompts(name), steps, tamper))


@functools.cache
def solo(name):
    return equalities(name).solo


@pytest.mark.parametrize(("name", "threads", "isa"), CASES)
def test_every_bit_agrees(name, threads, isa):
    found = equalities(name, threads, isa)
    verdicts = found.all()
    assert [(v.name, v.difference) for v in verdicts] == [(n, "") for n in NAMES]
    assert [v.rows for v in verdicts] == [30, 90, 30, 30]
    # One thread on the best instruction set gives the same bits.
    for rows, expected in zip(found.solo, solo(name), strict=True):
        assert all(same_bits(a, b) for a, b in zip(rows, expected, strict=True))


def test_every_bit_agrees_in_blocks(tmp_path):
    path = write(build("qwen3_next", wide=True, length=24), tmp_path / "m.gguf", blocks("Q4_0"))
    ids = oracle("qwen3_next").ids
    plan = Plan([ids[:5], ids[7:20], ids[20:27]], 3)
    found = [Equalities(runner_of(path, ops_of(*ops), slots=3), plan) for ops in ((2, "auto"), (1, "portable"))]
    assert [v.difference for v in found[0].all()] == [""] * 4
    pairs = zip(found[0].solo, found[1].solo, strict=True)
    assert all(same_bits(a, b) for one, two in pairs for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize(("kv_type", "wide"), [("bf16", False), ("int8", True)])
def test_every_bit_agrees_with_other_types_of_cache(kv_type, wide, tmp_path):
    path, ids = path_of("qwen4_exp", "gguf"), oracle("qwen4_exp").ids
    if wide:  # heads of 64: whole blocks of int8
        path, ids = write(build("qwen3_next", wide=True, length=24), tmp_path / "m.gguf"), oracle("qwen3_next").ids
    plan = Plan([ids[:5], ids[7:20], ids[20:27]], 3)
    found = [Equalities(runner_of(path, ops_of(*o), 3, kv_type=kv_type), plan) for o in ((2, "auto"), (1, "portable"))]
    assert [v.difference for v in found[0].all()] == [""] * 4
    plain = Equalities(runner_of(path, ops_of(), 3), plan)
    logits = [np.concatenate([row for rows in one.solo for row in rows]) for one in (*found, plain)]
    assert same_bits(logits[0], logits[1]) and not same_bits(logits[0], logits[2])


@pytest.mark.parametrize("name", ORACLES)
def test_every_equality_fails_when_a_stored_value_is_changed(name):
    for found in equalities(name, tamper=True, steps=6).all():
        assert not found.equal, found.name
        assert found.difference.startswith("prompt 0") and "answer position" in found.difference


KINDS = {
    "keys": lambda s, slot: flip(s.layers[3].keys.data[s.pages.held[slot][0], :, 1]),
    "values": lambda s, slot: flip(s.layers[3].values.data[s.pages.held[slot][0], :, 1]),
    "block keys": lambda s, slot: s.layers[3].block_keys.data[s.pages.held[slot][0], 0].mul_(-3),
    "convolution": lambda s, slot: flip(s.layers[0].conv[slot]),
    "delta state": lambda s, slot: flip(s.layers[0].delta[slot]),
    "n-gram convolution": lambda s, slot: flip(s.layers[1].ngram[slot]),
    "tokens": lambda s, slot: np.put(s.tokens[slot], s.length[slot] - 1, s.tokens[slot, s.length[slot] - 1] ^ 1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_memory_counts(kind, monkeypatch):
    """One kind alone is changed, in the restored slot of a prompt that is long enough to have everything."""
    monkeypatch.setattr("strata.checks.equalities.spoil", KINDS[kind])
    runner = runner_of(path_of("qwen4_exp", "gguf"), slots=3)
    ids = oracle("qwen4_exp").ids
    found = Equalities(runner, Plan([ids[:23], ids[5:30], ids[2:30]], 8, tamper=True)).restored()
    assert not found.equal


@pytest.mark.parametrize("cut", [-1, 1])
def test_drafts_that_are_kept_by_one_too_many_or_too_few_show(cut, monkeypatch):
    found = equalities("qwen4_exp")
    states = found.runner.states
    plain = states.commit

    def off_by_one(slot, rows, ops):
        window = states.open[slot]
        before = states.length[slot]
        plain(slot, max(0, min(window.rows, rows + cut)) if window.held else rows, ops)
        states.length[slot] = before + rows

    monkeypatch.setattr(states, "commit", off_by_one)
    assert not found.drafts().equal


def test_the_instruction_sets_are_different_code():
    """The variants above compare something: where the processor has more, more than the portable path is used."""
    assert ops_of(2, "portable").native.isa == "portable"
    if "avx2" in Path("/proc/cpuinfo").read_text():
        assert ops_of(1).native.isa != "portable"


def test_a_verdict_names_the_place_and_both_tokens():
    row, other = np.array([0.0, 1.0, 0.5], np.float32), np.array([2.0, 1.0, 0.5], np.float32)
    found = verdict("n", [("prompt 0", [row, row], [row, row]), ("prompt 1", [row, row], [row, other])])
    assert (found.rows, found.equal) == (4, False)
    assert found.difference == "prompt 1, answer position 1: tokens 1 and 0, logits differ by 2"
    assert verdict("n", [("prompt 0", [row], [])]).difference == "prompt 0: 0 rows, expected 1"
    minus = np.array([-0.0, 1.0, 0.5], np.float32)
    assert not verdict("n", [("prompt 0", [row], [minus])]).equal


def test_spoiling_changes_every_layer_that_remembers():
    runner = runner_of(path_of("qwen4_exp", "gguf"), slots=1)
    runner.states.reserve(0, [1, 2], 0, keep=False)
    for layer in runner.states.layers:
        for plane in (layer.keys, layer.values):
            if plane is not None:
                plane.data.zero_()
    spoil(runner.states, 0)
    assert torch.equal(runner.states.layers[0].delta[0].view(-1)[:2], torch.tensor([-1.0, 0.0]))
    touched = [
        [t is not None and bool((t != 0).any()) for t in (layer.keys and layer.keys.data, layer.conv, layer.ngram)]
        for layer in runner.states.layers
    ]
    assert all(any(row) for row in touched)
