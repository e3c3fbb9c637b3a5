"""What is read from a machine's description, and what is taken where it says nothing."""

import os
from pathlib import Path

import pytest

from kernels.machines import Machine, hybrid, two_sockets
from strata.kernels.topology import default_threads, parse_list, read_topology


def threads(root: Path, cpus: int) -> int:
    return default_threads(read_topology(root, range(cpus)))


def test_hardware_threads_of_a_core_count_once(tmp_path: Path) -> None:
    two_sockets(tmp_path)
    topology = read_topology(tmp_path, range(16))
    assert [core.cpus for core in topology.cores] == [(i, i + 8) for i in range(8)]
    assert [core.node for core in topology.cores] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert topology.node_bytes == {0: 64 << 30, 1: 96 << 30}
    assert default_threads(topology) == 8


def test_only_the_affinity_mask_counts(tmp_path: Path) -> None:
    two_sockets(tmp_path)
    topology = read_topology(tmp_path, {3, 8, 12, 4})
    assert [(core.cpus, core.node) for core in topology.cores] == [((3,), 0), ((4, 12), 1), ((8,), 0)]


@pytest.mark.parametrize(
    ("source", "speeds"),
    [
        ("cpu_capacity", [1024, 1024, 830, 830, 400, 400]),
        ("cpufreq/cpuinfo_max_freq", [5100000, 5000000, 4900000, 4900000, 3300000, 3300000]),
    ],
)
def test_much_slower_cores_are_efficiency_cores(tmp_path: Path, source: str, speeds: list[int]) -> None:
    Machine(tmp_path, 6).speeds(source, speeds)
    assert [core.slow for core in read_topology(tmp_path, range(6)).cores] == [False] * 4 + [True] * 2
    assert threads(tmp_path, 6) == 4


def test_event_sources_name_the_kinds_even_where_speeds_are_close(tmp_path: Path) -> None:
    machine = hybrid(tmp_path)
    machine.speeds("cpufreq/cpuinfo_max_freq", [5700000] * 12 + [4600000] * 8)
    assert threads(tmp_path, 20) == 6
    machine.files({"sys/devices/cpu_core/cpus": "", "sys/devices/cpu_atom/cpus": ""})
    assert threads(tmp_path, 20) == 14


def test_a_mask_of_efficiency_cores_alone_uses_them(tmp_path: Path) -> None:
    hybrid(tmp_path)
    assert default_threads(read_topology(tmp_path, range(12, 20))) == 8


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/cpu.max": "250000 100000"}, 2),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/cpu.max": "max 100000"}, 8),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "300000 100000"}, 3),
        ({"proc/self/cgroup": "0::/gone", "sys/fs/cgroup/cpu.max": "50000 100000"}, 1),
        (
            {
                "proc/self/cgroup": "5:cpuset:/x\n4:cpu,cpuacct:/x",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "400000",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000",
            },
            4,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            8,
        ),
        ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/b/cpu.max": "100000 100000"}, 8),
        ({"proc/self/cgroup": "nonsense\n::", "sys/fs/cgroup/cpu.max": "x y z"}, 8),
    ],
)
def test_control_groups_limit_the_threads(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    two_sockets(tmp_path).files(files)
    assert threads(tmp_path, 16) == expected


def test_a_machine_that_says_nothing_has_equal_cores(tmp_path: Path) -> None:
    topology = read_topology(tmp_path, {5, 2})
    assert [(core.cpus, core.node, core.slow) for core in topology.cores] == [((2,), 0, False), ((5,), 0, False)]
    assert topology.quota is None and topology.node_bytes is None


@pytest.mark.parametrize(("text", "numbers"), [("0-2,7", (0, 1, 2, 7)), ("4", (4,)), ("", ()), ("a", ()), ("-3", ())])
def test_lists_of_processors(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_list(text) == numbers


def test_this_machine_has_a_core_for_every_thread_it_would_start() -> None:
    topology = read_topology()
    held = [cpu for core in topology.cores for cpu in core.cpus]
    assert sorted(held) == sorted(os.sched_getaffinity(0))
    assert 1 <= default_threads(topology) <= len(topology.cores)
