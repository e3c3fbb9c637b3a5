"""Threads, processors and nodes for machines we do not have."""

import pytest

from kernels.machines import Machine, hybrid, two_sockets
from strata.kernels.topology import read_topology
from strata.plan.placement import place_threads

GIB = 1 << 30


def test_one_node_of_equal_cores_is_used_as_it_is(tmp_path):
    Machine(tmp_path, 4).nodes(["0-3"], [16])
    made = place_threads(read_topology(tmp_path, range(4)), None, 13 * GIB)
    assert (made.threads, made.cpus, made.nodes) == (4, (), ())
    assert made.reason == "4 physical cores"


def test_threads_and_memory_stay_on_the_node_that_has_more(tmp_path):
    two_sockets(tmp_path)
    made = place_threads(read_topology(tmp_path, range(16)), None, 13 * GIB)
    assert (made.threads, made.cpus, made.nodes) == (4, (4, 5, 6, 7, 12, 13, 14, 15), (1,))
    assert made.reason == "4 physical cores; node 1 of 2 nodes, which keeps threads beside their memory"
    # More cores on the other node count for more than memory.
    fewer = place_threads(read_topology(tmp_path, [0, 1, 2, 3, 4, 5]), None, 13 * GIB)
    assert (fewer.threads, fewer.cpus, fewer.nodes) == (4, (0, 1, 2, 3), (0,))


@pytest.mark.parametrize(("weights", "nodes"), [(76 * GIB, (1,)), (78 * GIB, (0, 1))])
def test_weights_that_no_node_holds_are_spread_over_all(tmp_path, weights, nodes):
    two_sockets(tmp_path)
    made = place_threads(read_topology(tmp_path, range(16)), None, weights)
    assert made.nodes == nodes and made.threads == 4 * len(nodes)
    assert ("78.0 GiB of weights, node 1 has 96.0 GiB" in made.reason) == (made.cpus == ())


@pytest.mark.parametrize(("asked", "nodes"), [(1, (1,)), (4, (1,)), (5, (0, 1)), (40, (0, 1))])
def test_more_threads_than_a_node_has_use_all_nodes(tmp_path, asked, nodes):
    two_sockets(tmp_path)
    made = place_threads(read_topology(tmp_path, range(16)), asked, GIB)
    assert (made.threads, made.nodes) == (asked, nodes) and bool(made.cpus) == (len(nodes) == 1)
    assert made.reason.startswith("as asked; node 1")


def test_efficiency_cores_are_left_out_unless_threads_are_asked_for(tmp_path):
    topology = read_topology(hybrid(tmp_path).root, range(20))
    made = place_threads(topology, None, GIB)
    assert (made.threads, made.cpus, made.nodes) == (6, tuple(range(12)), ())
    assert made.reason == "6 physical cores; 8 slower ones are left out"
    assert place_threads(topology, 4, GIB).cpus == tuple(range(12))
    more = place_threads(topology, 10, GIB)
    assert (more.threads, more.cpus, more.reason) == (10, (), "as asked")


def test_a_limit_on_processor_time_is_said(tmp_path):
    hybrid(tmp_path).files({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "250000 100000"})
    made = place_threads(read_topology(tmp_path, range(20)), None, GIB)
    assert made.threads == 2 and made.reason.endswith("; control groups grant 2.5 processors")
    assert place_threads(read_topology(tmp_path, range(20)), 5, GIB).threads == 5
