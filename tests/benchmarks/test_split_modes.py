"""What the comparison of the split with each side alone makes of times, and that it switches what the device reads."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "device"))

from split_modes import Switch, compared

from strata.experts.gpu import SplitPlan
from strata.experts.split import Line, Split


def test_the_split_is_held_against_the_better_side() -> None:
    found = compared({"split": [[1.0, 1.0], [2.0]], "cpu": [[1.0, 2.0], [2.0]], "pcie": [[4.0, 4.0], [4.0]]})
    assert found["better alone"] == "cpu" and found["split / better"] == 0.8 and found["within 3%"]
    assert found["by round: least, median, most"] == pytest.approx([2 / 3, 5 / 6, 1.0])
    assert found["ms, mean"]["cpu"] == pytest.approx(5000 / 3)


def test_a_split_that_is_slower_is_said_to_be() -> None:
    found = compared({"split": [[1.04]], "cpu": [[2.0]], "pcie": [[1.0]]})
    assert found["better alone"] == "pcie" and not found["within 3%"]


def test_modes_change_what_the_device_reads_and_only_the_split_learns() -> None:
    split = Split(Line(10e-6, 40e-6), Line(5e-6, 40e-6), 6)
    plan = SplitPlan({100: split}, {0: 0}, [100], torch.from_numpy(split.table()[None]))
    experts = SimpleNamespace(split=plan)
    switch = Switch(experts, plan)
    for mode, wanted in (("cpu", [0] * 7), ("pcie", list(range(7))), ("split", split.table().tolist())):
        switch.use(mode)
        assert plan.tables[0].tolist() == wanted
        assert experts.split.tables is plan.tables and bool(experts.split.splits) == (mode == "split")
    assert 0 < int(plan.tables[0, 6]) < 6
