"""Everything the slots of one engine remember, behind reserve, commit, rollback, snapshot and restore."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from strata.core.errors import CapacityError, EngineError, UnsupportedError, UsageError
from strata.kernels.ops import Ops
from strata.kernels.views import KV_BLOCK, KvType, PagedPlane
from strata.state.journal import Journal, LayerJournal, OpenWindow
from strata.state.layout import KvLayout, LayerLayout
from strata.state.memory import HOST, Memory
from strata.state.pages import PAGE, PageTable
from strata.state.replay import Delta, Ngram, Recurrences

KV_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "int8": torch.int8}


@dataclass(frozen=True, slots=True)
class LayerState:
    """One layer's tensors for all slots; None where the layer keeps nothing of a kind."""

    keys: PagedPlane | None
    values: PagedPlane | None
    raw_keys: PagedPlane | None
    block_keys: PagedPlane | None
    conv: torch.Tensor | None
    """[slots, history, channels]"""
    delta: torch.Tensor | None
    """[slots, value_heads, key_dim, value_dim]"""
    ngram: torch.Tensor | None
    """[slots, history, channels]"""
    carry: torch.Tensor | None
    """[slots, values]"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A slot's whole memory at one length, by value."""

    tokens: npt.NDArray[np.int64]
    paged: Mapping[str, torch.Tensor]
    recurrent: Mapping[str, torch.Tensor]


