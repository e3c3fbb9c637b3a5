"""Kernels compiled ahead: which, in which order, and what becomes of one that is asked for before its turn."""

import subprocess
import sys
import threading

import pytest

from strata.kernels.compiling import FOR_THE_HOST, PROMPT_UNITS, Compiling, units_for
from strata.kernels.device_source import units


def test_a_models_units_are_those_of_its_formats_steps_first():
    found = units_for(["Q4_K", "Q6_K", "F32", "I32"])
    assert {unit.split("=")[1] for unit in found if unit.startswith("products STRATA")} == {"Q4_K", "Q6_K", "F32"}
    assert [unit.split(" ")[1:] for unit in found if unit.startswith("products_pair")] == [
        [f"STRATA_FORMAT={codes}", "STRATA_FLOATS=F32"] for codes in ("Q4_K", "Q6_K")
    ]
    codes = [unit for unit in found if unit.startswith("prompt_products")]
    assert codes and all("SUB=32 STRATA_MINIMA=1" in unit or "SUB=16 STRATA_MINIMA=0" in unit for unit in codes)
    prompts = [unit.startswith(PROMPT_UNITS) for unit in found]
    assert prompts == sorted(prompts) and "norm" in found and not set(FOR_THE_HOST) & set(found)
    assert set(found) | set(FOR_THE_HOST) <= set(units()) and len(found) == len(set(found))


def test_units_are_made_beside_the_caller_and_once():
    made = []
    compiling = Compiling(lambda unit: made.append(unit) or unit.encode(), 2)
    compiling.begin(["a", "b"])
    compiling.begin(["b", "c"])
    told = []
    compiling.wait(["a", "b", "c", "never begun"], lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)] and compiling.cubin("b") == b"b" and sorted(made) == ["a", "b", "c"]


def test_what_waits_for_its_turn_is_made_by_who_asks():
    go_on, busy = threading.Event(), threading.Event()
    by = {}

    def make(unit):
        by[unit] = threading.current_thread().name
        if unit == "slow":
            busy.set()
            assert go_on.wait(10)
        return unit.encode()

    compiling = Compiling(make, 1)
    compiling.begin(["slow", "queued"])
    assert busy.wait(10)
    assert compiling.cubin("queued") == b"queued" and by["queued"] == threading.current_thread().name
    go_on.set()
    assert compiling.cubin("slow") == b"slow" and by["slow"].startswith("compiling")
    compiling.wait(["slow", "queued"], lambda done, total: None)


def test_a_unit_that_does_not_compile_says_so_to_who_waits_and_who_asks():
    def make(unit):
        raise RuntimeError(f"{unit}: no such instruction")

    compiling = Compiling(make, 1)
    compiling.begin(["bad"])
    with pytest.raises(RuntimeError, match="bad: no such instruction"):
        compiling.wait(["bad"], lambda done, total: None)
    with pytest.raises(RuntimeError, match="bad: no such instruction"):
        compiling.cubin("bad")


ENDING = """
import threading, time
from strata.kernels.compiling import Compiling

def make(unit):
    print("making", unit, flush=True)
    began.set()
    time.sleep(0.2)
    return b""

began = threading.Event()
Compiling(make, 1).begin([str(i) for i in range(500)])
began.wait()
print("the program is done", flush=True)
"""


def test_a_program_that_ends_begins_nothing_more():
    ran = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=60, check=True)
    said = ran.stdout.splitlines()
    assert said[0] == "making 0" and "the program is done" in said and len(said) <= 4
