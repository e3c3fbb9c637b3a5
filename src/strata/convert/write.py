"""Writing items to a GGUF file, encoded piece by piece, with progress."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from strata.checkpoint.checkpoint import Checkpoint
from strata.checkpoint.gguf import GgufCheckpoint
from strata.checkpoint.locate import open_checkpoint
from strata.checkpoint.typed import Typed, string, u32
from strata.checkpoint.writer import TensorSource, write_gguf
from strata.convert.gguf_tensors import gguf_items
from strata.convert.hf_tensors import HfTensors
from strata.convert.keys import drafting_layers, model_keys
from strata.convert.tensors import Floats, Item
from strata.convert.types import Choice, Types, choose
from strata.convert.vocabulary import vocabulary_keys
from strata.core.errors import UsageError
from strata.models.registry import architecture_of, vocabulary_size
from strata.quant.encode import encode
from strata.quant.formats import FORMATS

Progress = Callable[[str, int, int], None]
"""(tensor, values done, values in all)"""

Importance = Mapping[str, Floats]
"""Per tensor name: float32 [cols], or [experts, cols]."""

FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K": 12,
              "Q4_K": 15, "Q5_K": 17, "Q6_K": 18, "IQ2_XXS": 19, "IQ2_XS": 20, "IQ3_XXS": 23, "IQ1_S": 24, "IQ4_NL": 25,
              "IQ3_S": 26, "IQ2_S": 28, "IQ4_XS": 30, "IQ1_M": 31, "BF16": 32, "MXFP4": 38}  # fmt: skip
"""llama.cpp's general.file_type by the format of most tensors (llama.h, llama_ftype)."""


def read_items(checkpoint: Checkpoint) -> tuple[list[Item], dict[str, Typed]]:
    """A checkpoint's tensors under GGUF's names, and the keys of the file to be written."""
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


def write_model(
    source: Path,
    target: Path,
    types: Types | None,
    progress: Progress,
    importance: Importance | None = None,
) -> list[Choice]:
    """Write `source` as one GGUF file; `types` None keeps each tensor's own float format. Returns what was chosen."""
    if target.exists() and target.resolve() == source.resolve():
        raise UsageError(f"{target}: would overwrite its own source", "name another file")
    checkpoint = open_checkpoint(source)
    items, keys = read_items(checkpoint)
    choices = [keep(item) if types is None else choose(item, types) for item in items]
    keys["general.quantization_version"] = u32(2)
    keys["general.file_type"] = u32(file_type(choices))
    keys.setdefault("general.name", string(source.stem))
    total, done = sum(item.count for item in items), 0

    def tracked(choice: Choice) -> Iterator[bytes]:
        nonlocal done
        for part, piece in encoded(choice, importance or {}):
            done += part
            progress(choice.item.name, done, total)
            yield piece

    sources = [
        TensorSource(c.item.name, c.item.shape, c.format, lambda c=c: tracked(c))  # type: ignore[misc]
        for c in choices
    ]
    write_gguf(target, keys, sources)
    return choices


def keep(item: Item) -> Choice:
    """The tensor's own format where GGUF has it, F32 for what is small and sensitive."""
    if item.stored in FORMATS and FORMATS[item.stored].type_id >= 0:
        plain = choose(item, Types(base=item.stored))
        return Choice(item, plain.format, "as stored" if plain.reason == "all matrices" else plain.reason)
    return Choice(item, FORMATS["BF16" if item.columns > 1 else "F32"], f"GGUF has no {item.stored}")


def encoded(choice: Choice, importance: Importance) -> Iterator[tuple[int, bytes]]:
    """(values, bytes) piece by piece."""
    weights = importance.get(choice.item.name)
    for part, values in enumerate(choice.item.parts()):
        row = None
        if weights is not None and choice.format.kind == "codes":
            row = weights if weights.ndim == 1 else weights[min(part, len(weights) - 1)]
        try:
            rows = np.ascontiguousarray(values.reshape(-1, choice.item.columns))
            yield rows.size, encode(choice.format, rows, row).tobytes()
        except ValueError as error:
            raise UsageError(
                f"tensor {choice.item.name}: {error}", "give --calibrate TEXT where a format needs an importance matrix"
            ) from error


def file_type(choices: Sequence[Choice]) -> int:
    """llama.cpp's name for the format that holds most values; 1 (mostly F16) where it has none."""
    held: dict[str, int] = {}
    for c in choices:
        held[c.format.name] = held.get(c.format.name, 0) + c.item.count
    return FILE_TYPES.get(max(held, key=lambda n: held[n]), 1)
