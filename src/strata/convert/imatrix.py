"""Importance data in a file, in llama.cpp's GGUF form (its llama-imatrix writes it, its llama-quantize reads it).

general.type is "imatrix"; per tensor NAME there is NAME.in_sum2, float32 [matrices, cols] (sums of squares), and
NAME.counts, float32 [matrices, 1] (rows that were added).
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from strata.checkpoint.checkpoint import Checkpoint
from strata.checkpoint.gguf import open_gguf
from strata.checkpoint.typed import ValueType, array, string, u32
from strata.checkpoint.writer import TensorSource, write_gguf
from strata.convert.importance import Column, Columns
from strata.convert.tensors import Floats
from strata.core.errors import CheckpointError
from strata.quant.decode import dequantise
from strata.quant.formats import FORMATS

SUMS, COUNTS = ".in_sum2", ".counts"


def save(path: Path, columns: Columns, datasets: Sequence[str], tokens: int, window: int) -> None:
    """Write `columns`, measured on `tokens` tokens of `datasets` in runs of `window`."""
    keys = {
        "general.type": string("imatrix"),
        "imatrix.datasets": array(ValueType.STRING, list(datasets)),
        "imatrix.chunk_count": u32(-(-tokens // window)),
        "imatrix.chunk_size": u32(window),
    }
    tensors = []
    for name, column in columns.items():
        sums, rows = column.sums.astype("<f4"), column.rows.astype("<f4")
        tensors.append(TensorSource(name + SUMS, sums.shape, FORMATS["F32"], sums))
        tensors.append(TensorSource(name + COUNTS, (len(rows), 1), FORMATS["F32"], rows))
    write_gguf(path, keys, tensors)


def load(path: Path) -> Columns:
    """Read a file; CheckpointError when it is no importance file or a tensor lacks its counts."""
    with open_gguf(path) as file:
        if file.metadata.string("general.type", "") != "imatrix":
            raise CheckpointError(f"{path}: key general.type: expected 'imatrix', found another kind of GGUF file")
        names = [n.removesuffix(SUMS) for n in file.tensors if n.endswith(SUMS)]
        return {name: _column(file, path, name) for name in names}


def _column(file: Checkpoint, path: Path, name: str) -> Column:
    if name + COUNTS not in file.tensors:
        raise CheckpointError(f"{path}: tensor {name}{COUNTS} is missing")
    sums, counts = _values(file, name + SUMS), _values(file, name + COUNTS).reshape(-1)
    sums = sums.reshape(-1, sums.shape[-1])
    if len(counts) not in (1, len(sums)) or not (np.isfinite(sums).all() and (sums >= 0).all() and (counts >= 0).all()):
        raise CheckpointError(
            f"{path}: tensor {name}: expected finite sums and a count for each of {len(sums)} matrices"
        )
    rows = np.broadcast_to(counts, len(sums)).astype(np.int64)
    return Column(sums.astype(np.float64), rows)


def _values(file: Checkpoint, name: str) -> Floats:
    ref = file.tensors[name]
    flat = dequantise(ref.format, np.ascontiguousarray(file.bytes_of(ref)).reshape(1, -1))
    return flat.reshape(ref.shape)