class SequenceStates:
    """The memory of all slots. A step is: reserve for each window, run the layers, commit or roll back each slot."""

    def __init__(
        self,
        layouts: Sequence[LayerLayout],
        slots: int,
        context: int,
        kv_type: KvType = "f32",
        memory: Memory = HOST,
        pages: int | None = None,
    ) -> None:
        """All slots empty, everything that operations read in `memory`.

        The slots share `pages` pages; None = as many as all of them can ever fill.
        UsageError when they do not hold one sequence of `context` tokens: a prompt could wait for them for ever.
        UnsupportedError when blocks of an indexer do not fit the pages evenly, or heads the type of the cache.
        """
        for layout in layouts:
            if layout.index is not None and PAGE % layout.index.ratio:
                raise UnsupportedError(
                    f"an indexer with blocks of {layout.index.ratio} tokens: expected a divisor of {PAGE} (one page)"
                )
            if kv_type == "int8" and layout.kv is not None and layout.kv.head_dim % KV_BLOCK:
                raise UnsupportedError(
                    f"an int8 cache of heads of {layout.kv.head_dim} values: expected a multiple of {KV_BLOCK}",
                )
        pages_per_slot = -(-context // PAGE)
        pages = slots * pages_per_slot if pages is None else pages
        if pages < pages_per_slot:
            raise UsageError(
                f"{pages} pages of {PAGE} tokens hold {pages * PAGE} tokens, one conversation may have {context}",
                "give them more memory, or ask for a smaller --ctx-size",
            )
        self.context = context
        # A drafting head's entry of the last row depends on the token after it, which sequences may differ in.
        rewrites = int(any(layout.carry for layout in layouts))
        self.pages = PageTable(slots, pages_per_slot, pages, PAGE, rewrites)
        self.memory = memory
        self.table = memory.mirror(slots, pages_per_slot, dtype=torch.int32)
        self.token_ids = memory.shared(slots, context, dtype=torch.int64)
        self.tokens: npt.NDArray[np.int64] = self.token_ids.numpy()
        self.length = [0] * slots
        self.open: dict[int, OpenWindow] = {}
        self.layouts = tuple(layouts)
        self.kv_type = kv_type
        self.reclaim: Callable[[int], None] = lambda count: None
        """Called before pages are taken, with how many are to be free; whoever keeps prefixes gives some up."""
        self._layers = [self._layer(layout, slots, pages) for layout in layouts]
        self.recurrences = self._recurrences()
        self.journal = self._new_journal()
        self.journaling = False

    def _layer(self, layout: LayerLayout, slots: int, pages: int) -> LayerState:
        device, table = self.memory.device, self.table.device

        def plane(per: int, dim: int) -> PagedPlane:
            return PagedPlane(torch.empty(pages, PAGE // per, dim, device=device), table)

        def cache(kv: KvLayout) -> PagedPlane:
            shape = (pages, kv.kv_heads, PAGE, kv.head_dim)
            data = torch.empty(shape, dtype=KV_DTYPES[self.kv_type], device=device)
            blocks = (*shape[:-1], kv.head_dim // KV_BLOCK)
            return PagedPlane(data, table, torch.empty(blocks, device=device) if self.kv_type == "int8" else None)

        def zeros(*sizes: int) -> torch.Tensor:
            return torch.zeros(slots, *sizes, device=device)

        kv, index, delta, ngram = layout.kv, layout.index, layout.delta, layout.ngram
        return LayerState(
            keys=cache(kv) if kv else None,
            values=cache(kv) if kv else None,
            raw_keys=plane(1, index.dim) if index else None,
            block_keys=plane(index.ratio, index.dim) if index else None,
            conv=zeros(delta.history, delta.channels) if delta else None,
            delta=zeros(delta.value_heads, delta.key_dim, delta.value_dim) if delta else None,
            ngram=zeros(ngram.history, ngram.channels) if ngram else None,
            carry=zeros(layout.carry) if layout.carry else None,
        )

    def _recurrences(self) -> Recurrences:
        deltas, ngrams = [], []
        for i, (layer, layout) in enumerate(zip(self._layers, self.layouts, strict=True)):
            if layer.conv is not None and layer.delta is not None and layout.delta is not None:
                deltas.append(Delta(i, layer.conv, layer.delta, layout.delta))
            if layer.ngram is not None:
                ngrams.append(Ngram(i, layer.ngram))
        return Recurrences(deltas, ngrams, self.memory)

    @property
    def layers(self) -> Sequence[LayerState]:
        """Every layer's tensors, all of them behind what was committed."""
        self.recurrences.finish()
        return self._layers

    def _new_journal(self) -> Journal:
        return Journal([LayerJournal() for _ in self.layouts])

    def reserve(self, slot: int, tokens: Sequence[int], first_row: int, keep: bool) -> None:
        """Make room for a window of `tokens` at the slot's length; `keep` = it may be cut short at commit, so its state
        is held until then: the rows' `held` must say so too.

        CapacityError, with nothing changed, when they do not fit.
        """
        start = self.length[slot]
        if slot in self.open:
            raise EngineError(f"slot {slot} has a window open already")
        if start + len(tokens) > self.context:
            raise CapacityError(f"slot {slot} holds {self.context} tokens, {start + len(tokens)} were asked")
        self.recurrences.finish()
        self._grow(slot, start, start + len(tokens))
        self._write_tokens(slot, start, tokens)
        self.open[slot] = OpenWindow(first_row, len(tokens), keep)
        self.journaling = self.journaling or keep

    def make_room(self, slot: int, stop: int) -> None:
        """Pages for positions up to `stop`, which a drafting head is about to write to; CapacityError as `reserve`."""
        self._grow(slot, self.length[slot], stop)

    def _grow(self, slot: int, start: int, stop: int) -> None:
        """Pages of its own for positions `start` to `stop`; what lies on shared ones is copied first."""
        if self.pages.ready(slot, start, stop):
            return
        self.reclaim(self.pages.wanted(slot, start, stop))
        taken = self.pages.grow(slot, start, stop)
        copies = [(page.page, page.copy_of) for page in taken if page.copy_of is not None]
        if copies:
            to, of = torch.tensor(copies).T
            for _, tensor in self.planes():
                tensor[to] = tensor[of]
        if taken:
            self._list_pages(slot, min(page.place for page in taken))

    def _list_pages(self, slot: int, first: int) -> None:
        """Write the slot's pages from place `first` on into the table."""
        held = self.pages.held[slot]
        self.table.host[slot, first : len(held)] = torch.tensor(held[first:], dtype=torch.int32)
        self.table.publish((slot, slice(first, len(held))))

    def _write_tokens(self, slot: int, start: int, tokens: Sequence[int] | npt.NDArray[np.int64]) -> None:
        """The slot's tokens from position `start` on; operations read them where they are."""
        self.tokens[slot, start : start + len(tokens)] = tokens

    def commit(self, slot: int, rows: int, ops: Ops) -> None:
        """Keep the first `rows` rows of the slot's open window; the rest never happened. Errors as `commit_all`."""
        self.commit_all({slot: rows}, ops)

    def commit_all(self, kept: Mapping[int, int], ops: Ops) -> None:
        """By slot, keep the first rows of its open window; the rest never happened.

        EngineError, with all windows still open, when one is not open or cannot be cut to its rows.
        """
        windows = {slot: self._cut(slot, rows) for slot, rows in kept.items()}
        runs = [(slot, window.first_row, kept[slot]) for slot, window in windows.items() if window.held and kept[slot]]
        self.recurrences.advance(self.journal, runs, ops)
        for slot, window in windows.items():
            self.length[slot] += kept[slot]
            if kept[slot] < window.rows:
                self.pages.shrink(slot, self.length[slot])
            self._close(slot)

    def _cut(self, slot: int, rows: int) -> OpenWindow:
        window = self.open.get(slot)
        if window is None:
            raise EngineError(f"slot {slot} has no window open")
        if not 0 <= rows <= window.rows:
            raise EngineError(f"slot {slot}: {rows} rows to commit of a window of {window.rows}")
        if rows < window.rows and not window.held:
            raise EngineError(f"slot {slot}: a window that was to be committed whole was cut to {rows} rows")
        return window

    def _close(self, slot: int) -> None:
        """The slot's window is over; with the last one of the step its journal goes."""
        self.open.pop(slot, None)
        if not self.open and self.journaling:
            self.journal = self._new_journal()
            self.journaling = False

    def rollback(self, slot: int, ops: Ops) -> None:
        """Drop the slot's open window whole."""
        self.commit(slot, 0, ops)

    def clear(self, slot: int) -> None:
        """Forget the slot's sequence, and its open window if there is one."""
        self._close(slot)
        self.length[slot] = 0
        self.pages.empty(slot)
        for layer in self.layers:
            for tensor in (layer.conv, layer.delta, layer.ngram, layer.carry):
                if tensor is not None:
                    tensor[slot].zero_()

    def snapshot(self, slot: int) -> Snapshot:
        """The slot's memory by value; not while a window is open."""
        if slot in self.open:
            raise EngineError(f"slot {slot} has a window open; a snapshot would be torn")
        n = self.length[slot]
        held = torch.tensor(self.pages.held[slot], dtype=torch.int64)
        paged = {name: tensor[held] for name, tensor in self.planes()}
        recurrent = {name: tensor[slot].clone() for name, tensor in self.recurrent()}
        return Snapshot(self.tokens[slot, :n].copy(), paged, recurrent)

    def restore(self, slot: int, snapshot: Snapshot) -> None:
        """Make the slot remember exactly what the snapshot does; CapacityError, the slot cleared, when it cannot."""
        self.clear(slot)
        n = len(snapshot.tokens)
        if n > self.context:
            raise CapacityError(f"slot {slot} holds {self.context} tokens, the snapshot has {n}")
        self._grow(slot, 0, n)
        held = torch.tensor(self.pages.held[slot], dtype=torch.int64)
        for name, tensor in self.planes():
            tensor[held] = snapshot.paged[name]
        for name, tensor in self.recurrent():
            tensor[slot] = snapshot.recurrent[name]
        self._write_tokens(slot, 0, snapshot.tokens)
        self.length[slot] = n

    def begin(self, slot: int, tokens: npt.NDArray[np.int64], state: Mapping[str, torch.Tensor]) -> None:
        """The cleared slot, whose pages hold `tokens` already, goes on from there with `state` (empty: none)."""
        if len(tokens):
            self._list_pages(slot, 0)
            self._write_tokens(slot, 0, tokens)
        for name, tensor in self.recurrent():
            if state:
                tensor[slot] = state[name].view(tensor.dtype).view(tensor.shape[1:]).to(tensor.device)
        self.length[slot] = len(tokens)

    def planes(self) -> list[tuple[str, torch.Tensor]]:
        """Everything that lies on pages, by name: [pages, ...]."""
        found = []
        for i, layer in enumerate(self.layers):
            planes = {"k": layer.keys, "v": layer.values, "raw": layer.raw_keys, "block": layer.block_keys}
            present = {name: plane for name, plane in planes.items() if plane is not None}
            found += [(f"{i}.{name}", plane.data) for name, plane in present.items()]
            scales = [(f"{i}.{name}.scales", plane.scales) for name, plane in present.items()]
            found += [(name, tensor) for name, tensor in scales if tensor is not None]
        return found

    def recurrent(self) -> list[tuple[str, torch.Tensor]]:
        """Everything that slots keep besides, by name: [slots, ...]."""
        found = []
        for i, layer in enumerate(self.layers):
            tensors = {"conv": layer.conv, "delta": layer.delta, "ngram": layer.ngram, "carry": layer.carry}
            found += [(f"{i}.{name}", tensor) for name, tensor in tensors.items() if tensor is not None]
        return found
