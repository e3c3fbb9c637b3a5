"""Every operation a model is made of, as one protocol with two implementations.

`naive_ops.NaiveOps` calls each operation's `naive.py` (numpy: the specification), `cpu_ops.CpuOps` its `cpu.py` (C++).
All tensors are contiguous float32 on the CPU unless said; T is the number of rows of the step. Every operation is
independent of batch company: a row's result depends on that row and its slot's state only, bit for bit, whatever
other rows, threads or instruction set run. Products, activations and the expert combination follow docs/numerics.md to
the bit in both implementations; reductions elsewhere use a fixed order that both share.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import torch

from strata.kernels.branch import Branch
from strata.kernels.step_program import Workspace
from strata.kernels.views import (
    DeltaInputs,
    DrawRows,
    ExpertBank,
    HeadGate,
    HeadNorms,
    IndexInputs,
    NgramHash,
    PagedPlane,
    Rows,
    Weight,
)

Activation = Literal["silu", "sigmoid", "softplus", "exp"]
RopeLayout = Literal["halves", "pairs"]
HeadPairing = Literal["grouped", "tiled"]


class Ops(Protocol):
    """The operations; see the module's docstring for what holds for all of them."""

    def workspace(self) -> Workspace:
        """A new one, for steps of these operations."""
        ...

    def branch(self, rows: int) -> Branch:
        """Work on `rows` rows that may go on beside what is asked for after it; no bit depends on that."""
        ...

    def linear(self, x: torch.Tensor, weights: Sequence[Weight]) -> tuple[torch.Tensor, ...]:
        """y_i = x W_i^T for several matrices that read the same x [T, K] (quantised once) -> [T, rows_i] each."""
        ...

    def embed(self, ids: torch.Tensor, shards: Sequence[Weight]) -> torch.Tensor:
        """Rows `ids` (int64 [T]) of a table, decoded -> [T, cols]; IndexError when an id is out of range.

        The shards are one matrix; rows are numbered through all of them in order.
        """
        ...

    def activate(self, kind: Activation, x: torch.Tensor, divisor: float = 1.0, factor: float = 1.0) -> torch.Tensor:
        """kind(x / divisor) * factor for each value, a rounding each; ones change no bit.

        With the shared polynomial exp (docs/numerics.md); softplus is linear above 20.
        """
        ...

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor | None, eps: float, group: int) -> torch.Tensor:
        """x / sqrt(mean(x^2) + eps) * weight; the mean runs over groups of `group` values of the last axis.

        x [..., D] with D a multiple of `group`; weight [D] or [group] (repeated) or None. Sum of squares by 32 lanes
        with fma and the lane tree, IEEE division and square root.
        """
        ...

    def add_norm(
        self, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor | None, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(x + y, rms_norm of that): x, y [T, D], the mean over all of a row. As kernels/joined.py."""
        ...

    def gated_norm(
        self,
        kind: Activation,
        gate: torch.Tensor,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        eps: float,
        group: int,
    ) -> torch.Tensor:
        """activate(kind, gate) * rms_norm(x, weight, eps, group), by each operation's rules -> [T, D].

        gate [T, D]; x [T, ..., d] of as many values, in the same order; the last axis d is a multiple of `group`.
        """
        ...

    def l2_norm(self, x: torch.Tensor, eps: float, scale: float) -> torch.Tensor:
        """x / sqrt(sum(x^2) + eps) * scale over the last axis, reduced as in rms_norm."""
        ...

    def rope(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, layout: RopeLayout) -> torch.Tensor:
        """Rotate the first r dims of every head; x [T, heads, d]; cos, sin [T, r/2]; the rest passes.

        halves: dim i with i + r/2; pairs: dim 2i with 2i + 1. y_a = a cos - b sin, y_b = b cos + a sin, each product
        rounded once, then one rounding for the sum.
        """
        ...

    def attention_inputs(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        norms: HeadNorms | None,
        angles: tuple[torch.Tensor, torch.Tensor],
        layout: RopeLayout,
        keys: PagedPlane,
        values: PagedPlane,
        rows: Rows,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries and keys [T, heads, d], normed per head and rotated; the keys and v are put at the rows' entries.

        q [T, heads, d] may be a view of which only a head's values are neighbours; k, v [T, kv_heads, d]; `angles` as
        `rope` takes them. As kernels/joined.py.
        """
        ...

    def indexed_inputs(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        norms: HeadNorms | None,
        angles: tuple[torch.Tensor, torch.Tensor],
        layout: RopeLayout,
        keys: PagedPlane,
        values: PagedPlane,
        rows: Rows,
        index: IndexInputs,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """attention_inputs and an indexer's index_inputs and complete_blocks -> queries, keys, the indexer's queries.

        As kernels/joined.py.
        """
        ...

    def index_inputs(
        self,
        q: torch.Tensor,
        raw: torch.Tensor,
        weight: torch.Tensor,
        eps: float,
        angles: tuple[torch.Tensor, torch.Tensor],
        layout: RopeLayout,
        raw_keys: PagedPlane,
        rows: Rows,
    ) -> torch.Tensor:
        """An indexer's queries [T, heads, d], normed per head (weight [d]) and rotated; raw [T, d] goes into the cache.

        As kernels/joined.py.
        """
        ...

    def complete_blocks(
        self,
        raw_keys: PagedPlane,
        block_keys: PagedPlane,
        rows: Rows,
        ratio: int,
        weight: torch.Tensor,
        eps: float,
        frequencies: torch.Tensor,
        layout: RopeLayout,
    ) -> None:
        """Put the key of every block of `ratio` positions that a row ends into the cache of blocks.

        That is pool_blocks of the raw keys, normed (weight [d]) and rotated (frequencies float64 [r/2]) to the block's
        first position. As kernels/joined.py.
        """
        ...

    def attention(
        self, q: torch.Tensor, keys: PagedPlane, values: PagedPlane, rows: Rows, scale: float
    ) -> torch.Tensor:
        """Causal attention of row t over positions 0 .. position[t] of its slot.

        q [T, heads, d]; keys.data [pages, page, kv_heads, d]; query head h uses KV head h // (heads / kv_heads).
        scores: dot by the lane rule, times scale; then for each block of 256 absolute positions its own maximum, shared
        exp, sum of e_j (32 lanes over j, lane tree) and sum of e_j v_j by fma in increasing j; blocks merged in
        increasing order (attention/naive.py) and one division. -> [T, heads * d]. The step's own keys are already in
        the cache.
        """
        ...

    def select_blocks(
        self, q: torch.Tensor, block_keys: PagedPlane, rows: Rows, ratio: int, budget: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """QSA's choice of positions for every row (Qwen4ExpText, transformers 5.24).

        q [T, index_heads, di]; block_keys.data [pages, page, di] holds the key of block j as entry j. Row t sees
        n = (position + 1) // ratio complete blocks; score_j = sum over heads of relu(q_h . k_j), heads in order;
        the best min(budget, n) blocks are kept (ties: the higher j, docs/decisions/0006), each with all its
        `ratio` positions, and the open tail [n * ratio, position] always. -> positions int32
        [T, budget * ratio + ratio] in increasing order (unused places -1), count int32 [T].
        """
        ...

    def sparse_attention(
        self,
        q: torch.Tensor,
        keys: PagedPlane,
        values: PagedPlane,
        rows: Rows,
        scale: float,
        positions: torch.Tensor,
        count: torch.Tensor,
    ) -> torch.Tensor:
        """`attention` over the listed positions only (int32 [T, M] increasing, count int32 [T])."""
        ...

    def cache_write(self, plane: PagedPlane, slots: torch.Tensor, entries: torch.Tensor, x: torch.Tensor) -> None:
        """Put x [N, ...] at entries (int32 [N]; -1: nowhere) of slots (int32 [N])."""
        ...

    def pool_blocks(self, raw: PagedPlane, slots: torch.Tensor, blocks: torch.Tensor, ratio: int) -> torch.Tensor:
        """Mean of the `ratio` raw keys of each listed block: raw.data [pages, page, di]; slots, blocks int32 [N].

        Entries block * ratio .. + ratio - 1, added in increasing order, divided by ratio; 0 for block -1 -> [N, di].
        """
        ...

    def causal_conv(
        self, x: torch.Tensor, weight: torch.Tensor, history: torch.Tensor, rows: Rows, dilation: int
    ) -> torch.Tensor:
        """Depthwise causal convolution followed by silu; updates `history` in place, but for held segments.

        x [T, C]; weight [C, K], tap K-1 is the current row; history [slots, (K-1) * dilation, C], oldest first,
        zeros at a sequence's start. y_t = silu(sum over taps k = 0 .. K-1, in order, by fma, of w[c, k] x_{t -
        (K-1-k) dilation}).
        """
        ...

    def carry_rows(self, x: torch.Tensor, history: torch.Tensor, rows: Rows) -> None:
        """What causal_conv leaves in `history` [slots, span, C] after the segments' rows of x [T, C], and nothing else.

        Segments are not held here, and need not have all rows.
        """
        ...

    def delta_inputs(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        history: torch.Tensor,
        rows: Rows,
        b: torch.Tensor,
        a: torch.Tensor,
        rate: torch.Tensor,
        bias: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(causal_conv of x, weight, history and rows with dilation 1, *delta_rates of b, a, rate and bias).

        As kernels/joined.py.
        """
        ...

    def delta_rule(
        self,
        qkv: torch.Tensor,
        beta: torch.Tensor,
        decay: torch.Tensor,
        state: torch.Tensor,
        rows: Rows,
        key_heads: int,
        pairing: HeadPairing,
        eps: float,
    ) -> torch.Tensor:
        """Gated delta rule, one row after the other per slot; updates `state` in place, but for held segments
        (arXiv 2412.06464).

        qkv [T, nk*dk + nk*dk + nv*dv] after convolution; q, k are l2-normalised per head here (q also times
        1/sqrt(dk)); beta, decay [T, nv]; state [slots, nv, dk, dv]. Value head h uses key head h // (nv/nk) (grouped)
        or h mod nk (tiled). Per row: S *= decay; m = S^T k; d = beta (v - m); S += k d^T; o = S^T q;
        sums over dk in increasing order by fma. -> [T, nv, dv].
        """
        ...

    def gated_delta_rule(
        self,
        qkv: torch.Tensor,
        beta: torch.Tensor,
        decay: torch.Tensor,
        state: torch.Tensor,
        rows: Rows,
        key_heads: int,
        pairing: HeadPairing,
        eps: float,
        gate: HeadGate,
    ) -> torch.Tensor:
        """gated_norm of what delta_rule gives, head by head -> [T, nv * dv]. As kernels/joined.py."""
        ...

    def delta_step(
        self,
        read: DeltaInputs,
        state: torch.Tensor,
        rows: Rows,
        key_heads: int,
        pairing: HeadPairing,
        eps: float,
        gate: HeadGate,
    ) -> torch.Tensor:
        """delta_inputs and then gated_delta_rule, where nobody asks for what lies between -> [T, nv * dv].

        As kernels/joined.py. state and history are changed in place.
        """
        ...

    def route(self, logits: torch.Tensor, top_k: int, renormalise: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Softmax over all experts, the top_k largest (ties: the lower id), weights in rank order.

        logits [T, E] -> ids int32 [T, k], weights float32 [T, k] (divided by their sum, added in rank order, when
        renormalise).
        """
        ...

    def experts(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, bank: ExpertBank) -> torch.Tensor:
        """y = sum over k in rank order of fma(weight_k, down_e(silu(gate_e x) * up_e x), y) -> [T, hidden].

        x [T, hidden]; ids int32 [T, k]; each distinct expert's bytes are read once per step, for all its rows.
        """
        ...

    def expert_uses(self, bank: ExpertBank) -> Sequence[int]:
        """How often rows chose each expert of `bank` since the start; empty where nobody counts."""
        ...

    def expert_bytes(self) -> Mapping[str, int]:
        """Bytes of experts that were read since the start, by where they were; empty where nobody counts."""
        ...

    def stream_mix(self, gate: torch.Tensor, x: torch.Tensor, streams: int) -> torch.Tensor:
        """Mean over streams of sigmoid(gate) * x: gate, x [T, streams * H] -> [T, H]; added in stream order."""
        ...

    def low_rank_mix(self, low: torch.Tensor, up: Weight, x: torch.Tensor, streams: int) -> torch.Tensor:
        """stream_mix of x [T, streams * H] under the gates W_up silu(low / streams), low [T, rank] -> [T, H].

        As kernels/joined.py.
        """
        ...

    def stream_add(
        self, residual: torch.Tensor, y: torch.Tensor, gates: torch.Tensor, divisor: float, factor: float
    ) -> torch.Tensor:
        """residual_s + w_s * y for every stream (fma), w_s = sigmoid(gates_s / divisor) * factor, a rounding each.

        residual [T, n * H], y [T, H], gates [T, n] -> [T, n * H].
        """
        ...

    def stream_add_norm(
        self,
        residual: torch.Tensor,
        y: torch.Tensor,
        gates: torch.Tensor,
        divisor: float,
        factor: float,
        weight: torch.Tensor | None,
        eps: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(stream_add of the first five, rms_norm of each of its streams). As kernels/joined.py."""
        ...

    def row_dot(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Dot product over the last axis by the lane rule: a, b [..., D] -> [...]."""
        ...

    def join(self, views: Sequence[torch.Tensor]) -> torch.Tensor:
        """The views' rows flattened and side by side: float32 [T, ...] each, of any strides -> contiguous [T, sum]."""
        ...

    def take_rows(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """Rows `index` (int32 [N]) of x [T, D] -> [N, D]. IndexError when one is out of range."""
        ...

    def completed_blocks(self, positions: torch.Tensor, ratio: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Blocks of `ratio` positions that end at a row: positions int32 [T] -> (blocks, starts) int32 [T].

        Where a row ends none, the block is -1 (no entry for cache_write and pool_blocks) and its start 0.
        """
        ...

    def ngram_rows(self, tokens: torch.Tensor, rows: Rows, hashing: NgramHash) -> torch.Tensor:
        """Table rows of every row's hash heads: tokens int64 [slots, context] -> int64 [T, heads]."""
        ...

    def rope_angles(self, positions: torch.Tensor, frequencies: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(cos, sin) float32 [T, r/2] of position * frequency: positions int32 [T], frequencies float64 [r/2]."""
        ...

    def add(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """x + y, of one shape."""
        ...

    def divide(self, x: torch.Tensor, by: float) -> torch.Tensor:
        """x / by (float32, IEEE division)."""
        ...

    def multiply(self, x: torch.Tensor, by: float) -> torch.Tensor:
        """x * by (float32)."""
        ...

    def gate(self, kind: Activation, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """activate(kind, g) * x, of one shape."""
        ...

    def gate_heads(self, kind: Activation, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """`gate` of heads x [T, heads, d] by g like it, of which only a head's values are neighbours -> [T, heads * d].

        As kernels/joined.py.
        """
        ...

    def signed_root(self, x: torch.Tensor, least: float) -> torch.Tensor:
        """sign(x) * sqrt(max(|x|, least)), IEEE square root."""
        ...

    def delta_rates(
        self, b: torch.Tensor, a: torch.Tensor, rate: torch.Tensor, bias: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """How much a delta rule writes and keeps: (sigmoid(b), exp(rate * softplus(a + bias))).

        b, a [T, heads]; rate, bias [heads] -> beta, decay [T, heads].
        """
        ...

    def spread(self, weights: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """weights_s * x for every stream: weights [T, n], x [T, H] -> [T, n * H]."""
        ...

    def choose(
        self, logits: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float, uniform: float
    ) -> int:
        """A token of one row at a temperature, for `uniform` in [0, 1): logits float32 [V], finite or -inf -> its id.

        top_k 0 and top_p 1 and min_p 0 keep all. It runs at once and is never part of a recorded program. ValueError
        when no logit is finite or one is NaN or +inf.
        """
        ...

    def draw(self, logits: torch.Tensor, rows: DrawRows) -> torch.Tensor | None:
        """`choose` for every row of logits float32 [N, V] at once, and the largest where the temperature is 0.

        -> rows.tokens, -1 for a row without a choice; None where rows are chosen from one by one.
        """
        ...
