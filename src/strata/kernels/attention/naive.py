"""Specification of attention.

For one row and query head, the visible positions j = 0 .. n - 1 (in the sparse form j is the place in the list) are cut
into blocks of BLOCK = 256: 0 .. 255, 256 .. 511, ... Block by block:
1. `s_j = dot(q, k_j) scale`: the dot by the lane rule (norm/naive.py), then one rounding for the product;
2. `m = max s_j` of the block; `e_j = exp(s_j - m)`: one rounding for the difference, then the shared exp
   (activate/naive.py);
3. `z`: 32 lanes from +0, lane j mod 32 adds its e_j in increasing order (plain additions), then the lane tree;
4. `a_c = fma(e_j, v_j[c], a_c)` in increasing j from +0 for every value dim c.
The blocks are merged in increasing order into M, Z and A_c, which start as the first block's m, z and a_c:
5. `M' = m if m > M else M`; `p = exp(M - M')`, `r = exp(m - M')`, as in 2;
6. `Z = fma(z, r, Z p)` and `A_c = fma(a_c, r, A_c p)`: one rounding for the product with p, one for the rest; M = M'.
7. `o_c = A_c / Z`, IEEE division.
So a result depends on the row's own positions alone, and blocks may be computed apart (docs/decisions/0009).
A NaN among the scores makes every e_j or z of its block NaN, so the whole head is NaN; so does a block whose scores are
all -infinity. An empty list gives NaN.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from strata.kernels.activate.naive import exp
from strata.kernels.exact import LANES, add, divide, fma, lane_dot, lane_tree, multiply
from strata.kernels.views import KV_BLOCK, PagedPlane, Rows

Array = npt.NDArray[np.float32]
Index = npt.NDArray[np.int32]
BLOCK = 256
_ROWS_AT_ONCE = 16


def gather(plane: PagedPlane, slot: int, positions: Index) -> Array:
    """Entries `positions` of `slot` -> [len(positions), ...]; IndexError when one lies on no page."""
    if positions.size and (int(positions.min()) < 0 or int(positions.max()) // plane.page >= plane.table.shape[1]):
        raise IndexError(f"slot {slot}: position {int(positions.max())} is beyond its page table")
    pages = plane.table.numpy()[slot, positions // plane.page]
    if pages.size and (int(pages.min()) < 0 or int(pages.max()) >= plane.data.shape[0]):
        raise IndexError(f"slot {slot}: page outside 0 .. {plane.data.shape[0] - 1} in its page table")
    return read(plane, pages, positions % plane.page)


def read(plane: PagedPlane, pages: Index, places: Index) -> Array:
    """Entries as float32: bfloat16 exactly, int8 as float(q) * d with one rounding."""
    if plane.data.dtype is torch.bfloat16:
        halves = plane.data.view(torch.int16).numpy()[plane.at(pages, places)].view(np.uint16)
        return (halves.astype(np.uint32) << 16).view(np.float32)
    entries = plane.data.numpy()[plane.at(pages, places)].astype(np.float32)
    if plane.scales is None:
        return entries
    d = plane.scales.numpy()[plane.at(pages, places)]
    return multiply(entries.reshape(*d.shape, KV_BLOCK), d[..., None]).reshape(entries.shape)


def lane_sum(x: Array) -> Array:
    """Step 3: sum over the last axis by 32 lanes with plain additions, then the lane tree. x [..., n] -> [...]."""
    acc = np.zeros((*x.shape[:-1], LANES), np.float32)
    for start in range(0, x.shape[-1], LANES):
        used = min(LANES, x.shape[-1] - start)
        acc[..., :used] = add(acc[..., :used], x[..., start : start + used])
    return lane_tree(acc)


def softmax_terms(scores: Array, visible: npt.NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """Steps 2 and 3 over the last axis: m, e (0 where not visible) and their sum z."""
    with np.errstate(all="ignore"):
        top = np.max(np.where(visible, scores, np.float32(-np.inf)), axis=-1, initial=-np.inf)
        e = np.where(visible, exp((scores - top[..., None]).astype(np.float32)), np.float32(0))
    return top, e, lane_sum(e)


@dataclass(frozen=True, slots=True)
class Terms:
    """M and Z [R, heads] and A [R, heads, d] of the blocks so far."""

    top: Array
    total: Array
    sums: Array


def block_terms(q: Array, keys: Array, values: Array, counts: Index, scale: float) -> Terms:
    """Steps 1 to 4 for rows that all see something of one block, row r its first counts[r] entries.

    q [R, heads, d], keys, values [J, kv_heads, d].
    """
    num_rows, heads = q.shape[:2]
    num_entries, kv_heads = keys.shape[:2]
    spread = np.arange(heads) // (heads // kv_heads)
    visible = np.arange(num_entries)[None, None, :] < counts[:, None, None]
    with np.errstate(all="ignore"):
        by_head = np.ascontiguousarray(keys[:, spread].transpose(1, 0, 2))
        scores = lane_dot(q[:, :, None, :], by_head[None]) * np.float32(scale)
    top, e, total = softmax_terms(scores, np.broadcast_to(visible, scores.shape))
    sums = np.zeros((num_rows, heads, values.shape[-1]), np.float32)
    for j in range(num_entries):
        active = counts > j
        sums[active] = fma(e[active, :, j, None], values[None, j, spread], sums[active])
    return Terms(top, total, sums)


def merge(before: Terms, block: Terms) -> Terms:
    """Steps 5 and 6."""
    with np.errstate(all="ignore"):
        top = np.where(block.top > before.top, block.top, before.top)
        keep, join = exp((before.top - top).astype(np.float32)), exp((block.top - top).astype(np.float32))
    total = fma(block.total, join, multiply(before.total, keep))
    sums = fma(block.sums, join[..., None], multiply(before.sums, keep[..., None]))
    return Terms(top, total, sums)


def attend(q: Array, keys: Array, values: Array, counts: Index, scale: float) -> Array:
    """All steps for R rows over the same entries, row r over the first counts[r].

    q [R, heads, d], keys, values [J, kv_heads, d] -> [R, heads, d].
    """
    out = np.full(q.shape, np.nan, np.float32)
    so_far = Terms(np.zeros(q.shape[:2], np.float32), np.zeros(q.shape[:2], np.float32), np.zeros(q.shape, np.float32))
    for start in range(0, len(keys), BLOCK):
        some = np.flatnonzero(counts > start)
        if not some.size:
            break
        here = slice(start, start + BLOCK)
        block = block_terms(q[some], keys[here], values[here], np.minimum(counts[some] - start, BLOCK), scale)
        if start:
            block = merge(Terms(so_far.top[some], so_far.total[some], so_far.sums[some]), block)
        so_far.top[some], so_far.total[some], so_far.sums[some] = block.top, block.total, block.sums
    seen = counts > 0
    out[seen] = divide(so_far.sums[seen], so_far.total[seen][..., None])
    return out


def check_heads(op: str, q: torch.Tensor, keys: PagedPlane, values: PagedPlane) -> None:
    """ValueError when head counts or dims of q [T, heads, d], keys and values do not fit together."""
    kv_heads, dim = keys.entry
    if q.shape[1] % kv_heads or q.shape[2] != dim or values.entry != keys.entry:
        raise ValueError(
            f"{op}: q {tuple(q.shape)}, entries of keys {keys.entry} and of values {values.entry} do not fit"
        )


def attention(q: torch.Tensor, keys: PagedPlane, values: PagedPlane, rows: Rows, scale: float) -> torch.Tensor:
    """See Ops.attention."""
    check_heads("attention", q, keys, values)
    queries, slots, position = q.numpy(), rows.slot.numpy(), rows.position.numpy()
    out = np.empty_like(queries)
    for slot in np.unique(slots):
        members = np.flatnonzero(slots == slot)
        seen = np.arange(int(position[members].max()) + 1, dtype=np.int32)
        k, v = gather(keys, int(slot), seen), gather(values, int(slot), seen)
        for first in range(0, len(members), _ROWS_AT_ONCE):
            some = members[first : first + _ROWS_AT_ONCE]
            counts = position[some] + 1
            longest = int(counts.max())
            out[some] = attend(queries[some], k[:longest], v[:longest], counts, scale)
    return torch.from_numpy(out.reshape(len(out), -1))
