"""Checks and times everything on a GPU in one call, on a machine with nothing but Python, torch and a compiler.

python benchmarks/device/all.py [--build] [--wheels FOLDER] [--only TOPIC ...] [--device cuda] [--out FOLDER]

Each topic is a module beside this one with `run(device, out)`: it compares with the CPU first and puts what it found
into `out`. What fails in one topic is written down and leaves the others alone. Prints the findings and writes them to
FOLDER/device.json (FOLDER defaults to $OUT, then to the current folder); exits with 1 when a topic failed.

Topics that run the engine import libgguf, msgspec and llguidance. A machine without a network gets them as files:
`pip download --no-deps` puts wheels for its Python into a folder, and --wheels unpacks that beside the caches.
"""

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TOPICS = ("simple", "products", "prompts", "mixers", "torch_ops", "whole_engine", "tiers", "split_modes")
"""In the order of what they build on."""
CACHE = Path(tempfile.gettempdir()) / "strata-device-kernels"
"""Compiled kernels, for all topics and later calls."""


def build(python: str) -> None:
    """The extensions, in place, with the cmake, ninja and nanobind that are there; the output only when it fails."""
    nanobind = subprocess.run([python, "-m", "nanobind", "--cmake_dir"], check=True, stdout=subprocess.PIPE, text=True)
    folder = ROOT / "build" / "device"
    options = ["-DSTRATA_IN_PLACE=ON", f"-DPython_EXECUTABLE={python}", f"-Dnanobind_DIR={nanobind.stdout.strip()}"]
    configure = ["cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", *options]
    for command in (configure, ["cmake", "--build", str(folder)]):
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            print(done.stdout[-8000:])
            raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}")


def unpack(wheels: Path, python: str) -> None:
    """Make the packages of a folder of wheels importable, here and in the topics' processes."""
    site = Path(tempfile.gettempdir()) / "strata-device-packages"
    files = [str(path) for path in sorted(wheels.glob("*.whl"))]
    words = [python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--upgrade", "--target", str(site)]
    subprocess.run([*words, *files], check=True)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    sys.path.insert(0, str(site))


def run_topic(name: str, device: Any) -> dict[str, Any]:
    """What a topic found, its seconds, and the error that ended it."""
    out: dict[str, Any] = {}
    began = time.monotonic()
    try:
        module = importlib.import_module(name)
        module.run(device, out)
        device.synchronize()
    except Exception as error:  # noqa: BLE001 - whatever a topic does, the others run
        out["error"] = f"{type(error).__name__}: {error}"
        out["traceback"] = traceback.format_exc()
    out["seconds"] = round(time.monotonic() - began, 1)
    return out


def show(name: str, value: Any, indent: int = 0) -> None:
    """A finding as lines of name and value."""
    space = "  " * indent
    if isinstance(value, dict):
        print(f"{space}{name}")
        for key, inner in value.items():
            show(str(key), inner, indent + 1)
    elif isinstance(value, float):
        print(f"{space}{name}: {value:.4g}")
    else:
        print(f"{space}{name}: {value}")


def alone(name: str, device: str) -> dict[str, Any]:
    """What a topic finds in a process of its own: what one does to the driver's context is not another's."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--only", name, "--device", device, "--out", folder]
        code = subprocess.run(command, check=False).returncode
        file = Path(folder) / "device.json"
        found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    ended: dict[str, Any] = {"error": f"the process ended with {code}"}
    return found if name in found else {name: ended}


def here(name: str, device_name: str) -> dict[str, Any]:
    """What a topic finds in this process, and what it ran on."""
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests"), str(Path(__file__).parent)]
    torch = importlib.import_module("torch")
    device = importlib.import_module("strata.kernels.devices").open_device(device_name, CACHE)
    found = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d %H:%M:%S"),
        "device": device.name,
    }
    print(f"== {name}", flush=True)
    found[name] = run_topic(name, device)
    show(name, found[name])
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--wheels", type=Path, help="a folder of wheels that this machine lacks")
    parser.add_argument("--only", nargs="*", default=list(TOPICS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    wanted = parser.parse_args()
    began = time.monotonic()
    if wanted.build:
        build(sys.executable)
        print(f"built in {time.monotonic() - began:.0f} s", flush=True)
    if wanted.wheels:
        unpack(wanted.wheels, sys.executable)
    run, found = here if len(wanted.only) == 1 else alone, dict[str, Any]()
    for name in wanted.only:
        found |= run(name, wanted.device)
        # After every topic: a machine that is taken away keeps what was found.
        (wanted.out / "device.json").write_text(json.dumps(found, indent=1, default=str))
    failed = [name for name in wanted.only if "error" in found[name]]
    print(f"failed: {', '.join(failed)}" if failed else "no topic failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
