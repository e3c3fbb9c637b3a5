"""Experts of a prompt's next layer on their way to VRAM while this layer computes.

A step of many rows visits nearly every expert. Those without a frame could be read in place, but then the layer waits
for PCIe; copied a layer ahead, by the copy engine, PCIe and the processors work at the same time.
"""

from dataclasses import dataclass

import numpy as np
import torch

from strata.experts.cache import ExpertCache
from strata.kernels.experts.table import TIER_SHIFT
from strata.kernels.rendezvous.naive import Tier
from strata.kernels.transfers import Transfer

LEAST_ROWS = 1024
"""Rows of a step from which on a layer's experts without frames are copied; fewer rows leave many of them out."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a layer's experts are put, and in which order."""

    buffer: int
    missing: tuple[int, ...]


class LayersAhead:
    """Two buffers, of which the layers take turns; open while a step of many rows runs and there is room."""

    def __init__(self, cache: ExpertCache, least_rows: int = LEAST_ROWS) -> None:
        self.cache = cache
        self.least_rows = least_rows
        self.layers = sorted(cache.pinned.layouts)
        self.buffers: list[torch.Tensor] = []
        self.places: dict[int, Place] = {}
        self.coming: dict[int, Transfer] = {}
        self.entries = torch.empty(0)
        self.host = torch.empty(0)
        self.moved_bytes = 0
        """Copied so far."""

    def open(self, rows: int, spare_bytes: int) -> None:
        """Begin a step of `rows` rows; `spare_bytes` of VRAM may be taken until `close`.

        Without enough of it nothing is copied, and experts are read in place.
        """
        self.close()
        if rows < self.least_rows:
            return
        places = {layer: Place(i % 2, self._missing(layer)) for i, layer in enumerate(self.layers)}
        nbytes = max(len(p.missing) * self.cache.pinned.layouts[layer].nbytes for layer, p in places.items())
        if not 0 < 2 * nbytes <= spare_bytes:
            return
        try:
            self.buffers = [self.cache.vram.allocate(nbytes) for _ in range(2)]
        except RuntimeError:  # somebody else was quicker
            return
        self.places = places
        self._publish()
        self._begin(self.layers[0])

    def _publish(self) -> None:
        """Write all layers' entries as they will be read. At once: a copy among the layers' work would wait behind the
        experts that are copied at the time.
        """
        table = self.cache.table
        self.entries, self.host = torch.empty_like(table.entries), torch.empty_like(table.host)
        if table.entries.is_cuda:
            self.host = self.host.pin_memory()
        rows = self.host.numpy()
        rows[:] = table.host.numpy()
        rows[:, :, -1] &= (1 << TIER_SHIFT) - 1
        for layer, place in self.places.items():
            layout, missing = self.cache.pinned.layouts[layer], np.array(place.missing, np.int64)
            first = self.buffers[place.buffer].data_ptr() + layout.nbytes * np.arange(len(missing))
            here = first[:, None] + np.array(layout.offsets)
            planes = np.where(table.pinned[layer, missing] != 0, here, 0)
            rows[layer, missing, 0:3], rows[layer, missing, 3:6] = planes[:, 0::2], planes[:, 1::2]
        self.entries.copy_(self.host, non_blocking=True)

    def _missing(self, layer: int) -> tuple[int, ...]:
        """Experts of the layer that lie in pinned memory only."""
        found = np.flatnonzero(self.cache.table.tier(layer) == Tier.PINNED)
        return tuple(e for e in found.tolist() if (layer, e) in self.cache.pinned.blobs)

    def table(self, layer: int) -> torch.Tensor | None:
        """The layer's entries, all of them in VRAM, for what is launched from now on; None: read in place.

        The next layer's copies begin behind all that was launched before.
        """
        if layer not in self.places:
            return None
        if layer not in self.coming:
            self._begin(layer)
        after = self.layers.index(layer) + 1
        if after < len(self.layers):
            self._begin(self.layers[after])
        self.coming.pop(layer).before_launches()
        return self.entries[layer]

    def _begin(self, layer: int) -> None:
        place, layout = self.places[layer], self.cache.pinned.layouts[layer]
        buffer = self.buffers[place.buffer]
        blobs = [self.cache.pinned.blobs[layer, e] for e in place.missing]
        pairs = [(buffer[i * layout.nbytes :][: blob.nbytes], blob) for i, blob in enumerate(blobs)]
        self.coming[layer] = self.cache.copies.all(pairs)
        self.moved_bytes += sum(blob.nbytes for blob in blobs)

    def close(self) -> None:
        """The step has ended; the buffers go."""
        for transfer in self.coming.values():
            transfer.wait()
        self.coming.clear()
        self.places, self.buffers = {}, []
