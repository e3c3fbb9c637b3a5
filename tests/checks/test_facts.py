"""Where a figure comes from."""

import subprocess

from models.made import path_of
from strata.assemble import load
from strata.checks.facts import commit, facts, processor
from strata.plan.wishes import Wishes


def git(folder, *words):
    named = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    done = subprocess.run(["git", "-C", str(folder), *named, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_commit_is_that_of_a_checkout_which_tracks_the_package(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    assert commit(package) is None
    git(tmp_path, "init", "-q")
    (package / "__init__.py").write_text("a = 1\n")
    (tmp_path / "other").write_text("")
    git(tmp_path, "add", "other")
    git(tmp_path, "commit", "-q", "-m", "one")
    assert commit(package) is None
    git(tmp_path, "add", "package")
    git(tmp_path, "commit", "-q", "-m", "two")
    assert commit(package) == git(tmp_path, "rev-parse", "--short=12", "HEAD")
    (package / "__init__.py").write_text("a = 2\n")
    assert commit(package).endswith("+")


def test_the_processor_is_named(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text("vendor_id\t: X\nmodel name\t: Some CPU: 9000\n")
    assert processor(file) == "Some CPU: 9000"
    assert processor(tmp_path / "none")


def test_facts_name_model_machine_and_version():
    loaded = load(path_of("llama", "gguf"), Wishes(threads=1, isa="portable", parallel=1))
    found = facts(loaded)
    assert found["model"] == str(path_of("llama", "gguf")) and found["architecture"] == "llama"
    assert found["machine"]["threads"] == 1 and found["machine"]["isa"] == "portable"
