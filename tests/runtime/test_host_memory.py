"""Every byte that the system counts has a name in the status."""

import subprocess
import sys

from models.made import load, ops_of, oracle, path_of
from strata.core.limits import Limits
from strata.core.window import Window
from strata.runtime.host_memory import HostMemory, resident
from strata.runtime.runner import DeviceRunner
from strata.sampling.params import SamplingParams

TEXT = "Name:\tpython3\nVmHWM:\t  900 kB\nRssAnon:\t     700 kB\nRssFile:\t     150 kB\nRssShmem:\t       4 kB\n"


def test_the_system_is_read(tmp_path):
    (tmp_path / "status").write_text(TEXT)
    assert resident(tmp_path / "status") == {"anonymous": 700 << 10, "files": 150 << 10, "shared": 4 << 10}


def test_where_nobody_counts_nothing_is_told(tmp_path):
    assert resident(tmp_path / "status") == {}
    assert HostMemory(lambda: {"pool": 5}, dict).values() == {}


def test_parts_and_rest_add_up():
    now, parts = {"anonymous": 100, "files": 30}, {"pool": 0, "kept": 0}
    memory = HostMemory(lambda: parts, lambda: now)
    assert memory.values() == {"base": 100, "pool": 0, "kept": 0, "rest": 0, "files": 30}
    now["anonymous"], parts["pool"], parts["kept"] = 190, 60, 20
    assert memory.values() == {"base": 100, "pool": 60, "kept": 20, "rest": 10, "files": 30}


def test_a_runner_names_what_it_holds():
    ops = ops_of()
    runner = DeviceRunner(load(path_of("qwen4_exp", "gguf"), ops), ops, Limits(2, 256, 64))
    assert runner.status()["memory"]["pool"] == runner.status()["memory"]["steps"] == 0
    ids = oracle("qwen4_exp").ids[:9]
    runner.seat(0, ids, SamplingParams(), len(ids) + 4)
    runner.step([Window(0, 0, tuple(ids), 1)])
    runner.release(0)
    found = runner.status()["memory"]
    assert found.keys() == {"base", "pool", "states", "kept", "steps", "rest", "files", "shared"}
    assert found["pool"] == runner.states.pages.used * runner.contents.page_bytes > 0
    assert found["states"] == 2 * runner.contents.state_bytes > 0
    assert found["kept"] == runner.cache.tiers.ram() >= runner.contents.state_bytes
    assert found["steps"] == runner.forwarder.workspace.nbytes > 0
    assert found["base"] + found["rest"] + sum(found[part] for part in ("pool", "states", "kept", "steps")) > 0


LEAKING = """
import numpy as np
from strata.runtime.host_memory import HostMemory
memory = HostMemory(dict)
leak = np.ones(64 << 20, np.uint8)
held = memory.values()["rest"]
del leak
print(held >> 20, memory.values()["rest"] >> 20)
"""


def test_what_nobody_counts_shows_in_the_rest():
    """Negative control: a leak, in a process of its own: here other tests' memory comes and goes meanwhile."""
    done = subprocess.run([sys.executable, "-c", LEAKING], check=True, capture_output=True, text=True)
    held, after = map(int, done.stdout.split())
    assert held > 32 and after < 32
