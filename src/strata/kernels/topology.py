"""The processors that this process may use, as Linux describes them under /sys and /proc."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

SLOW = 0.75
"""A core below this part of the fastest core's speed is an efficiency core. Favoured cores differ by 5%, efficiency
cores run at 0.55 to 0.74 of a performance core's highest frequency."""


@dataclass(frozen=True, slots=True)
class Core:
    """One physical core."""

    cpus: tuple[int, ...]
    """Its hardware threads that the process may use."""
    node: int
    slow: bool
    """An efficiency core beside performance cores."""


@dataclass(frozen=True, slots=True)
class Topology:
    """What the process may use."""

    cores: tuple[Core, ...]
    """At least one, by their lowest hardware thread."""
    quota: float | None = None
    """Processors' worth of time that control groups grant; None without a limit."""
    node_bytes: Mapping[int, int] | None = None
    """Memory of each node; None where the system does not say."""

    @property
    def fast(self) -> tuple[Core, ...]:
        """The performance cores; all where there are no others."""
        return tuple(core for core in self.cores if not core.slow)


def read_topology(root: Path = Path("/"), allowed: Collection[int] | None = None) -> Topology:
    """The topology under `root` for the processors `allowed` (default: the affinity mask).

    What a file does not tell is taken as: every processor a core of its own, of one speed, on node 0, without a limit.
    """
    cpus = sorted(usable() if allowed is None else allowed)
    folder = root / "sys/devices/system/cpu"
    siblings: dict[tuple[int, ...], list[int]] = {}
    for cpu in cpus:
        text = read(folder / f"cpu{cpu}/topology/thread_siblings_list")
        siblings.setdefault(parse_list(text) or (cpu,), []).append(cpu)
    nodes = read_nodes(root)
    slow = slow_cpus(root, cpus)
    cores = [
        Core(tuple(group), next((n for n, held in nodes.items() if group[0] in held), 0), group[0] in slow)
        for group in siblings.values()
    ]
    return Topology(tuple(cores), read_quota(root), read_node_bytes(root, nodes))


def usable() -> set[int]:
    """The processors of the affinity mask; all of them where the system has none."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def default_threads(topology: Topology, cores: Collection[Core] | None = None) -> int:
    """One per physical core of `cores` (default: the fast ones), and no more than the quota grants."""
    count = len(topology.fast if cores is None else cores)
    return count if topology.quota is None else max(1, min(count, int(topology.quota)))


def slow_cpus(root: Path, cpus: Collection[int]) -> set[int]:
    """The processors of efficiency cores: named by the kernel's event source for them, or much slower than the best."""
    atoms = parse_list(read(root / "sys/devices/cpu_atom/cpus"))
    named = set(atoms) if atoms and parse_list(read(root / "sys/devices/cpu_core/cpus")) else set()
    found = named & set(cpus)
    for source in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        texts = {cpu: read(root / f"sys/devices/system/cpu/cpu{cpu}/{source}") for cpu in cpus}
        speeds = {cpu: int(text) for cpu, text in texts.items() if text.isdecimal()}
        if not found and len(speeds) == len(texts) and speeds:
            found = {cpu for cpu, speed in speeds.items() if speed < SLOW * max(speeds.values())}
    # A mask of efficiency cores alone: they are the fast ones then.
    return found if len(found) < len(cpus) else set()


def read_nodes(root: Path) -> dict[int, tuple[int, ...]]:
    """The processors of every node, by its number."""
    folders = sorted((root / "sys/devices/system/node").glob("node[0-9]*"), key=lambda path: int(path.name[4:]))
    return {int(folder.name[4:]): parse_list(read(folder / "cpulist")) for folder in folders}


def read_node_bytes(root: Path, nodes: Collection[int]) -> dict[int, int] | None:
    """The memory of every node."""
    found = {}
    for node in nodes:
        for line in read(root / f"sys/devices/system/node/node{node}/meminfo").splitlines():
            words = line.split()
            if len(words) >= 4 and words[2] == "MemTotal:":
                found[node] = int(words[3]) * 1024
    return found if len(found) == len(nodes) and found else None


def read_quota(root: Path) -> float | None:
    """The least of the limits on processor time of the process's control groups and all above them (versions 2, 1)."""
    limits = []
    for line in read(root / "proc/self/cgroup").splitlines():
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        unified = number == "0" and not controllers
        if not unified and "cpu" not in controllers.split(","):
            continue
        mounts = (
            ["sys/fs/cgroup", "sys/fs/cgroup/unified"]
            if unified
            else ["sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"]
        )
        for mount in mounts:
            # In a container the path may be the host's, and only the mount's own folder be there.
            for folder in [Path(path.strip("/")), *Path(path.strip("/")).parents]:
                limits += read_limit(root / mount / folder)
    return min(limits, default=None)


def read_limit(folder: Path) -> list[float]:
    """The limit that one control group sets, if any."""
    words = read(folder / "cpu.max").split() or [
        read(folder / "cpu.cfs_quota_us").strip(),
        read(folder / "cpu.cfs_period_us").strip(),
    ]
    if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]) > 0:
        return [int(words[0]) / int(words[1])]
    return []


def parse_list(text: str) -> tuple[int, ...]:
    """The numbers of "0-3,8" as the kernel writes lists; () for what is none."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            return ()
        numbers += range(int(first), int(last or first) + 1)
    return tuple(numbers)


def read(path: Path) -> str:
    """The file's text without outer blanks; empty when there is none."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
