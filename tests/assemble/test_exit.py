"""A process that ran an engine leaves nothing of the C++ extension behind, which would say so on stderr."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from house.checkout import ROOT
from models.made import path_of

RUN = """
import ctypes, sys

from strata.assemble import load
from strata.engine.request import Request
from strata.plan.wishes import Wishes

model, device, folder, held = sys.argv[1:]
loaded = load(model, Wishes(threads=2, ctx_size=64, parallel=1, device=device, cache_dir=folder))
loaded.engine.start()
events = list(loaded.engine.submit(Request("one", (1, 2, 3), 2)).events())
loaded.engine.stop()
print(len(events))
if held:
    native = loaded.runner.ops.native
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(native))
"""


def said_at_exit(device: str, folder: Path, held: str = "") -> str:
    """What a process that answers a request says on stderr; `held`: and it never gives back its pool of threads."""
    command = [sys.executable, "-c", RUN, str(path_of("qwen3_moe", "gguf")), device, str(folder), held]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0 and int(result.stdout) > 0, result.stderr
    return result.stderr


@pytest.mark.parametrize("device", ["cpu", "emulator"])
def test_an_engine_that_was_stopped_leaves_nothing(device: str, tmp_path: Path) -> None:
    assert "nanobind: leaked" not in said_at_exit(device, tmp_path)


def test_what_outlives_the_interpreter_is_reported(tmp_path: Path) -> None:
    """Negative control."""
    assert "nanobind: leaked" in said_at_exit("cpu", tmp_path, held="held")
