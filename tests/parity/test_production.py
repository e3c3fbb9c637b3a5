"""The engine itself, on its specification and on its compiled operations, in every container."""

import ast
from pathlib import Path

import pytest

import strata.parity
from oracles.build import ORACLES, build
from oracles.gguf_writer import blocks, write
from strata.checkpoint.locate import open_checkpoint
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.naive_ops import NaiveOps
from strata.kernels.native import Native
from strata.parity.compare import compare
from strata.parity.forward import load
from strata.parity.production import engine, split

CHUNKS = (20, 5, 1, 19)
OPS = {"naive": NaiveOps, "compiled": lambda: CpuOps(Native(1))}


def compared(path, ids, ops):
    steps = split(len(ids), CHUNKS)
    taps, logits = engine(ops)(path, ids, steps)
    with open_checkpoint(path) as checkpoint:
        return compare(load(checkpoint), ids, taps, logits, len(steps))


@pytest.mark.parametrize(("form", "ops"), [("saved", "compiled"), ("gguf", "compiled"), ("gguf", "naive")])
@pytest.mark.parametrize("name", ORACLES)
def test_every_operation_equals_the_reference(files, name, form, ops):
    oracle, path = files(name, form)
    found = compared(path, oracle.ids, OPS[ops]())
    assert found.first is None, str(found.first)


@pytest.mark.parametrize(("name", "kind"), [("qwen3_moe", "Q8_0"), ("qwen4_exp", "Q4_0")])
def test_every_operation_equals_the_reference_in_blocks(tmp_path, name, kind):
    oracle = build(name, wide=True, length=20)
    path = write(oracle, tmp_path / "m.gguf", blocks(kind))
    found = compared(path, oracle.ids, CpuOps(Native(1)))
    assert found.quantised
    assert found.first is None, str(found.first)


def test_only_production_knows_the_engine():
    """A second implementation that imports the first would agree with its faults."""
    engine_side = ("strata.layers", "strata.models", "strata.kernels", "strata.runtime", "strata.experts", "torch")
    knows = set()
    for file in Path(strata.parity.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            knows |= {file.name for n in names if n.startswith(engine_side)}
    assert knows == {"production.py"}
