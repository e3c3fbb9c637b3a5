"""Experts on a GPU whose memory does not hold them all: frames, PCIe reads in place, and the CPU's pool.

An expert gives the same bits wherever it is computed, so placement changes speed, never tokens. What a call does is
decided on the device from tables that the host changes between steps only.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from strata.core.errors import EngineError
from strata.experts.adaptive import AdaptSettings, Counts, Usage, choose_swaps, hottest
from strata.experts.ahead import LayersAhead
from strata.experts.cache import ExpertCache
from strata.experts.counters import Counters
from strata.experts.map import ExpertMap, map_of
from strata.experts.protocol import Choosing, SharedOutput
from strata.experts.split import Split, told
from strata.kernels.device import Device
from strata.kernels.experts import prompt
from strata.kernels.experts.gpu import Grouped, pair_results
from strata.kernels.experts.gpu import combine as combine_here
from strata.kernels.experts.table import ExpertTable
from strata.kernels.ops import Ops
from strata.kernels.rendezvous.answerer import Answer, Answerer
from strata.kernels.rendezvous.gpu import POISONED, Desk, Placement, choose_and_place, combine, place
from strata.kernels.rendezvous.naive import Tier
from strata.kernels.streams.gpu import stream_add

MOST_ROWS = 32
"""Of one call of the kernels of windows; more rows are several calls, or a prompt's."""
LIMIT_NS = 20_000_000_000
"""How long a call waits for the CPU before the step fails."""


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """The split of each kind of layer, and the tables that the device reads."""

    splits: Mapping[int, Split]
    """By bytes of an expert; none where the person fixed the share."""
    kind: Mapping[int, int]
    """Row of `tables` by layer."""
    sizes: Sequence[int]
    """Bytes of an expert, by row of `tables`."""
    tables: torch.Tensor
    """int32 [kinds, most + 1] on the device."""
    every: int = 8
    """Steps between two corrections."""


