"""What a model feeds into its matrices while it reads a text: sums of x x^T, for rounding with error feedback."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from strata.checkpoint.checkpoint import Checkpoint
from strata.convert.importance import PACKED, Column, Columns, NamedSource
from strata.convert.recording_ops import RecordingOps
from strata.convert.tensors import Item
from strata.core.errors import UsageError
from strata.core.limits import Limits
from strata.core.window import Window
from strata.kernels.ops import Ops
from strata.kernels.views import ExpertBank, Weight
from strata.models.registry import ARCHITECTURES, architecture_of, open_source, vocabulary_size
from strata.plan.machine import available_memory
from strata.runtime.runner import DeviceRunner

ROWS = 512
"""About how many tokens one step reads, of one document or several."""
LONGEST = 1024
"""Longer documents are cut here (or at the model's context); the rest is read as a document of its own."""
SEPARATOR = "<|endoftext|>"
"""Ends a document: the next one is read from an empty state."""
SCORED = 0.25
"""Part of every document whose logits are asked for, so that the vocabulary projection is fed too."""
PRIOR_ROWS = 64
"""An expert that few tokens visited is rounded partly for all experts' inputs, as if so many of its rows were those."""

Said = Callable[[int, int], None]
"""(tokens read, tokens in all)"""


@dataclass(slots=True)
class Moments:
    """What was fed into one tensor: float32 [matrices, n, n] sums of x x^T, and rows per matrix."""

    sums: npt.NDArray[np.float32]
    rows: npt.NDArray[np.int64]

    def add(self, matrix: int, x: torch.Tensor) -> None:
        """Rows x [N, n] went into `matrix`."""
        self.sums[matrix] += (x.T @ x).numpy()
        self.rows[matrix] += len(x)

    def of(self, matrix: int) -> npt.NDArray[np.float32] | None:
        """The Hessian of one matrix, or None when no row went into any; see PRIOR_ROWS."""
        total = int(self.rows.sum())
        if not total:
            return None
        if len(self.rows) == 1:
            return np.asarray(self.sums[0])
        common = self.sums.sum(axis=0) / np.float32(total)
        return np.asarray(self.sums[matrix] + np.float32(PRIOR_ROWS) * common, np.float32)


Hessians = Mapping[str, Moments]
"""By GGUF's tensor name."""


@dataclass(slots=True)
class Hearing:
    """Implements `Heard`: adds up x x^T for every named matrix; matrices that read the same x share one sum."""

    names: NamedSource
    room: int
    """Bytes that the sums may take."""
    moments: dict[str, Moments] = field(default_factory=dict)
    taken: int = 0

    def product(self, weight: Weight, x: torch.Tensor) -> None:
        """See `Heard.product`."""
        self.products((weight,), x)

    def products(self, weights: Sequence[Weight], x: torch.Tensor) -> None:
        """Several matrices are multiplied with rows x [N, cols]."""
        names = dict.fromkeys(n for n in map(self.names.name_of, weights) if n is not None)
        if names:
            self.entry(tuple(names), 1, x.shape[1]).add(0, x)

    def expert(self, bank: ExpertBank, expert: int, x: torch.Tensor, hidden: torch.Tensor) -> None:
        """See `Heard.expert`."""
        block = f"blk.{self.names.layers[bank.gate[0].planes[0].data_ptr()]}."
        count = len(bank.gate)
        self.entry((block + "ffn_gate_exps", block + "ffn_up_exps"), count, x.shape[1]).add(expert, x)
        self.entry((block + "ffn_down_exps",), count, hidden.shape[1]).add(expert, hidden)

    def entry(self, names: Sequence[str], matrices: int, n: int) -> Moments:
        """The sums of tensors that read the same rows, made when they are first fed."""
        found = self.moments.get(names[0])
        if found is None:
            self.taken += 4 * matrices * n * n
            if self.taken > self.room:
                raise UsageError(
                    f"--feedback: the sums up to tensor {names[0]} take {self.taken / 2**30:.1f} GiB, "
                    f"{self.room / 2**30:.1f} GiB are free",
                    "leave --feedback out: --calibrate alone needs little memory",
                )
            found = Moments(np.zeros((matrices, n, n), np.float32), np.zeros(matrices, np.int64))
            self.moments.update(dict.fromkeys(names, found))
        return found


class HearingOps(RecordingOps):
    """Implements `Ops` by `inner`, bit for bit, and tells `hearing` what is multiplied with what."""

    def __init__(self, inner: Ops, hearing: Hearing) -> None:
        super().__init__(inner, hearing)
        self.hearing = hearing

    def linear(self, x: torch.Tensor, weights: Sequence[Weight]) -> tuple[torch.Tensor, ...]:
        """See Ops.linear."""
        self.hearing.products(weights, x)
        return self.inner.linear(x, weights)

    def experts(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, bank: ExpertBank) -> torch.Tensor:
        """See Ops.experts; rows are heard times the router's weight, as an expert's error enters the sum."""
        for expert in sorted({int(e) for e in ids.flatten()}):
            rows, ranks = (ids == expert).nonzero(as_tuple=True)
            read = x[rows].contiguous()
            gate, up = self.inner.linear(read, (bank.gate[expert], bank.up[expert]))
            share = weights[rows, ranks].unsqueeze(1)
            self.hearing.expert(bank, expert, read * share, self.inner.activate("silu", gate) * up * share)
        return self.inner.experts(x, ids, weights, bank)


def documents(text: str, encode: Callable[[str], Sequence[int]]) -> list[tuple[int, ...]]:
    """The tokens of every document of a text; documents end at SEPARATOR, and none is empty."""
    return [tuple(tokens) for tokens in (encode(part) for part in text.split(SEPARATOR) if part) if tokens]


def measure(
    checkpoint: Checkpoint, ops: Ops, texts: Sequence[tuple[int, ...]], items: Sequence[Item], said: Said
) -> dict[str, Moments]:
    """Feed every text through the model from an empty state; what each of `items` reads is added up.

    UsageError when the sums do not fit the memory that is free.
    """
    name = architecture_of(checkpoint)
    source = NamedSource(open_source(checkpoint, name))
    hearing = Hearing(source, available_memory())
    hearing_ops = HearingOps(ops, hearing)
    model = ARCHITECTURES[name].build(source, checkpoint.metadata, vocabulary_size(checkpoint), hearing_ops)
    source.check_all_used()
    most = min(LONGEST, model.shape.context)
    groups = grouped([t[start : start + most] for t in texts for start in range(0, len(t), most)])
    slots, longest = max(map(len, groups)), max(len(t) for group in groups for t in group)
    runner = DeviceRunner(model, hearing_ops, Limits(slots, longest, longest + ROWS))
    done, total = 0, sum(map(len, texts))
    for group in groups:
        for slot in range(len(group)):
            runner.states.clear(slot)
        runner.forward([Window(s, 0, text, max(1, int(SCORED * len(text)))) for s, text in enumerate(group)])
        for slot, text in enumerate(group):
            runner.states.commit(slot, len(text), ops)
        done += sum(map(len, group))
        said(done, total)
    return by_item(hearing.moments, items)


def grouped(texts: Sequence[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    """Texts in groups of about ROWS tokens, the long ones first."""
    groups: list[list[tuple[int, ...]]] = []
    held = ROWS
    for text in sorted(texts, key=len, reverse=True):
        if held >= ROWS:
            groups.append([])
            held = 0
        groups[-1].append(text)
        held += len(text)
    return groups


def by_item(heard: Hessians, items: Sequence[Item]) -> dict[str, Moments]:
    """What was heard on the source, under the names and in the column order of the file to be written."""
    found: dict[str, Moments] = {}
    for item in items:
        block, _, leaf = item.name.removesuffix(".weight").rpartition(".")
        names = (f"{block}.{leaf}", f"{block}.{PACKED.get(leaf, leaf)}") if block else (leaf, leaf)
        moments = heard.get(names[0]) or heard.get(names[1])
        if moments is not None:
            found[item.name] = moments if item.reorder is None else reordered(moments, item.reorder)
    return found


def reordered(moments: Moments, reorder: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]) -> Moments:
    """The sums with rows and columns in the file's order of columns."""
    once = reorder(moments.sums)
    return Moments(np.ascontiguousarray(reorder(once.swapaxes(1, 2))), moments.rows)


def columns_of(hessians: Hessians) -> Columns:
    """The Hessians' diagonals: how loud every column is (an expert's rows times the router's weight)."""
    return {
        name: Column(np.stack([np.diagonal(h).astype(np.float64) for h in moments.sums]), moments.rows)
        for name, moments in hessians.items()
    }
