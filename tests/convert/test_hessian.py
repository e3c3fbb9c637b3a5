"""Sums of x x^T while a model reads, and files rounded by them."""

from pathlib import Path

import numpy as np
import pytest

from convert.folders import config_of, state_of, write_folder
from convert.making import convert, fast, oracle
from strata.checkpoint.locate import open_checkpoint
from strata.convert import calibrate, hessian
from strata.convert.feedback import Feedback
from strata.convert.hessian import LONGEST, PRIOR_ROWS, Moments, columns_of, documents, grouped, measure
from strata.convert.importance import importance_of
from strata.convert.tensors import Item
from strata.convert.types import Types, choose_all
from strata.convert.write import read_items, write_model
from strata.core.errors import UsageError
from strata.quant.decode import codes, dequantise
from strata.quant.feedback import supported

DRAWN = np.random.default_rng(0)
TEXTS = [tuple(DRAWN.integers(4, 199, n).tolist()) for n in (40, 7, 25)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models as folders, and as GGUF files under NAME.gguf."""
    path, made = tmp_path_factory.mktemp("models"), {}
    for name in ("qwen3_moe", "qwen3_next", "qwen4_exp"):
        made[name] = write_folder(path / name, state_of(oracle(name)), config_of(oracle(name)))
        convert(made[name], path / f"{name}.gguf")
        made[f"{name}.gguf"] = path / f"{name}.gguf"
    return made


def measured(path: Path, texts: list[tuple[int, ...]]) -> tuple[dict[str, Moments], list[Item]]:
    with open_checkpoint(path) as checkpoint:
        items, _ = read_items(checkpoint)
        return measure(checkpoint, fast(), texts, items, lambda *_: None), items


def test_diagonals_are_the_sums_of_squares(folders: dict[str, Path]) -> None:
    found, items = measured(folders["qwen3_moe"], TEXTS[:1])
    with open_checkpoint(folders["qwen3_moe"]) as checkpoint:
        plain = calibrate.measure(checkpoint, fast(), TEXTS[0], items, lambda *_: None)
    for name, column in columns_of(found).items():
        if "_exps" not in name and not name.startswith("output"):
            assert np.allclose(column.sums, plain[name].sums, rtol=1e-3), name
            assert (column.rows == plain[name].rows).all()
    up, unweighed = found["blk.1.ffn_up_exps.weight"], plain["blk.1.ffn_up_exps.weight"]
    assert (up.rows == unweighed.rows).all()
    heard = np.trace(up.sums, axis1=1, axis2=2)
    assert (heard <= unweighed.sums.sum(axis=1)).all() and heard.sum() < 0.5 * unweighed.sums.sum()


def test_matrices_are_symmetric_and_have_no_negative_directions(folders: dict[str, Path]) -> None:
    found, _ = measured(folders["qwen4_exp"], TEXTS)
    for name, moments in found.items():
        for h in moments.sums:
            assert np.allclose(h, h.T, rtol=1e-4, atol=1e-5), name
            assert np.linalg.eigvalsh(h.astype(np.float64))[0] > -1e-4 * max(np.trace(h), 1e-6), name


def test_documents_are_read_apart(folders: dict[str, Path]) -> None:
    """Together, several to a step, they add up to what each adds alone, from an empty state."""
    together, _ = measured(folders["qwen4_exp"], TEXTS)
    alone = [measured(folders["qwen4_exp"], [text])[0] for text in TEXTS]
    for name, moments in together.items():
        if not name.startswith(("output", "token_embd")):
            assert np.allclose(moments.sums, sum(a[name].sums for a in alone), rtol=1e-3, atol=1e-4), name
    joined, _ = measured(folders["qwen4_exp"], [sum(TEXTS, ())])
    name = "blk.1.ffn_gate_inp.weight"
    assert not np.allclose(together[name].sums, joined[name].sums, rtol=1e-2)  # control


@pytest.mark.parametrize("name", ["qwen3_next", "qwen4_exp"])
def test_folder_and_file_agree(folders: dict[str, Path], name: str) -> None:
    ours, theirs = (measured(folders[n], TEXTS)[0] for n in (name, f"{name}.gguf"))
    assert set(ours) == set(theirs)
    for tensor, moments in ours.items():
        size = np.abs(theirs[tensor].sums).max()
        assert np.allclose(moments.sums, theirs[tensor].sums, rtol=1e-3, atol=1e-4 * size), tensor


def test_few_rows_are_helped_by_all_experts() -> None:
    sums = np.stack([np.eye(2), np.zeros((2, 2)), 3 * np.ones((2, 2))]).astype(np.float32)
    moments = Moments(sums, np.array([1, 0, 3]))
    common = sums.sum(0) / 4
    for expert in range(3):
        assert np.allclose(moments.of(expert), sums[expert] + PRIOR_ROWS * common)
    assert Moments(sums, np.zeros(3, np.int64)).of(0) is None
    assert np.array_equal(Moments(sums[:1], np.array([5])).of(0), sums[0])


def test_documents_end_at_the_separator() -> None:
    def encode(text: str) -> list[int]:
        return [ord(c) for c in text]

    assert documents("ab<|endoftext|><|endoftext|>c", encode) == [(97, 98), (99,)]
    assert documents("", encode) == []


def test_groups_hold_every_text_once() -> None:
    texts = [tuple(range(n)) for n in (3, LONGEST, 300, 250, 1, 40)]
    groups = grouped(texts)
    assert sorted(len(t) for g in groups for t in g) == sorted(map(len, texts))
    assert all(sum(map(len, g)) >= hessian.ROWS for g in groups[:-1])


def test_too_little_memory_is_said_before_it_is_taken(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hessian, "available_memory", lambda: 1000)
    with pytest.raises(UsageError, match=r"--feedback: the sums up to tensor \S+ take .* GiB are free"):
        measured(folders["qwen3_moe"], TEXTS)


def test_a_file_with_feedback_is_nearer_to_its_source(folders: dict[str, Path], tmp_path: Path) -> None:
    with open_checkpoint(folders["qwen4_exp"]) as checkpoint:
        items, keys = read_items(checkpoint)
        found = measure(checkpoint, fast(), TEXTS, items, lambda *_: None)
        choices = choose_all(items, Types("Q4_0"))
        importance = importance_of(columns_of(found), items)
        for name, feedback in (("plain", None), ("fed", Feedback(found))):
            write_model(tmp_path / f"{name}.gguf", choices, keys, lambda *_: None, importance, 1, feedback)
        wanted = {i.name: np.concatenate([v.reshape(-1, i.columns) for _, v in i.pieces()]) for i in items}
    changed = set()
    with open_checkpoint(tmp_path / "plain.gguf") as a, open_checkpoint(tmp_path / "fed.gguf") as b:
        for choice in choices:
            name, fmt = choice.item.name, choice.format
            plain, fed = (
                np.ascontiguousarray(c.bytes_of(c.tensors[name]).reshape(-1, fmt.row_bytes(choice.item.columns)))
                for c in (a, b)
            )
            if not np.array_equal(plain, fed):
                changed.add(name)
                assert np.array_equal(codes(fmt, plain).scale, codes(fmt, fed).scale)
                before, after = (error(wanted[name] - dequantise(fmt, raw), found[name]) for raw in (plain, fed))
                assert after < 0.9 * before, name
    fed_names = {c.item.name for c in choices if supported(c.format) and c.item.name in found}
    assert changed == fed_names and len(changed) > 20


def error(difference: np.ndarray, moments: Moments) -> float:
    """Sum over rows of e H e^T, every expert with its own H."""
    parts = difference.reshape(len(moments.rows), -1, difference.shape[-1]).astype(np.float64)
    hessians = [moments.of(m) for m in range(len(parts))]
    return float(sum(((e @ h) * e).sum() for e, h in zip(parts, hessians, strict=True)))
