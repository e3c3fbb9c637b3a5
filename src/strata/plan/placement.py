"""Which threads run where: from the machine's topology to a number, a place and a reason. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from strata.kernels.topology import Core, Topology, default_threads

NODE_SHARE = 0.8
"""Part of a node's memory that weights may take for everything to stay on that node."""


@dataclass(frozen=True, slots=True)
class Placement:
    """How many threads, on which processors, with memory of which nodes."""

    threads: int
    reason: str
    cpus: tuple[int, ...] = ()
    """The only processors to run on; empty: wherever the process may."""
    nodes: tuple[int, ...] = ()
    """Nodes that new memory comes from: one is preferred, several take turns; empty: as the system likes."""


def place_threads(topology: Topology, asked: int | None, weight_bytes: int) -> Placement:
    """One thread per performance core, all on one node when the weights fit its memory.

    Efficiency cores are left out: the slowest thread ends a step, and a few fast cores already read all that memory
    gives. More threads than that are run when they are asked for, wherever the process may.
    """
    scope, nodes, where = choose_nodes(topology, asked, weight_bytes)
    fast = [core for core in scope if not core.slow]
    if asked is not None and asked > len(fast):
        return Placement(asked, join("as asked", where), cpus_of(scope, topology), nodes)
    threads = default_threads(topology, fast) if asked is None else asked
    cpus = cpus_of(fast, topology)
    if asked is not None:
        return Placement(asked, join("as asked", where), cpus, nodes)
    found = f"{len(fast)} physical core{'s' if len(fast) != 1 else ''}"
    slow = len(scope) - len(fast)
    left_out = f"{slow} slower ones are left out" if slow else ""
    limit = f"control groups grant {topology.quota:g} processors" if threads < len(fast) else ""
    return Placement(threads, join(found, left_out, where, limit), cpus, nodes)


def choose_nodes(
    topology: Topology, asked: int | None, weight_bytes: int
) -> tuple[Sequence[Core], tuple[int, ...], str]:
    """(cores to choose from, nodes for memory, reason): one node, or all where threads or weights need more."""
    numbers = sorted({core.node for core in topology.cores})
    if len(numbers) == 1:
        return topology.cores, (), ""
    memory = topology.node_bytes or {}
    by_node = {node: [core for core in topology.cores if core.node == node] for node in numbers}
    best = max(numbers, key=lambda node: (sum(not c.slow for c in by_node[node]), memory.get(node, 0), -node))
    cores, room = by_node[best], memory.get(best)
    if asked is not None and asked > len(cores):
        return (
            topology.cores,
            tuple(numbers),
            f"node {best} has {len(cores)} cores, so all {len(numbers)} nodes are used",
        )
    if room is not None and weight_bytes > NODE_SHARE * room:
        sizes = f"{gib(weight_bytes)} of weights, node {best} has {gib(room)}"
        return topology.cores, tuple(numbers), f"{sizes}, so all {len(numbers)} nodes are used"
    return cores, (best,), f"node {best} of {len(numbers)} nodes, which keeps threads beside their memory"


def cpus_of(cores: Sequence[Core], topology: Topology) -> tuple[int, ...]:
    """The hardware threads of `cores`; empty when those are all there are."""
    if len(cores) == len(topology.cores):
        return ()
    return tuple(sorted(cpu for core in cores for cpu in core.cpus))


def gib(nbytes: int) -> str:
    """`nbytes` in GiB."""
    return f"{nbytes / (1 << 30):.1f} GiB"


def join(*parts: str) -> str:
    """The parts that say something."""
    return "; ".join(part for part in parts if part)
