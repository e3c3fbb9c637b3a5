"""A model of a published shape whose weights are drawn where they are read: no file, no encoder, seconds to make.

Matrices are random codes of their formats (rows drawn from a small pool), scaled so that activations stay alive.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from expert_pool import ExpertPool

from strata.checkpoint.metadata import Metadata
from strata.checks.kernel_cases import random_blocks
from strata.convert.shapes import REAL, TINY, Shape
from strata.convert.synth_keys import synth_keys
from strata.convert.synth_tensors import tensor_shapes
from strata.kernels.ops import Ops
from strata.kernels.views import ExpertBank, Weight
from strata.models.base import Model
from strata.models.registry import ARCHITECTURES
from strata.models.source import Container
from strata.quant.decode import dequantise
from strata.quant.formats import FORMATS
from strata.store.rows import RowTable

POOL_ROWS = 256
NGRAM_BASE = 200_000
"""Rows per hash head; the published table of 20 million a head stays in host memory or on disk."""
PRECISE = re.compile(r"(output_hc|hc_attn|hc_ffn)_(down|up|inject)$|indexer\.[qk]_proj$|ssm_(alpha|beta|ba)$")
VECTORS = {"norm": (1.0, 0.1), "dt": (-2.0, 1.0), "conv": (0.0, 0.5)}
"""(mean, spread) by kind."""


@dataclass(frozen=True)
class Formats:
    """Of experts' gate and up, of their down projections, and of dense matrices."""

    expert: str
    down: str
    dense: str = "Q6_K"

    def of(self, name: str, cols: int) -> str:
        """The format of a tensor; rows that do not fill its blocks get Q8_0."""
        found = self.down if "down_exps" in name else self.expert if "_exps" in name else self.dense
        if PRECISE.search(name):
            found = "BF16"
        if "ffn_gate_inp" in name:
            found = "F32"
        if name == "per_layer_token_embd":
            found = "Q8_0"
        return found if cols % FORMATS[found].block == 0 else "Q8_0"


def shape_of(arch: str, layers: int, scale: str = "real") -> Shape:
    """A published shape (or a tiny one of its kind) with another number of layers."""
    shape = (REAL if scale == "real" else TINY)[arch]
    base = min(shape.ngram_base, NGRAM_BASE)
    return replace(shape, layers=layers, ngram_base=base)


