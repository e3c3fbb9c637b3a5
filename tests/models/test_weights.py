"""Every matrix of a file is found once."""

import gguf
import pytest

from models.made import load, path_of
from strata.models.weights import dense_bytes, dense_weights, row_tables, weight_bytes


@pytest.mark.parametrize("name", ["llama", "qwen3_moe", "qwen3_next", "qwen3_5_moe", "qwen4_exp"])
def test_dense_weights_are_all_matrices_of_the_file_but_experts_and_convolutions(name):
    path = path_of(name, "gguf")
    model = load(path)
    tensors = gguf.GGUFReader(path).tensors
    # The shared expert's gate is a matrix of one row.
    sizes = {t.name: int(t.n_bytes) for t in tensors if len(t.shape) > 1 or "gate_inp_shexp" in t.name}
    kept = {n: size for n, size in sizes.items() if "_exps" not in n and "conv1d" not in n and "norm" not in n}
    weights = dense_weights(model)
    assert len({id(w) for w in weights}) == len(weights)
    assert sum(weight_bytes(w) for w in weights) == sum(kept.values())


@pytest.mark.parametrize("name", ["llama", "qwen4_exp"])
def test_tables_of_rows_are_told_from_what_a_step_reads_whole(name):
    model = load(path_of(name, "gguf"))
    tables, weights = row_tables(model), dense_weights(model)
    assert dense_bytes(model) == sum(map(weight_bytes, weights)) - sum(map(weight_bytes, tables))
    untied = model.embedding is not model.output
    assert (model.embedding in tables) == untied
    # The n-gram rows are the one other table.
    assert len(tables) == untied + (name == "qwen4_exp")
