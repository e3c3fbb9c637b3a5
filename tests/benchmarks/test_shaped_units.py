"""Names of the units that a GPU is asked for."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "device"))

from shaped_units import launched, shaped_units

from strata.convert.shapes import REAL
from strata.kernels.compiling import FOR_THE_HOST
from strata.kernels.device_source import digest, units


def test_every_listed_unit_that_a_gpu_launches_is_there_once_and_has_a_source() -> None:
    found = launched()
    assert set(units()) - set(FOR_THE_HOST) <= set(found) and not set(FOR_THE_HOST) & set(found)
    assert len(set(map(digest, found))) == len(found)


def test_shapes_are_compiled_in() -> None:
    found = set(shaped_units(REAL["qwen4exp"]))
    assert {"norm_many NORM_VALUES=80", "select_prompt SELECT_HEADS=4 SELECT_DIM=128"} < found
    assert "delta_step DELTA_KEY_DIM=128 DELTA_VALUE_DIM=128" in found
    assert sum(unit.startswith("attention_list LIST_DIM=256 LIST_QUERIES=12 ") for unit in found) == 3
    assert not any(unit.startswith(("delta", "select")) for unit in shaped_units(REAL["qwen3moe"]))