class DrawnSource:
    """Implements `Source` with random tensors on a device."""

    container: Container = "gguf"

    def __init__(
        self,
        shape: Shape,
        formats: Formats,
        device: torch.device,
        seed: int = 1,
        blocks: list[torch.Tensor] | None = None,
    ) -> None:
        """`blocks`: pinned host memory for the experts, which lie on the device without."""
        self.formats, self.device = formats, device
        self.blocks = blocks
        self.pool: ExpertPool | None = None
        items = list(tensor_shapes(shape))
        self.kinds = {item.name.removesuffix(".weight"): kind for item, kind in items}
        self.rng = np.random.default_rng(seed)
        self.generator = torch.Generator(device).manual_seed(seed)
        self.pools: dict[tuple[str, int], tuple[torch.Tensor, float]] = {}

    def has(self, name: str) -> bool:
        """See `Source.has`."""
        return name in self.kinds

    def rows_of(self, name: str, cols: int) -> tuple[torch.Tensor, float]:
        """(rows of format `name`, uint8 [POOL_ROWS, row_bytes]; the spread of their values)."""
        if (name, cols) not in self.pools:
            fmt = FORMATS[name]
            if fmt.kind == "float":
                values = torch.randn(POOL_ROWS, cols, generator=torch.Generator().manual_seed(cols))
                raw = values.to(torch.bfloat16 if name == "BF16" else torch.float32).view(torch.uint8)
                self.pools[name, cols] = raw.view(POOL_ROWS, -1).to(self.device), 1.0
            else:
                blocks = random_blocks(fmt, POOL_ROWS * cols // fmt.block, self.rng)
                spread = float(dequantise(fmt, blocks).std())
                raw = torch.from_numpy(blocks.reshape(POOL_ROWS, -1))
                self.pools[name, cols] = raw.to(self.device), spread
        return self.pools[name, cols]

    def codes(self, name: str, rows: int, cols: int) -> tuple[str, torch.Tensor, float]:
        """(format, uint8 [rows, row_bytes], the product's scale for outputs of about the inputs' size)."""
        fmt = self.formats.of(name, cols)
        pool, spread = self.rows_of(fmt, cols)
        at = torch.randint(POOL_ROWS, (rows,), generator=self.generator, device=self.device)
        gain = 3.0 if name == "output" or name.endswith("ffn_gate_inp") else 1.5 if "_exps" in name else 1.0
        size = 0.5 if self.kinds[name] == "embedding" else gain / cols**0.5
        return fmt, pool[at], size / spread

    def weight(self, name: str, rows: int, cols: int) -> Weight:
        """See `Source.weight`."""
        fmt, plane, scale = self.codes(name, rows, cols)
        return Weight(FORMATS[fmt], rows, cols, (plane,), scale)

    def vector(self, name: str, *shape: int) -> torch.Tensor:
        """See `Source.vector`."""
        z = torch.from_numpy(self.rng.standard_normal(shape, dtype=np.float32))
        if self.kinds[name] == "decay":
            return -z.exp()
        mean, spread = VECTORS[self.kinds[name]]
        return mean + spread * z

    def experts(self, layer: int, count: int, width: int, hidden: int) -> ExpertBank:
        """See `Source.experts`."""
        if self.blocks is not None:
            if self.pool is None:
                self.pool = self.pinned_pool(self.blocks, width, hidden)
            return self.pool.bank(layer, count)

        def stack(kind: str, rows: int, cols: int) -> tuple[Weight, ...]:
            fmt, plane, scale = self.codes(f"blk.{layer}.ffn_{kind}_exps", count * rows, cols)
            each = plane.view(count, rows, -1)
            return tuple(Weight(FORMATS[fmt], rows, cols, (each[e],), scale) for e in range(count))

        return ExpertBank(stack("gate", width, hidden), stack("up", width, hidden), stack("down", hidden, width))

    def pinned_pool(self, blocks: list[torch.Tensor], width: int, hidden: int) -> ExpertPool:
        """The experts' pool in `blocks`."""
        sizes = {"gate": (width, hidden), "up": (width, hidden), "down": (hidden, width)}
        gate, up, down = (self.weight(f"blk.0.ffn_{kind}_exps", *size) for kind, size in sizes.items())
        pools = [self.rows_of(w.format.name, w.cols)[0] for w in (gate, up, down)]
        return ExpertPool(blocks, (gate, up, down), tuple(pools))

    def rows(self, name: str, layer: int, needed: int, cols: int) -> RowTable:
        """See `Source.rows`."""
        return RowTable([self.weight(name, needed, cols)])

    def integers(self, name: str, count: int) -> tuple[int, ...]:
        """See `Source.integers`: a GGUF keeps them among its keys."""
        raise KeyError(name)

    def check_all_used(self) -> None:
        """See `Source.check_all_used`."""


def drawn_model(
    shape: Shape,
    formats: Formats,
    ops: Ops,
    device: torch.device,
    seed: int = 1,
    blocks: list[torch.Tensor] | None = None,
) -> tuple[Model, ExpertPool | None]:
    """The model, and the pool of its experts where they lie in `blocks`.

    The same seed gives the same weights on the same device.
    """
    values = {name: typed.value for name, typed in synth_keys(shape).items()}
    meta = Metadata(Path(f"drawn {shape.arch}"), values)
    source = DrawnSource(shape, formats, device, seed, blocks)
    return ARCHITECTURES[shape.arch].build(source, meta, shape.vocabulary, ops), source.pool
