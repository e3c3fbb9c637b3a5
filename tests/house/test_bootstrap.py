"""./strata from nothing to the command, again, after each kind of change, and with each kind of failure.

One checkout serves all tests that need an environment, since making one takes seconds; each finds it set up and leaves
it as it was.
"""

import ast
import importlib.machinery
import importlib.util
import io
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from house.checkout import ROOT, RUN_TIMEOUT_S, Checkout

NO_PIP = {"PIP_FIND_LINKS": "/nonexistent"}


@dataclass(frozen=True)
class FirstStarts:
    """What two starts at the same moment did, over an environment that was left half made."""

    checkout: Checkout
    codes: list[int]
    outputs: list[str]
    progress: list[str]
    builds: int


@pytest.fixture(scope="module")
def first_starts(tmp_path_factory: pytest.TempPathFactory) -> FirstStarts:
    checkout = Checkout(tmp_path_factory.mktemp("bootstrap"))
    (checkout.root / ".venv").mkdir()
    (checkout.root / ".venv/strata-unfinished").touch()
    (checkout.root / ".venv/half-written").touch()
    starts = [
        subprocess.Popen(
            checkout.command("serve"),
            env=checkout.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    replies = [start.communicate(timeout=RUN_TIMEOUT_S) for start in starts]
    outputs, progress = [out for out, _ in replies], sorted((err for _, err in replies), key=len)
    return FirstStarts(checkout, [start.returncode for start in starts], outputs, progress, checkout.builds)


@pytest.fixture
def checkout(first_starts: FirstStarts) -> Iterator[Checkout]:
    """The shared checkout, set up for commands and for tests; what a test changes is put back."""
    shared = first_starts.checkout
    files = [f for top in ("requirements", "scripts", "src") for f in (shared.root / top).rglob("*") if f.is_file()]
    files += [shared.root / "CMakeLists.txt"]
    before = {file: file.read_bytes() for file in files}
    done = shared.start("test")
    assert done.returncode == 0, done.stderr
    yield shared
    for file, data in before.items():
        file.write_bytes(data)
    for name in ("broken", "hold"):
        (shared.root / name).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def bootstrap() -> ModuleType:
    """./strata as a module; it has no suffix, so it is loaded by path."""
    loader = importlib.machinery.SourceFileLoader("strata_bootstrap", str(ROOT / "strata"))
    spec = importlib.util.spec_from_loader("strata_bootstrap", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_an_old_python_can_read_it_to_the_error() -> None:
    text = (ROOT / "strata").read_text()
    ast.parse(text, feature_version=(3, 7))
    with pytest.raises(SyntaxError):
        ast.parse(text + "\nif (n := 1):\n    pass\n", feature_version=(3, 7))


def test_two_first_starts_at_once_set_up_once_and_both_run(first_starts: FirstStarts) -> None:
    assert first_starts.codes == [0, 0], first_starts.progress
    assert first_starts.builds == 1
    waiting, working = first_starts.progress
    assert waiting.count("\n") == 1 and "waiting for it" in waiting
    assert re.findall(r"^\[(\d)/4\] .* \.\.\. done in \d+ s$", working, re.MULTILINE) == ["1", "2", "3", "4"]
    assert "installing 1 locked packages" in working and "installing torch==2.13.0" in working
    source = first_starts.checkout.root / "src/strata/__init__.py"
    assert first_starts.outputs == [f"command ['serve'] {source}\n"] * 2


def test_a_set_up_cut_short_while_pip_wrote_is_made_anew(first_starts: FirstStarts) -> None:
    assert "(the last set-up was cut short)" in first_starts.progress[1]
    assert not (first_starts.checkout.root / ".venv/half-written").exists()
    assert not (first_starts.checkout.root / ".venv/strata-unfinished").exists()


def test_a_set_up_cut_short_is_seen(checkout: Checkout, bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROOT", "VENV", "PYTHON", "STAMP", "UNFINISHED", "CSRC"):
        moved = checkout.root / getattr(bootstrap, name).relative_to(ROOT)
        monkeypatch.setattr(bootstrap, name, moved)
    assert bootstrap.ready(test=True)
    bootstrap.UNFINISHED.touch()
    assert not bootstrap.ready(test=True)
    bootstrap.UNFINISHED.unlink()
    assert bootstrap.ready(test=True)


def test_a_second_start_does_nothing_but_the_command(checkout: Checkout) -> None:
    builds = checkout.builds
    again = checkout.start("run", "-p", "a b", PATH="/nonexistent", **NO_PIP)
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.startswith("command ['run', '-p', 'a b'] ")
    assert checkout.builds == builds


def test_arguments_after_two_dashes_go_to_the_tests(checkout: Checkout) -> None:
    assert checkout.start("test", "--", "-k", "x").stdout == "tests ['-k', 'x']\n"
    refused = checkout.start("test", "-k", "x")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "./strata test -- -k x" in refused.stderr


@pytest.mark.parametrize("changed", ["CMakeLists.txt", "src/strata/kernels/csrc/kernel.cpp", "scripts/build"])
def test_a_changed_source_builds_again_and_only_that(checkout: Checkout, changed: str) -> None:
    builds = checkout.builds
    checkout.write(changed, (checkout.root / changed).read_text() + "\n# changed\n")
    again = checkout.start("serve", **NO_PIP)
    assert again.returncode == 0, again.stderr
    assert re.fullmatch(r"\[4/4\] building the C\+\+ extension \.\.\. done in \d+ s\n", again.stderr)
    assert checkout.builds == builds + 1


def test_a_failed_build_shows_the_compiler_and_the_next_start_goes_on(checkout: Checkout) -> None:
    checkout.write("CMakeLists.txt", "changed for a failure")
    checkout.write("broken", "")
    failed = checkout.start("serve")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "error: the C++ extension did not build" in failed.stderr
    assert failed.stderr.endswith("kernel.cpp:1: error: this does not compile\n")
    (checkout.root / "broken").unlink()
    assert checkout.start("serve", **NO_PIP).returncode == 0


def start_a_build_that_holds(checkout: Checkout) -> "subprocess.Popen[bytes]":
    """A start that is in the middle of phase 4, and stays there until the file `hold` goes."""
    builds = checkout.builds
    checkout.write("CMakeLists.txt", "changed to build again")
    checkout.write("hold", "")
    start = subprocess.Popen(checkout.command("serve"), env=checkout.environment(), stderr=subprocess.DEVNULL)
    while checkout.builds == builds:
        assert start.poll() is None
        time.sleep(0.02)
    return start


def test_a_start_that_is_ended_ends_its_build_too(checkout: Checkout) -> None:
    start = start_a_build_that_holds(checkout)
    start.terminate()
    start.wait(RUN_TIMEOUT_S)
    assert start.returncode == 128 + signal.SIGTERM
    (checkout.root / "hold").unlink()
    again = checkout.start("serve", **NO_PIP)
    assert again.returncode == 0 and again.stderr.startswith("[4/4] building")


def test_a_killed_start_leaves_the_lock_with_its_child(checkout: Checkout) -> None:
    start = start_a_build_that_holds(checkout)
    start.kill()
    start.wait(RUN_TIMEOUT_S)
    again = subprocess.Popen(checkout.command("serve"), env=checkout.environment(), stderr=subprocess.PIPE, text=True)
    assert again.stderr is not None
    assert "waiting for it" in again.stderr.readline()
    (checkout.root / "hold").unlink()
    assert again.stderr.readline().startswith("[4/4] building")
    again.communicate(timeout=RUN_TIMEOUT_S)
    assert again.returncode == 0


def test_a_file_that_does_not_match_its_hash_is_refused(checkout: Checkout) -> None:
    checkout.lock("run.txt", ["second"], digest="0" * 64)
    checkout.lock("test.txt", ["second"], digest="0" * 64)
    (checkout.root / ".venv/strata-setup.json").unlink()
    uninstall = [checkout.root / ".venv/bin/python", "-m", "pip", "uninstall", "-q", "-y", "second"]
    subprocess.run(uninstall, check=True, env=checkout.environment())
    refused = checkout.start("serve")
    assert refused.returncode == 1
    assert "error: pip could not install requirements/run.txt" in refused.stderr
    assert "0" * 64 in refused.stderr and checkout.hashes["second"] in refused.stderr


def test_no_index_is_one_clear_error_and_the_environment_is_kept(checkout: Checkout) -> None:
    right = (checkout.root / "requirements/run.txt").read_text()
    checkout.write("requirements/run.txt", right.replace("first==1.0", "first==1.1"))
    failed = checkout.start("serve", **NO_PIP)
    assert failed.returncode == 1
    assert "error: pip could not install requirements/run.txt (no network" in failed.stderr
    assert "No matching distribution found for first==1.1" in failed.stderr
    checkout.write("requirements/run.txt", right)
    assert checkout.start("serve", **NO_PIP).stderr == ""


def test_a_newer_torch_that_is_there_is_kept(checkout: Checkout) -> None:
    checkout.write("requirements/torch.txt", "torch==2.99.0\n")
    kept = checkout.start("serve", **NO_PIP)
    assert (kept.returncode, kept.stderr) == (0, "[3/4] torch 2.13.0 is there already\n")


def test_without_a_compiler_it_stops_before_any_download(tmp_path: Path) -> None:
    fresh = Checkout(tmp_path)
    for changes in ({"PATH": "/nonexistent"}, {"CXX": "no-such-compiler -O2"}):
        failed = fresh.start("serve", **changes)
        assert failed.returncode == 1
        assert failed.stderr.count("\n") <= 2 and "error: a C++ compiler is needed" in failed.stderr
    assert "CXX names 'no-such-compiler'" in failed.stderr
    assert not (fresh.root / ".venv").exists()


def test_alone_it_shows_help_and_sets_nothing_up(tmp_path: Path) -> None:
    fresh = Checkout(tmp_path)
    shown = fresh.start()
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "./strata test" in shown.stdout
    assert not (fresh.root / ".venv").exists()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_shows_how_far_a_long_phase_is(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, terminal: bool
) -> None:
    log, said = tmp_path / "log", io.StringIO()
    log.write_text("[1/9] Building a\n[3/9] Building b\n")
    monkeypatch.setattr(bootstrap, "LOG", log)
    monkeypatch.setattr(sys, "stderr", said)
    monkeypatch.setattr(said, "isatty", lambda: terminal)
    child = subprocess.Popen([sys.executable, "-c", "import sys, time; time.sleep(1.2); sys.exit(3)"])
    assert bootstrap.watch(child) == 3
    text = said.getvalue()
    assert text.startswith("3 of 9 files, 1 s ") == terminal and bool(text) == terminal
    assert text.endswith("\b" * len("3 of 9 files, 1 s ")) == terminal


def test_a_tab_sets_nothing_up(tmp_path: Path) -> None:
    fresh = Checkout(tmp_path)
    asked = fresh.start("--complete", "bash", "strata se")
    assert (asked.returncode, asked.stdout, asked.stderr) == (0, "", "")
    assert not (fresh.root / ".venv").exists()


def test_a_wrong_python_without_a_better_one_is_named(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "SUPPORTED", ((3, 99),))
    with pytest.raises(bootstrap.SetupError, match=r"Python 3\.11, 3\.12 or 3\.13 is needed: python3 is 3\.\d+"):
        bootstrap.need_python()


def test_a_python_that_does_not_start_is_passed_over(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, code in (("python3.13", 1), ("python3.12", 0)):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bootstrap.find_python() == str(tmp_path / "python3.12")
