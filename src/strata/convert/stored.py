"""Decoding the matrices of a safetensors folder, whatever scales lie beside them, and handing NVFP4 on as it is."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from strata.convert.nvfp4 import repack
from strata.convert.tensors import Bytes, Floats, Native, Pieces, spans
from strata.convert.transforms import Transform
from strata.core.errors import UnsupportedError
from strata.kernels.views import Weight
from strata.quant.decode import dequantise
from strata.quant.formats import FORMATS

SHOWN = {"NVFP4_PAIRS": "NVFP4", "FP8_BLOCK": "FP8"}
"""Formats that differ from others only in how a folder lays them out."""


@dataclass(frozen=True, slots=True)
class Matrices:
    """One matrix, or one per expert, of equal shapes, or some rows of each; `source` names them in errors."""

    source: str
    weights: tuple[Weight, ...]
    first: int = 0
    """Row that these begin with."""
    count: int | None = None
    """How many rows; None for all."""

    @property
    def rows(self) -> int:
        """Rows of each."""
        return self.weights[0].rows if self.count is None else self.count

    @property
    def columns(self) -> int:
        """Values per row."""
        return self.weights[0].cols

    @property
    def stored(self) -> str:
        """The name of the format."""
        name = self.weights[0].format.name
        return SHOWN.get(name, name)

    def cut(self, start: int, stop: int) -> "Matrices":
        """Only these rows of each."""
        return Matrices(self.source, self.weights, self.first + start, stop - start)

    def pieces(self, transform: Transform) -> Callable[[], Pieces]:
        """Makes the values, some rows at a time; whole matrices where rows or columns change places."""

        def make() -> Pieces:
            for matrix, weight in enumerate(self.weights):
                if transform.rows is None and transform.columns is None:
                    for span in spans(self.rows, weight.cols):
                        yield matrix, transform(decoded(weight, self.first + span.start, self.first + span.stop))
                else:
                    yield matrix, transform(decoded(weight, self.first, self.first + self.rows))

        return make

    def native(self, transform: Transform) -> Native | None:
        """The same numbers as GGUF's NVFP4, when the folder has them so and blocks of 64 stay whole."""
        fmt = FORMATS["NVFP4"]
        pairs = all(w.format.name == "NVFP4_PAIRS" for w in self.weights)
        if not pairs or self.columns % fmt.block or not transform.keeps_blocks(fmt.block):
            return None

        def make() -> Iterator[Bytes]:
            for weight in self.weights:
                try:
                    packed = repack(*(p[self.first : self.first + self.rows].numpy() for p in weight.planes))
                except ValueError as error:
                    raise UnsupportedError(f"{self.source}: NVFP4: {error}", "ask for another --type") from error
                yield np.ascontiguousarray(transform.ordered(packed, fmt.block_bytes, fmt.block))

        return Native(fmt, make, np.array([w.scale for w in self.weights], np.float32))


def decoded(weight: Weight, start: int, stop: int) -> Floats:
    """Rows as float32 [stop - start, cols]: the format's values, times the second scale (one rounding)."""
    which = np.arange(start, stop)
    scales = weight.planes[1].numpy() if len(weight.planes) > 1 else None
    values = dequantise(weight.format, np.ascontiguousarray(weight.planes[0][start:stop].numpy()), scales, which)
    return values if weight.scale == 1.0 else values * np.float32(weight.scale)


def gathered(parts: Sequence[Matrices]) -> Matrices:
    """Experts that are stored one by one, as one stack."""
    return Matrices(parts[0].source, tuple(w for p in parts for w in p.weights))
