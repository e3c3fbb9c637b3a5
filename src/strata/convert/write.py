"""Writing items to a GGUF file, encoded piece by piece on several threads, with progress."""

import functools
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from strata.checkpoint.checkpoint import Checkpoint
from strata.checkpoint.gguf import GgufCheckpoint
from strata.checkpoint.typed import Typed, string, u32
from strata.checkpoint.writer import TensorSource, write_gguf
from strata.convert.feedback import Feedback
from strata.convert.gguf_tensors import gguf_items
from strata.convert.hf_tensors import HfTensors
from strata.convert.keys import drafting_layers, model_keys, without_drafting
from strata.convert.nvfp4 import second_scales, wants_scales
from strata.convert.tensors import Bytes, Floats, Item, Native
from strata.convert.types import Choice, Types, choose
from strata.convert.vocabulary import vocabulary_keys
from strata.core.errors import UsageError
from strata.models.registry import architecture_of, vocabulary_size
from strata.quant.encode import encode, needs_importance
from strata.quant.formats import FORMATS

Progress = Callable[[str, int, int], None]
"""(tensor, values done, values in all)"""

Importance = Mapping[str, Floats]
"""Per tensor name: float32 [cols], or [experts, cols]."""

FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K": 12,
              "Q4_K": 15, "Q5_K": 17, "Q6_K": 18, "IQ2_XXS": 19, "IQ2_XS": 20, "IQ3_XXS": 23, "IQ1_S": 24, "IQ4_NL": 25,
              "IQ3_S": 26, "IQ2_S": 28, "IQ4_XS": 30, "IQ1_M": 31, "BF16": 32, "MXFP4": 38}  # fmt: skip
"""llama.cpp's general.file_type by the format of most tensors (llama.h, llama_ftype)."""

EQUAL = "no importance data: columns weighed equally"


def read_items(checkpoint: Checkpoint, drafting: bool = True) -> tuple[list[Item], dict[str, Typed]]:
    """A checkpoint's tensors under GGUF's names, and the keys of the file to be written.

    With `drafting` false the layers that only propose tokens are left out.
    """
    items, keys = _read_all(checkpoint)
    return (items, keys) if drafting else without_drafting(items, keys)


def _read_all(checkpoint: Checkpoint) -> tuple[list[Item], dict[str, Typed]]:
    if isinstance(checkpoint, GgufCheckpoint):
        return gguf_items(checkpoint), {k: v for k, v in checkpoint.types.items() if not k.startswith("split.")}
    arch = architecture_of(checkpoint)
    size = vocabulary_size(checkpoint)
    drafting = drafting_layers(checkpoint.tensors)
    keys = model_keys(checkpoint, arch, drafting, size)
    layers = keys[f"{arch}.block_count"].value
    assert isinstance(layers, int)
    items = HfTensors(checkpoint, arch).items(layers - drafting, drafting)
    return items, keys | vocabulary_keys(checkpoint.path, checkpoint.metadata, size)


def keep(item: Item) -> Choice:
    """The tensor's own format where GGUF has it, F32 for what is small and sensitive."""
    if item.native is not None:
        return Choice(item, item.native.format, item.stored, "--type keep")
    if item.stored in FORMATS and FORMATS[item.stored].type_id >= 0:
        return choose(item, Types(base=item.stored))
    name = "BF16" if item.columns > 1 and len(item.shape) > 1 else "F32"
    return replace(choose(item, Types(base=name)), asked=item.stored, reason=f"GGUF has no {item.stored}")


def weighed(choices: Sequence[Choice], importance: Importance | None) -> list[Choice]:
    """The choices with what importance data does to them; UsageError when a format cannot do without."""
    if importance is None:
        for c in choices:
            if needs_importance(c.format) and not c.copied:
                raise UsageError(
                    f"tensor {c.item.name}: {c.format.name} needs to know which columns matter",
                    "give --calibrate TEXT_FILE or --imatrix FILE",
                )
        return list(choices)
    return [
        replace(c, reason=f"{c.reason}; {EQUAL}" if c.reason else EQUAL)
        if c.format.kind == "codes" and not c.copied and c.item.name not in importance
        else c
        for c in choices
    ]


def write_model(
    target: Path,
    choices: Sequence[Choice],
    keys: Mapping[str, Typed],
    progress: Progress,
    importance: Importance | None = None,
    threads: int | None = None,
    feedback: Feedback | None = None,
) -> None:
    """Write the chosen tensors and `keys` as one GGUF file; nothing is left behind when it fails."""
    written = dict(keys)
    written["general.quantization_version"] = u32(2)
    written["general.file_type"] = u32(file_type(choices))
    written.setdefault("general.name", string(target.stem))
    written.pop("general.alignment", None)  # the source's, not this file's
    counter = Counter(progress, sum(c.item.count for c in choices))
    count = threads or os.cpu_count() or 1
    with ThreadPoolExecutor(count) as pool:
        encoder = Encoder(pool, count, importance or {}, counter, feedback)
        write_gguf(target, written, [s for c in choices for s in encoder.sources(c)])