@dataclass(slots=True)
class GpuExperts:
    """Implements `Experts`."""

    device: Device
    cache: ExpertCache
    desk: Desk
    answerer: Answerer
    split: SplitPlan
    calls: Mapping[int, ExpertTable]
    """By layer: `desk.call` with the sizes and formats of the layer's experts."""
    settings: AdaptSettings
    usage: Usage
    counters: Counters
    reserve_bytes: int
    """VRAM that stays free when the arena grows."""
    ahead: LayersAhead
    rows: int = 0
    """Of the step under way."""
    steps: int = 0
    swaps: int = 0
    swapped: Counter[int] = field(default_factory=Counter)
    """The same by layer."""
    relieved: int = 0
    """Blocks given back because memory was short."""
    answers: dict[int, Answer] = field(default_factory=dict)
    """The last one of each layer."""
    reach: int = 17
    """So many numbers of misses are looked at when the split is corrected: twice what a call ever had."""

    def run(
        self,
        layer: int,
        x: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
        shared: SharedOutput | None = None,
    ) -> torch.Tensor:
        """See `Experts.run`; all tensors are on the device. Never waits on the host."""
        if len(x) > MOST_ROWS and self.reaches(layer):
            y = self.read(layer, x, ids, weights)
            if shared is None:
                return y
            shared.ready()
            return stream_add(self.device, y, shared.own, shared.strength, 1.0, 1.0)
        y = self.device.empty(*x.shape)
        for first in range(0, len(x), MOST_ROWS):
            part = slice(first, first + MOST_ROWS)
            # All rows as they are: what was quantised beside them is found by their identity.
            some = x if len(x) <= MOST_ROWS else x[part]
            calls, placement = self.calls[layer], self.placement(layer)
            ways, grouped = place(self.device, self.desk, layer, placement, some, ids[part], calls)
            self.compute(layer, grouped, ways, weights[part], y[part], shared, part)
        return y

    def choose_and_run(
        self, ops: Ops, layer: int, x: torch.Tensor, choosing: Choosing, shared: SharedOutput | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See `Experts.choose_and_run`; a row's choice and its placing are one launch."""
        if len(x) != 1:
            ids, weights = choosing.chosen(ops)
            return self.run(layer, x, ids, weights, shared), ids, weights
        how, calls = (choosing.top_k, choosing.renormalise), self.calls[layer]
        found = choose_and_place(self.device, self.desk, layer, self.placement(layer), x, choosing.logits, *how, calls)
        y = self.device.empty(*x.shape)
        self.compute(layer, found.grouped, found.ways, found.weights, y, shared, slice(0, 1))
        return y, found.ids, found.weights

    def placement(self, layer: int) -> Placement:
        """Where the layer's experts lie."""
        return Placement(self.cache.table.entries[layer], self.split.tables[self.split.kind[layer]])

    def compute(
        self,
        layer: int,
        grouped: Grouped,
        ways: torch.Tensor,
        weights: torch.Tensor,
        y: torch.Tensor,
        shared: SharedOutput | None,
        part: slice,
    ) -> None:
        """What the experts of a placed call give, combined, to y [rows, hidden]; of what is `shared` these rows."""
        results = self.device.empty(*weights.shape, y.shape[1])
        pair_results(self.device, grouped, self.calls[layer], results)
        last = None
        if shared is not None:
            shared.ready()
            last = shared.own[part], shared.strength[part]
        combine(self.device, self.desk, layer, results, weights, ways, y, last)

    def reaches(self, layer: int) -> bool:
        """Whether the device can read all experts of the layer, in frames or in pinned memory, as a prompt needs it."""
        held = self.cache.table.tier(layer)[: len(self.answerer.banks[layer].gate)]
        return prompt.is_coded(self.calls[layer]) and bool((held != Tier.HOST).all())

    def read(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """`run` for the rows of a prompt: every expert is read once, wherever it lies; nobody is met."""
        device, table = self.device, replace(self.calls[layer], entries=self.cache.table.entries[layer])
        staged = self.ahead.table(layer)
        read = table if staged is None else replace(table, entries=staged)
        y = device.empty(*x.shape)
        for first in range(0, len(x), prompt.MOST_ROWS):
            part = slice(first, first + prompt.MOST_ROWS)
            order = prompt.sort(device, ids[part], table, Tier.PINNED)
            prompt.count_uses(device, order, table, self.desk.ledger[layer], self.desk.uses[layer])
            results = device.empty(*ids[part].shape, x.shape[1])
            prompt.pair_results(device, x[part], order, read, results)
            combine_here(device, results, weights[part], y[part])
        return y

    def prefetch(self, forecast: Sequence[tuple[int, int]]) -> None:
        """See `Experts.prefetch`: nothing is known of the next step that the counts do not tell better."""

    def wait_s(self) -> float:
        """See `Experts.wait_s`: what has no frame is read in place or computed on the CPU."""
        return 0.0

    def waited_s(self, layers: Sequence[int]) -> float:
        """See `Experts.waited_s`, as the device's clock has it."""
        self.read_ledger()
        return sum(self.counters.last(layer).wait_seconds for layer in layers)

    def begin_step(self, rows: int) -> None:
        """See `Experts.begin_step`: copies that have landed count from now on."""
        self.cache.land()
        self.rows = rows
        many = rows >= self.ahead.least_rows
        self.ahead.open(rows, self.cache.vram.free_bytes() - self.reserve_bytes if many else 0)

    def end_step(self) -> None:
        """See `Experts.end_step`: settle failures, correct the split, adapt."""
        self.device.synchronize()
        self.ahead.close()
        self.steps += 1
        self.counters.rows[list(self.split.kind)] += self.rows
        answers = self.answerer.drain()
        self.counters.answered(answers)
        self.answers.update({answer.layer: answer for answer in answers})
        self.check()
        if self.split.splits and self.steps % self.split.every == 0:
            self.correct_split()
        if self.settings.every and self.steps % self.settings.every == 0:
            self.adapt()

    def check(self) -> None:
        """EngineError when the last step's results are not complete; the next one may be."""
        poison, failure = self.desk.mailbox.take_poison(), self.answerer.failure()
        if poison:
            self.desk.encounter[POISONED] = 0
            seconds = self.desk.limit_ns / 1e9
            raise EngineError(
                f"the GPU waited {seconds:g} s in vain for experts that the CPU computes (request {poison})",
                "is the process stopped, or are its processors taken by others?",
            )
        if failure:
            raise EngineError(f"the CPU could not compute the experts that the GPU left to it: {failure}")

    def read_ledger(self) -> None:
        """Bring the device's counts to the host; waits for the device."""
        self.counters.ledger = self.desk.ledger.cpu().numpy().copy()

    def correct_split(self) -> None:
        """Tell each layer's split how its last call went, and publish what follows."""
        self.read_ledger()
        missing = self.counters.missing()
        for layer in told(np.flatnonzero(missing).tolist(), self.steps, self.split.every):
            last, answer = self.counters.last(layer), self.answers.get(layer)
            on_cpu = last.misses - last.over_pcie
            if not on_cpu or answer is not None:
                cpu_seconds = answer.nanoseconds * 1e-9 if on_cpu and answer is not None else 0.0
                split = self.split.splits[self.split.sizes[self.split.kind[layer]]]
                seconds = last.gpu_seconds + last.wait_seconds
                split.observe(last.misses, last.over_pcie, seconds, cpu_seconds, last.wait_seconds)
        if missing.any():
            self.reach = max(self.reach, 2 * int(missing.max()) + 1)
            tables = np.stack([self.split.splits[size].table(self.reach) for size in self.split.sizes])
            self.split.tables.copy_(torch.from_numpy(tables))

    def adapt(self) -> None:
        """Count the uses since the last round, and begin the swaps that they ask for; look at the free memory."""
        self.relieve()
        self.usage.add(self.desk.uses.cpu().numpy())
        self.desk.uses.zero_()
        cache = self.cache
        chosen = choose_swaps(
            self.usage.counts, cache.frames, cache.table.framed, cache.sizes, self.settings, cache.busy
        )
        self.swaps += cache.swap(chosen)
        self.swapped.update(swap.newcomer[0] for swap in chosen if swap.newcomer in cache.frames.held)
        if not self.settings.asynchronous:
            cache.land(wait=True)

    def resize(self, budget_bytes: int) -> int:
        """See `Experts.resize`: VRAM is given back in whole blocks, or taken again and filled at once."""
        self.device.synchronize()
        if budget_bytes < self.cache.frames.nbytes:
            self.cache.shrink(budget_bytes, self.usage.counts)
        self.cache.grow(budget_bytes, self.reserve_bytes)
        self.cache.fill(hottest(self.usage.counts, self.cache.sizes))
        return self.cache.frames.nbytes

    def relieve(self) -> None:
        """Give a block back when others have taken half of the reserve: a card without free memory gets slow."""
        frames = self.cache.frames
        if frames.blocks and self.cache.vram.free_bytes() < self.reserve_bytes // 2:
            self.cache.shrink(max(0, frames.nbytes - frames.block_bytes), self.usage.counts)
            self.relieved += 1

    def map(self) -> ExpertMap:
        """See `Experts.map`; uses are those up to the last round, recent ones weighing more."""
        counts = {layer: len(self.answerer.banks[layer].gate) for layer in sorted(self.split.kind)}
        tiers = {layer: self.cache.table.tier(layer) for layer in counts}
        return map_of(counts, tiers, {layer: self.usage.counts[layer] for layer in counts})

    def status(self) -> dict[str, object]:
        """See `Experts.status`."""
        self.read_ledger()
        entries = self.counters.entries.sum(axis=0)
        return {
            "arena_bytes": self.cache.frames.nbytes,
            "vram_free_bytes": self.cache.vram.free_bytes(),
            "resident": len(self.cache.frames.held),
            "pinned_bytes": self.cache.pinned.nbytes,
            "pin_refused": self.cache.pinned.refused,
            "hits": int(entries[0]),
            "misses_pcie": int(entries[1]),
            "misses_cpu": int(entries[2]),
            "bytes": self.bytes_by_path(),
            "swaps": self.swaps,
            "relieved": self.relieved,
            "moved_bytes": self.cache.moved_bytes,
            "ahead_bytes": self.ahead.moved_bytes,
            "disagreement": self.counters.disagreement(),
            "layers": [self.layer_status(layer) for layer in sorted(self.split.kind)],
        }

    def bytes_by_path(self) -> dict[str, int]:
        """Bytes of experts that were read, by way; what the CPU had to wait for came from the disk."""
        found = self.counters.bytes_by_way({i: int(n) for i, n in enumerate(self.cache.sizes)})
        missing = self.answerer.native.missing_bytes
        return {**found, "cpu": found["cpu"] - missing, "disk": missing}

    def layer_status(self, layer: int) -> dict[str, int]:
        """The layer's counts of (row, rank) pairs, and of the experts that got a frame beside the steps."""
        in_vram, pcie, cpu = (int(count) for count in self.counters.entries[layer])
        routed = int(self.counters.rows[layer]) * self.counters.top_k
        return {
            "layer": layer, "routed": routed, "hits": in_vram, "misses": pcie + cpu, "swaps": self.swapped[layer],
        }  # fmt: skip

    def close(self) -> Counts:
        """End the answering thread -> the counts to keep, those since the last round too."""
        self.answerer.close()
        with suppress(RuntimeError):  # a device that failed tells no more
            self.usage.add(self.desk.uses.cpu().numpy())
            self.desk.uses.zero_()
        return self.usage.counts
