"""Dense products and routed experts as registered torch operators, for other engines (docs/torch-ops.md).

`register` defines them; whoever calls it keeps the library object as long as the operators are wanted. Nothing waits
for the device, so calls can be captured in a graph of the stream that they name.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from strata.kernels.device import Device
from strata.kernels.device_addresses import address
from strata.kernels.devices import open_device
from strata.kernels.experts import gpu as experts_gpu
from strata.kernels.experts import prompt as experts_prompt
from strata.kernels.experts.table import COLUMNS, ExpertTable, entry
from strata.kernels.gpu_ops import WINDOW_ROWS, GpuOps
from strata.kernels.views import Weight
from strata.quant.format import QuantFormat
from strata.quant.formats import FORMATS

NAMESPACE = "strata"
SCHEMAS = (
    "linear(Tensor x, Tensor codes, Tensor? scales, str format, float scale, int stream) -> Tensor",
    "expert_table(Tensor gate, Tensor up, Tensor down, str[] formats) -> Tensor",
    "experts(Tensor x, Tensor ids, Tensor weights, Tensor table, int width, str[] formats, int stream) -> Tensor",
)


def register(cache: Path, namespace: str = NAMESPACE) -> torch.library.Library:
    """Define the operators under torch.ops.NAMESPACE; compiled kernels are kept in the folder `cache`.

    They end when the returned library is gone. RuntimeError when the namespace has such operators already.
    """
    make: Any = torch.library.Library
    library = make(namespace, "DEF")
    calls = Calls(cache)
    for schema in SCHEMAS:
        name = library.define(schema)
        for key in ("CPU", "CUDA"):
            library.impl(name, getattr(calls, name), key)
        torch.library.register_fake(f"{namespace}::{name}", getattr(Shapes, name), lib=library)
    made: torch.library.Library = library
    return made


class Shapes:
    """What the operators give, for tracing: shapes and types alone."""

    @staticmethod
    def linear(
        x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor | None, format: str, scale: float, stream: int
    ) -> torch.Tensor:
        """float32 [T, rows]"""
        return x.new_empty(x.shape[0], codes.shape[0])

    @staticmethod
    def expert_table(gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, formats: Sequence[str]) -> torch.Tensor:
        """int64 [experts, COLUMNS]"""
        return gate.new_empty(gate.shape[0], COLUMNS, dtype=torch.int64)

    @staticmethod
    def experts(
        x: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
        table: torch.Tensor,
        width: int,
        formats: Sequence[str],
        stream: int,
    ) -> torch.Tensor:
        """float32 [T, hidden]"""
        return torch.empty_like(x)


class Calls:
    """The operators on whatever device their tensors are; a device is opened when it is first met."""

    def __init__(self, cache: Path, open_here: Callable[[str, Path], Device] = open_device) -> None:
        self.cache = cache
        self.open = open_here
        self.opened: dict[str, GpuOps] = {}

    @contextmanager
    def on(self, x: torch.Tensor, stream: int) -> Iterator[GpuOps]:
        """The operations of the device of `x`, for launches to `stream`."""
        name = "emulator" if x.device.type == "cpu" else str(x.device)
        if name not in self.opened:
            self.opened[name] = GpuOps(self.open(name, self.cache))
        if x.device.type == "cpu":
            if stream:
                raise ValueError(f"stream {stream} for tensors on the CPU, expected 0")
            yield self.opened[name]
            return
        external: Any = torch.cuda.ExternalStream
        with torch.cuda.stream(external(stream, device=x.device)):
            yield self.opened[name]

    def linear(
        self, x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor | None, format: str, scale: float, stream: int
    ) -> torch.Tensor:
        """See docs/torch-ops.md."""
        planes = (codes,) if scales is None else (codes, scales)
        weight = Weight(format_of(format), codes.shape[0], x.shape[1], planes, scale)
        with self.on(x, stream) as ops:
            return ops.linear(x, [weight])[0]

    def expert_table(
        self, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, formats: Sequence[str]
    ) -> torch.Tensor:
        """See docs/torch-ops.md."""
        kinds = three(formats)
        experts, width, hidden = gate.shape[0], gate.shape[1], down.shape[1]
        shapes = ((width, hidden), (width, hidden), (hidden, width))
        weights = []
        for name, matrices, fmt, (rows, cols) in zip(
            ("gate", "up", "down"), (gate, up, down), kinds, shapes, strict=True
        ):
            expected = (experts, rows, fmt.row_bytes(cols))
            if matrices.dtype is not torch.uint8 or tuple(matrices.shape) != expected or not matrices.is_contiguous():
                found = f"{matrices.dtype} {tuple(matrices.shape)}"
                raise ValueError(f"expert_table: {name}: expected contiguous torch.uint8 {expected}, found {found}")
            weights.append([Weight(fmt, rows, cols, (matrix,)) for matrix in matrices])
        rows_of = [
            entry((g, u, d), [(weight.planes[0].data_ptr(), 0) for weight in (g, u, d)])
            for g, u, d in zip(*weights, strict=True)
        ]
        return torch.tensor(rows_of, dtype=torch.int64).to(gate.device)

    def experts(
        self,
        x: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
        table: torch.Tensor,
        width: int,
        formats: Sequence[str],
        stream: int,
    ) -> torch.Tensor:
        """See docs/torch-ops.md."""
        gate, up, down = three(formats)
        known = ExpertTable(table, x.shape[1], width, ((gate,), (up,), (down,)))
        with self.on(x, stream) as ops:
            address(ops.device, "experts: table", table, torch.int64, (len(table), COLUMNS))
            if len(x) > WINDOW_ROWS:
                return experts_prompt.experts(ops.device, x, ids, weights, known)
            return experts_gpu.experts(ops.device, x, ids, weights, known)


def format_of(name: str) -> QuantFormat:
    """ValueError for an unknown format."""
    if name not in FORMATS:
        raise ValueError(f"format {name!r:.40}: expected one of {', '.join(FORMATS)}")
    return FORMATS[name]


def three(names: Sequence[str]) -> tuple[QuantFormat, QuantFormat, QuantFormat]:
    """The formats of gate, up and down, whose scales must lie in their blocks; ValueError otherwise."""
    if len(names) != 3:
        raise ValueError(f"formats {list(names)}: expected those of gate, up and down")
    gate, up, down = (format_of(name) for name in names)
    for fmt in (gate, up, down):
        if fmt.scale_block is not None:
            raise ValueError(f"experts in {fmt.name}: formats with a plane of scales are not taken here")
    return gate, up, down
