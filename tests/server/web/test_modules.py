"""modules.test.mjs under the node that playwright brings: needs no browser."""

import subprocess
from pathlib import Path

import playwright

NODE = Path(playwright.__file__).parent / "driver" / "node"
TESTS = Path(__file__).with_name("modules.test.mjs")


def run(file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([NODE, "--test", file], capture_output=True, text=True, check=False, timeout=60)


def test_modules_without_a_page() -> None:
    done = run(TESTS)
    assert done.returncode == 0, done.stdout
    assert "# fail 0" in done.stdout or "fail 0" in done.stdout


def test_a_broken_module_is_noticed(tmp_path: Path) -> None:
    library = Path(__file__).parents[3] / "src/strata/server/web/lib"
    (tmp_path / "package.json").write_text('{"type": "module"}')
    for file in library.glob("*.js"):
        (tmp_path / file.name).write_text(file.read_text().replace("1024", "900"))
    for other in ("clipboard.js", "markdown.js"):
        (tmp_path / other).unlink()
    broken = tmp_path / TESTS.name
    text = TESTS.read_text().replace("../../../src/strata/server/web/lib/", "./")
    broken.write_text(text)
    done = run(broken)
    assert done.returncode == 1 and "1.5 KiB" in done.stdout
