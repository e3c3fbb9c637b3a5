"""What takes memory, from a made file of the kernel's and a made status."""

from pathlib import Path

from strata.server.memory import MACHINE, fields, memory_of

MIB = 1 << 20


def test_ram_by_use(tmp_path: Path) -> None:
    machine = tmp_path / "meminfo"
    machine.write_text("MemTotal:        4096 kB\nMemAvailable:    1024 kB\nHugePages_Total:       0\n")
    status = {"runner": {"memory": {"base": 700, "kept": 20, "rest": -3, "files": 50}}}
    assert memory_of(status, machine) == {
        "ram": {"uses": {"base": 700, "kept": 20, "rest": 0, "files": 50}, "free": MIB, "total": 4 * MIB},
        "vram": None,
    }


def test_vram_by_use(tmp_path: Path) -> None:
    runner = {"experts": {"arena_bytes": 5, "vram_free_bytes": 9}, "device_state_bytes": 3}
    found = memory_of({"runner": runner, "plan": {"vram_weights_mib": {"value": 2}}}, tmp_path / "none")
    assert found["vram"] == {"uses": {"experts": 5, "states": 3, "weights": 2 * MIB}, "free": 9, "total": None}
    assert found["ram"] == {"uses": {}, "free": None, "total": None}


def test_this_machine_is_told_of() -> None:
    found = fields(MACHINE)
    assert found["MemTotal"] > found["MemAvailable"] > MIB