@dataclass(slots=True)
class Counter:
    """Adds up what is done."""

    progress: Progress
    total: int
    done: int = 0

    def add(self, name: str, values: int) -> None:
        """`values` more of tensor `name`."""
        self.done += values
        self.progress(name, self.done, self.total)


@dataclass(slots=True)
class Encoder:
    """Turns chosen tensors into bytes, some pieces at a time."""

    pool: ThreadPoolExecutor
    ahead: int
    """Pieces in work at once."""
    importance: Importance
    counter: Counter
    feedback: Feedback | None = None
    met: set[str] = field(default_factory=set)
    """Formats that were encoded before."""

    def sources(self, choice: Choice) -> list[TensorSource]:
        """The tensor, and NVFP4's second scale beside it."""
        item, native = choice.item, choice.item.native
        scales: Callable[[], Floats] | None = None
        data: Callable[[], Iterator[Bytes]]
        if native is not None and choice.copied:
            known = native.scales
            if known is not None and (known != 1).any():
                scales = lambda: known  # noqa: E731
            data = lambda: self._copied(item, native)  # noqa: E731
        else:
            if choice.format.name == "NVFP4" and wants_scales(item):
                # made when its turn comes: a pass over the whole tensor
                scales = functools.cache(lambda: second_scales(item))
            data = lambda: self._encoded(choice, scales)  # noqa: E731
        made = [TensorSource(item.name, item.shape, choice.format, data)]
        if scales is not None:
            made.append(self._scale_source(item, scales))
        return made

    def _scale_source(self, item: Item, scales: Callable[[], Floats]) -> TensorSource:
        name = item.name.removesuffix(".weight") + ".scale"
        return TensorSource(name, (item.matrices,), FORMATS["F32"], lambda: scales().astype("<f4").tobytes())

    def _copied(self, item: Item, native: Native) -> Iterator[Bytes]:
        row_bytes = native.format.row_bytes(item.columns)
        for piece in native.pieces():
            yield piece
            self.counter.add(item.name, piece.size // row_bytes * item.columns)

    def _encoded(self, choice: Choice, scales: Callable[[], Floats] | None) -> Iterator[Bytes]:
        waiting: deque[tuple[int, Future[Bytes]]] = deque()
        factors = scales() if scales is not None else None
        for matrix, values in choice.item.pieces():
            rows = np.ascontiguousarray(values.reshape(-1, choice.item.columns))
            if factors is not None:
                rows = rows / factors[matrix]
            weights = self._weights(choice, matrix)
            waiting.append((rows.size, self._submit(choice, matrix, rows, weights)))
            if len(waiting) > self.ahead:
                yield self._next(choice, waiting)
        while waiting:
            yield self._next(choice, waiting)

    def _submit(self, choice: Choice, matrix: int, rows: Floats, weights: Floats | None) -> Future[Bytes]:
        future = self.pool.submit(self._encode, choice, matrix, rows, weights)
        if choice.format.name not in self.met:
            # ggml makes a format's tables on its first use, and two threads that both do crash
            wait([future])
            self.met.add(choice.format.name)
        return future

    def _next(self, choice: Choice, waiting: deque[tuple[int, Future[Bytes]]]) -> Bytes:
        count, future = waiting.popleft()
        data = future.result()
        self.counter.add(choice.item.name, count)
        return data

    def _weights(self, choice: Choice, matrix: int) -> Floats | None:
        if choice.format.kind != "codes":
            return None
        found = self.importance.get(choice.item.name)
        if found is None:
            # with equal weights ggml searches for the best scales of Q4_0 to Q5_1; without any it takes the first
            equal = bool(self.importance) or needs_importance(choice.format)
            return np.ones(choice.item.columns, np.float32) if equal else None
        row = found if found.ndim == 1 else found[matrix]
        if row.shape != (choice.item.columns,):
            raise UsageError(
                f"tensor {choice.item.name}: importance data for {row.shape[0]} columns, found {choice.item.columns}"
            )
        return row

    def _encode(self, choice: Choice, matrix: int, rows: Floats, weights: Floats | None) -> Bytes:
        try:
            raw = encode(choice.format, rows, weights)
            return raw if self.feedback is None else self.feedback.rounded(choice, matrix, rows, raw)
        except ValueError as error:
            raise UsageError(f"tensor {choice.item.name}: {error}", "ask for another format for it") from error


def file_type(choices: Sequence[Choice]) -> int:
    """llama.cpp's name for the format that holds most values; 1 (mostly F16) where it has none."""
    held: dict[str, int] = {}
    for c in choices:
        held[c.format.name] = held.get(c.format.name, 0) + c.item.count
    return FILE_TYPES.get(max(held, key=lambda n: held[n]), 1)
