"""A small stand-in for the checkout: the real ./strata on tiny local wheels, without network or compiler."""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN_TIMEOUT_S = 180


def write_wheel(folder: Path, name: str, version: str) -> str:
    """Write a wheel that holds one empty module; returns its sha256."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": b"",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


BUILD = """
import sys
import time
from pathlib import Path
root = Path(__file__).resolve().parent.parent
if (root / "broken").exists():
    sys.exit("kernel.cpp:1: error: this does not compile")
with (root / "builds").open("a") as file:
    file.write("built\\n")
while (root / "hold").exists():
    time.sleep(0.02)
(root / "src/strata/kernels/_native.test.so").write_bytes(b"")
"""

MAIN = """
import sys
import first
import strata
print("command", sys.argv[1:], strata.__file__)
"""


class Checkout:
    """A folder with the real ./strata, two locks over local wheels, and a build script that counts its runs."""

    def __init__(self, root: Path) -> None:
        self.root = root / "checkout"
        self.wheels = root / "wheels"
        for folder in (
            self.wheels,
            self.root / "requirements",
            self.root / "scripts",
            self.root / "src/strata/kernels/csrc",
        ):
            folder.mkdir(parents=True)
        self.hashes = {name: write_wheel(self.wheels, name, "1.0") for name in ("first", "second")}
        write_wheel(self.wheels, "torch", "2.13.0")
        shutil.copy(ROOT / "strata", self.root / "strata")
        shutil.copy(ROOT / "requirements/torch.txt", self.root / "requirements/torch.txt")
        self.lock("run.txt", ["first"])
        self.lock("test.txt", ["first", "second"])
        self.write("CMakeLists.txt", "")
        self.write("src/strata/kernels/csrc/kernel.cpp", "")
        self.write("src/strata/__init__.py", "")
        self.write("src/strata/__main__.py", MAIN)
        self.write("scripts/build", BUILD)
        self.write("scripts/test", "import sys\nimport second\nprint('tests', sys.argv[1:])\n")

    def write(self, path: str, text: str) -> None:
        (self.root / path).write_text(text)

    def lock(self, name: str, packages: list[str], digest: str | None = None) -> None:
        """Write a lock file; with `digest`, every package gets that hash instead of its own."""
        lines = [f"{p}==1.0 \\\n    --hash=sha256:{digest or self.hashes[p]}\n" for p in packages]
        self.write(f"requirements/{name}", "".join(lines))

    def environment(self, **changes: str) -> dict[str, str]:
        """What ./strata runs in: pip sees the local wheels only, and nothing of this test run leaks in."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "PYTHON", "CXX"))}
        pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels)}
        return {**kept, **pip, "PIP_NO_CACHE_DIR": "1", **changes}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, str(self.root / "strata"), *arguments]

    def start(self, *arguments: str, **changes: str) -> "subprocess.CompletedProcess[str]":
        """Run ./strata to its end."""
        return subprocess.run(
            self.command(*arguments),
            env=self.environment(**changes),
            cwd=self.root.parent,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )

    @property
    def builds(self) -> int:
        """How often the extension was built."""
        file = self.root / "builds"
        return file.read_text().count("built") if file.is_file() else 0
