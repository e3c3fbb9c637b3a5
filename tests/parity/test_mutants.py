"""Parity goes red for every planted fault, and names the operation that it is in."""

import pytest

from oracles.build import ORACLES
from parity.mutants.table import FAULTS, MORE
from strata.checkpoint.locate import open_checkpoint
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.native import Native
from strata.parity.compare import operations
from strata.parity.forward import load
from strata.parity.production import engine

LENGTH, STEPS = 30, (13, 1, 16)
CASES = [pytest.param(f, o, id=f"{f.name}-{o}-{f.form}") for f in (*FAULTS, *MORE) for o in f.oracles]


def first_beyond(path, ids, ops):
    """The first figure beyond tolerance; no end-to-end logits, so that only an operation can be named."""
    taps, _ = engine(ops)(path, ids, STEPS)
    with open_checkpoint(path) as checkpoint:
        figures = operations(load(checkpoint), ids, taps, len(STEPS))
    return next((f for f in figures if not f.passed), None)


@pytest.fixture(scope="module")
def honest():
    return CpuOps(Native(1))


@pytest.mark.parametrize("form", ["gguf", "saved"])
@pytest.mark.parametrize("name", ORACLES)
def test_nothing_is_named_without_a_fault(files, honest, name, form):
    oracle, path = files(name, form)
    assert first_beyond(path, oracle.ids[:LENGTH], honest) is None


@pytest.mark.parametrize(("fault", "name"), CASES)
def test_the_fault_is_named(files, honest, monkeypatch, fault, name):
    oracle, path = files(name, fault.form)
    fault.patch(monkeypatch)
    first = first_beyond(path, oracle.ids[:LENGTH], fault.ops(honest))
    assert first is not None, "nothing beyond tolerance"
    assert first.kind == fault.expected(name), str(first)


def test_the_table_holds_the_measured_faults_once():
    assert len(FAULTS) == len({f.name for f in FAULTS}) == 43
