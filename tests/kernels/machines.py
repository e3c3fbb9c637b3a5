"""Folders that look like /sys and /proc of machines we do not have."""

from collections.abc import Mapping, Sequence
from pathlib import Path


class Machine:
    """Writes one; every processor has an own core on node 0 unless told otherwise."""

    def __init__(self, root: Path, cpus: int) -> None:
        self.root = root
        self.cpus = cpus
        for cpu in range(cpus):
            self.write(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", str(cpu))

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def siblings(self, *groups: Sequence[int]) -> "Machine":
        for group in groups:
            for cpu in group:
                self.write(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", ",".join(map(str, group)))
        return self

    def speeds(self, source: str, speeds: Sequence[int]) -> "Machine":
        for cpu, speed in enumerate(speeds):
            self.write(f"sys/devices/system/cpu/cpu{cpu}/{source}", str(speed))
        return self

    def nodes(self, lists: Sequence[str], gib: Sequence[int]) -> "Machine":
        for node, (cpus, size) in enumerate(zip(lists, gib, strict=True)):
            self.write(f"sys/devices/system/node/node{node}/cpulist", cpus)
            self.write(
                f"sys/devices/system/node/node{node}/meminfo",
                f"Node {node} MemTotal:       {size << 20} kB\nNode {node} MemFree:        1234 kB",
            )
        return self

    def files(self, texts: Mapping[str, str]) -> "Machine":
        for path, text in texts.items():
            self.write(path, text)
        return self


def hybrid(root: Path) -> Machine:
    """Six performance cores with two hardware threads each (0-11), eight efficiency cores (12-19)."""
    machine = Machine(root, 20).siblings(*((2 * i, 2 * i + 1) for i in range(6)))
    return machine.files({"sys/devices/cpu_core/cpus": "0-11", "sys/devices/cpu_atom/cpus": "12-19"})


def two_sockets(root: Path) -> Machine:
    """Two nodes of four cores with two hardware threads each, 64 and 96 GiB."""
    machine = Machine(root, 16).siblings(*((i, i + 8) for i in range(8)))
    return machine.nodes(["0-3,8-11", "4-7,12-15"], [64, 96])
