"""Qwen3-Next's packed delta-net projections: for every key head its share of each part."""

import numpy as np

from strata.parity.settings import DeltaShape
from strata.parity.weights import Matrix


def packed_qkvz(whole: Matrix, shape: DeltaShape) -> tuple[Matrix, Matrix]:
    """Rows per key head [q dk | k dk | v r*dv | z r*dv] -> ([all q | all k | all v], z), grouped by key head."""
    dk, wide = shape.key_dim, shape.value_heads // shape.key_heads * shape.value_dim
    rows = np.arange(whole.rows).reshape(shape.key_heads, 2 * dk + 2 * wide)
    parts = np.split(rows, [dk, 2 * dk, 2 * dk + wide], axis=1)
    query, key, value, gate = (p.reshape(-1) for p in parts)
    return whole.take(np.concatenate([query, key, value])), whole.take(gate)


def packed_ba(whole: Matrix, shape: DeltaShape) -> tuple[Matrix, Matrix]:
    """Rows per key head [b r | a r] -> (b, a), grouped by key head."""
    rows = np.arange(whole.rows).reshape(shape.key_heads, 2, -1)
    return whole.take(rows[:, 0].reshape(-1)), whole.take(rows[:, 1].reshape(-1))
