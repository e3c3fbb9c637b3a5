"""What kernels are given beside plain tensors: weights in file formats, and where each row's state lies."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch

from strata.quant.format import QuantFormat


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Weight:
    """A matrix [rows, cols] in its file format; y = x W^T.

    `planes[0]` is uint8 [rows, row_bytes], contiguous: usually a view of the mapped file. Formats with their scales
    apart (FP8_BLOCK, NVFP4_PAIRS; quant/formats.py) keep them in `planes[1]`.
    """

    format: QuantFormat
    rows: int
    cols: int
    planes: tuple[torch.Tensor, ...]
    scale: float = 1.0
    """Multiplies the whole product at the end (one float32 rounding); NVFP4's second scale."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ExpertBank:
    """The routed experts of one layer: `gate[e]`, `up[e]` are [width, hidden], `down[e]` is [hidden, width]."""

    gate: tuple[Weight, ...]
    up: tuple[Weight, ...]
    down: tuple[Weight, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """Where the rows of one step belong. All tensors are contiguous and on the CPU.

    slot      int32 [T]      slot of each row
    position  int32 [T]      position of each row in its slot's sequence
    segments  int32 [S, 3]   (slot, first row, number of rows): each run of consecutive rows of one slot, in order;
                             a slot has at most one segment in a step
    held      int32 [S]      not 0: the slot's recurrent state stays as it was before the segment, for not all rows of
                             it may come to count; None: no segment is held
    """

    slot: torch.Tensor
    position: torch.Tensor
    segments: torch.Tensor
    held: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class HeadGate:
    """What heads x [T, heads, d] become: kind(values) * (x / sqrt(mean(x^2) + eps) * weight), the mean of each head."""

    kind: Literal["silu", "sigmoid"]
    values: torch.Tensor
    """[T, heads * d]"""
    weight: torch.Tensor
    """[d]"""
    eps: float


@dataclass(frozen=True, slots=True)
class DeltaInputs:
    """What `Ops.delta_inputs` reads beside the rows: x [T, C], weight [C, taps], history [slots, taps - 1, C]; b, a
    [T, heads], rate, bias [heads].
    """

    x: torch.Tensor
    weight: torch.Tensor
    history: torch.Tensor
    b: torch.Tensor
    a: torch.Tensor
    rate: torch.Tensor
    bias: torch.Tensor


@dataclass(frozen=True, slots=True)
class IndexInputs:
    """What an indexer makes of a step's rows: queries, raw keys, keys of the blocks of `ratio` that rows end."""

    q: torch.Tensor
    """[T, heads, d]"""
    raw: torch.Tensor
    """[T, d]"""
    norms: "HeadNorms"
    """Of queries and of blocks' keys."""
    frequencies: torch.Tensor
    """float64 [r/2]"""
    raw_keys: "PagedPlane"
    block_keys: "PagedPlane"
    ratio: int


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """Norms over each head's values: `x / sqrt(mean(x^2) + eps) * weight` with weights [d] of queries and of keys."""

    q: torch.Tensor
    k: torch.Tensor
    eps: float


def held_flags(rows: Rows) -> list[bool]:
    """Of every segment whether it is held."""
    return [False] * len(rows.segments) if rows.held is None else [bool(held) for held in rows.held.tolist()]


T = TypeVar("T")

KvType = Literal["f32", "bf16", "int8"]
"""What attention's keys and values are kept as."""

KV_BLOCK = 32
"""Values of an int8 entry that share a scale."""


@dataclass(frozen=True, slots=True)
class NgramHash:
    """Exact integers: mix_n = t0 m0 ^ t1 m1 ^ ..; row of head h = mix mod size_h + offset_h.

    A context token at or beyond an end-of-text token (not counting the current one), or before the sequence, is that
    token. Heads come in order of n: first all 2-gram heads, then the 3-gram heads.
    """

    multipliers: Sequence[int]
    sizes: Sequence[int]
    offsets: Sequence[int]
    end_of_text: int


@dataclass(frozen=True, slots=True)
class DrawRows:
    """How a token is chosen from each of N rows of logits, where the rows lie.

    temperature  float32 [N]   0 (or less than float32 holds): the largest logit, the lower id among equals
    top_k        int32 [N]     0: all
    top_p, min_p, uniform  float64 [N]
    tokens       int32 [N]     where the result goes: there, or memory of the host that the device writes to
    """

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    uniform: torch.Tensor
    tokens: torch.Tensor


@dataclass(frozen=True, slots=True)
class PagedPlane:
    """One plane of a paged cache, e.g. the keys of a layer.

    data    [pages, heads, page, d] or, of entries without heads, [pages, page, d]; float32, bfloat16 or int8
    table   int32 [slots, pages_per_slot]
    scales  float32 like `data`, but d / 32 at the end; with int8 only: one for each 32 values

    A page holds `page` consecutive entries of one slot, head by head, so that reading one head is reading memory in
    order. Entry p of slot s is data[table[s, p // page], :, p % page].
    """

    data: torch.Tensor
    table: torch.Tensor
    scales: torch.Tensor | None = None

    @property
    def entry(self) -> tuple[int, ...]:
        """Shape of one entry: (heads, d) or (d,)."""
        return (*self.data.shape[1:-2], self.data.shape[-1])

    def at(self, pages: T, places: T) -> tuple[T | slice, ...]:
        """The index of entries by page and place, into `data` and `scales` alike."""
        return (pages, slice(None), places) if self.data.ndim == 4 else (pages, places)

    @property
    def page(self) -> int:
        """Entries per page."""
        return int(self.data.shape[-2])
