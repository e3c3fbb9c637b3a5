"""Where a figure comes from: machine, commit, model."""

import platform
import subprocess
from pathlib import Path

import strata
from strata.assemble import Loaded


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name as the system tells it."""
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def commit(folder: Path = Path(strata.__file__).parent) -> str | None:
    """The checkout's commit, with + when tracked files were changed; None outside a checkout or without git."""
    try:
        said = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
        tracked = subprocess.run(
            ["git", "-C", str(folder), "ls-files", "--error-unmatch", "__init__.py"],
            capture_output=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip() if tracked.returncode == 0 else None


def origin(threads: object, isa: object) -> dict[str, object]:
    """Machine and build: the fields that every result carries."""
    return {
        "machine": {"cpu": processor(), "threads": threads, "isa": isa},
        "version": strata.__version__,
        "commit": commit(),
    }


def facts(loaded: Loaded) -> dict[str, object]:
    """The fields that every result about a model carries."""
    choices = {choice.name: choice.value for choice in loaded.plan.choices}
    path = loaded.checkpoint.path
    return {
        "model": str(path),
        "model_bytes": sum(file.stat().st_size for file in ([path] if path.is_file() else path.glob("*.safetensors"))),
        "architecture": loaded.model.shape.architecture,
        "device": choices.get("gpu", "cpu"),
        **origin(choices["threads"], choices["isa"]),
    }
