"""Files of kept prefixes: whole or not there, found again, and never believed when a byte is wrong."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from state.kept import PAGE, Kept
from strata.core.order import Order
from strata.state import writer
from strata.state.archive import DIGEST, FIXED, Archive, ArchiveError, digest, key_of
from strata.state.lock import FolderLock
from strata.state.prefix import Match, Node, PrefixTree

TOKENS = list(range(30))
NAMES = {"tokens": 32}
STATE = {"checksum": 16}


def archive(folder, identity=b"root", page=PAGE):
    return Archive(folder, identity, NAMES, STATE, page)


def node_of(tokens, parent=None, start=0):
    tree = PrefixTree(PAGE, True, b"root")
    base = Match(parent or tree.root, start)
    ids = np.array(tokens, np.int64)
    return tree.add(key_of(base.node.key, start, ids), base, ids)


def blobs(pages=2, seed=0):
    draw = np.random.default_rng(seed)
    return {"tokens": draw.integers(0, 256, 32 * pages, np.uint8)}, {"checksum": draw.integers(0, 256, 16, np.uint8)}


def same(a, b):
    return a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a)


@pytest.fixture
def written(tmp_path):
    """(archive, node, its file)"""
    made, node = archive(tmp_path), node_of(range(7))
    size = made.write(node, *blobs())
    file = made.path(node.key)
    assert file.stat().st_size == size <= made.size(7, 64 + 16)
    return made, node, file


def complaints(made):
    found = []
    return made.scan(found.append), [str(error.reason) for error in found]


def test_what_is_written_is_read_back(written):
    made, node, _ = written
    (entry,), said = complaints(made)
    assert said == [] and (entry.key, entry.parent, entry.start, entry.state) == (node.key, b"root", 0, True)
    assert entry.tokens.tolist() == list(range(7))
    pages, state = blobs()
    assert same(made.read(node.key, "pages"), pages) and same(made.read(node.key, "state"), state)


def test_pages_alone_are_read_back_too(tmp_path):
    made, node = archive(tmp_path), node_of(range(5, 12), node_of(range(6)), 6)
    made.write(node, blobs(3)[0], None)
    (entry,), said = complaints(made)
    assert said == [] and not entry.state and entry.start == 6 and same(made.read(node.key, "pages"), blobs(3)[0])
    assert made.read(node.key, "state") == {}


def test_every_byte_counts(written):
    """Every byte of the file, flipped: fields, digest, header, tokens, payload."""
    made, node, file = written
    whole, payload = file.read_bytes(), 2 * 32 + 16
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        entries, said = complaints(made)
        if at < len(whole) - payload:
            assert not entries and len(said) == 1, at
        else:
            assert len(entries) == 1
            part = "state" if at >= len(whole) - 16 else "pages"
            with pytest.raises(ArchiveError, match=rf"{node.key.hex()}.*{part} \w+ is damaged"):
                made.read(node.key, part)
    file.write_bytes(whole)
    assert complaints(made)[1] == []


def test_every_length_counts(written):
    made, _, file = written
    whole = file.read_bytes()
    for size in [*range(len(whole)), len(whole) + 1]:
        file.write_bytes((whole + b"x")[:size])
        entries, said = complaints(made)
        assert not entries and len(said) == 1


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda made, file: file.write_bytes(b""), "truncated: 0 bytes"),
        (lambda made, file: file.write_bytes(b"GGUF" + bytes(100)), "not a kept conversation"),
        (lambda made, file: shutil.copy(file, file.with_stem("0" * 32)), "its name is not that of its tokens"),
        (lambda made, file: setattr(made, "identity", b"other"), "of another model or other settings"),
        (lambda made, file: setattr(made, "page", 8), "its arrays are not this model's"),
        (lambda made, file: setattr(made, "state", {"checksum": 20}), "its arrays are not this model's"),
        (lambda made, file: file.chmod(0) or file.unlink() or file.mkdir(), "cannot be read: Is a directory"),
        (lambda made, file: file.write_bytes(b"STRATAKV\2" + file.read_bytes()[9:]), "version 2, expected 1"),
    ],
)
def test_what_is_ignored_is_named_with_its_reason_and_left_alone(written, spoil, reason):
    made, _, file = written
    spoil(made, file)
    before = sorted(made.folder.iterdir())
    assert complaints(made)[1] == [reason] and sorted(made.folder.iterdir()) == before


@pytest.mark.parametrize("spoil", [lambda text: text.replace(b'"start"', b'"begin"'), lambda text: text[:-1] + b"]"])
def test_a_whole_file_with_a_header_of_another_kind_is_ignored(written, spoil):
    made, _, file = written
    whole = file.read_bytes()
    magic, version, size, payload, count = FIXED.unpack(whole[: FIXED.size])
    head = FIXED.size + DIGEST
    header, rest = spoil(whole[head : head + size]), whole[head + size :]
    fixed = FIXED.pack(magic, version, len(header), payload, count)
    file.write_bytes(fixed + digest(fixed, header, rest[: 4 * count]) + header + rest)
    assert complaints(made) == (
        [],
        [f"its header is not understood: {'KeyError' if b'begin' in header else 'JSONDecodeError'}"],
    )


class Crash(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("at", ["open", "first write", "last write", "fsync", "replace", "folder"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), Crash()])
def test_a_write_that_does_not_end_leaves_nothing_to_be_believed(tmp_path, monkeypatch, at, error):
    made, node, calls = archive(tmp_path), node_of(range(7)), []

    def fail(*_):
        raise error

    def synced(descriptor):
        calls.append(descriptor)
        if len(calls) == (2 if at == "folder" else 1):
            raise error

    with monkeypatch.context() as patch:
        if isinstance(error, Crash):
            patch.setattr("pathlib.Path.unlink", lambda *_, **__: None)  # a process that ends cleans nothing up
        if at in ("fsync", "folder"):
            patch.setattr(os, "fsync", synced)
        elif at in ("open", "replace"):
            patch.setattr(f"pathlib.Path.{at}", fail)
        else:
            patch.setattr(Archive, "place", torn(at, fail))
        with pytest.raises(type(error)):
            made.write(node, *blobs())
    entries, said = complaints(made)
    assert said == [] and len(entries) == (1 if at == "folder" else 0)
    assert not [file for file in made.folder.iterdir() if file.suffix != ".prefix"]


def torn(at, fail):
    """Archive.place with a failing write: only the first part, or all but the last, reaches the file."""
    whole = Archive.place

    def place(self, key, parts):
        def some():
            yield from parts[: 0 if at == "first write" else -1]
            fail()

        whole(self, key, some())

    return place


def test_after_a_restart_conversations_go_on_and_the_latest_is_the_last_to_give_way(tmp_path):
    kept = Kept(folder=tmp_path)
    for first in (0, 40, 80):
        kept.read(0, list(range(first, first + 20)))
        kept.release(0)
    kept.cache.close()
    for age, file in enumerate(sorted(tmp_path.iterdir(), key=lambda f: f.stat().st_mtime_ns)):
        os.utime(file, (1000 + age, 1000 + age))
    again = Kept(folder=tmp_path)
    assert again.tiers.saved() == sum(file.stat().st_size for file in tmp_path.iterdir()) > 0
    assert again.read(0, [*range(40, 60), 7]) == 20 and again.held.tier == "disk"
    again.check()
    small = Kept(folder=tmp_path, disk=again.tiers.saved() // 2)
    assert small.tiers.saved() <= small.tiers.disk.budget
    assert small.cache.known([*range(40, 60), 7]) == 20, "used last"
    assert small.cache.known([*range(20), 7]) < 20
    small.check()


def test_a_damaged_file_is_one_warning_and_a_shorter_prefix(tmp_path):
    kept = Kept(folder=tmp_path)
    kept.read(0, TOKENS)
    kept.release(0)
    kept.cache.close()
    end = max(kept.cache.tree.nodes(), key=lambda node: node.end)
    file = kept.tiers.disk.archive.path(end.key)
    file.write_bytes(file.read_bytes()[:-9])
    again = Kept(folder=tmp_path)
    said = again.said.getvalue()
    assert said.count("warning") == 1 and str(file) in said and "its header says" in said
    assert again.read(0, [*TOKENS, 7]) == 28
    assert again.tiers.saved() == sum(f.stat().st_size for f in tmp_path.iterdir() if f != file)


@pytest.mark.parametrize("part", ["pages", "state"])
def test_damage_found_when_it_is_needed_costs_reading_not_the_request(tmp_path, part):
    kept = Kept(folder=tmp_path)
    kept.read(0, TOKENS)
    kept.release(0)
    kept.cache.close()
    again = Kept(folder=tmp_path)
    file = again.tiers.disk.archive.path(max(again.cache.tree.nodes(), key=lambda node: node.end).key)
    data = bytearray(file.read_bytes())
    data[-1 if part == "state" else -33] ^= 1
    file.write_bytes(data)
    assert again.read(0, [*TOKENS, 7]) == 28 and again.held.tier == "disk"
    assert again.said.getvalue().count("warning") == 1 and str(file) in again.said.getvalue()
    again.check()
    again.release(0)
    again.cache.close()
    assert again.cache.known([*TOKENS, 7, 8]) == 31, "it is kept again"


def test_what_goes_on_from_a_lost_file_is_deleted(tmp_path):
    kept = Kept(folder=tmp_path)
    kept.read(0, TOKENS)
    kept.release(0)
    kept.cache.close()
    first = min(kept.cache.tree.nodes(), key=lambda node: node.end)
    kept.tiers.disk.archive.path(first.key).unlink()
    again = Kept(folder=tmp_path)
    assert again.cache.known(TOKENS) == 0 and list(tmp_path.iterdir()) == [] and again.tiers.saved() == 0


def test_a_disk_that_fails_is_a_warning_and_nothing_is_lost(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Archive, "place", full)
    kept = Kept(folder=tmp_path)
    kept.read(0, TOKENS)
    kept.release(0)
    kept.cache.close()
    assert kept.said.getvalue().count("No space left on device") == 1 and kept.tiers.moved["unwritten"] > 1
    assert kept.tiers.saved() == 0 and kept.read(0, [*TOKENS, 7]) == 30
    monkeypatch.undo()
    kept.release(0)
    kept.cache.close()
    assert kept.tiers.saved() == sum(file.stat().st_size for file in tmp_path.iterdir()) > 0, "there is space again"
    kept.check()


def test_a_file_that_cannot_be_deleted_is_a_warning(tmp_path, monkeypatch):
    def stuck(*_):
        raise PermissionError(13, "Permission denied")

    kept = Kept(folder=tmp_path)
    kept.read(0, TOKENS)
    kept.release(0)
    kept.tiers.settle()
    monkeypatch.setattr(Archive, "delete", stuck)
    assert kept.cache.order(Order("clear"))["left"] == 0
    assert kept.said.getvalue().count("file not deleted") == kept.tiers.moved["undeleted"] > 0
    assert kept.tiers.saved() == 0 and kept.read(0, TOKENS) == 0
    kept.check()


def test_one_process_at_a_time_has_a_folder(tmp_path):
    code = "import sys, pathlib; from strata.state.lock import FolderLock; "
    code += "print(FolderLock.take(pathlib.Path(sys.argv[1])) is not None, flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(tmp_path)]
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environ, text=True, **pipes) as other:
        assert other.stdout.readline() == "True\n"
        assert FolderLock.take(tmp_path) is None
        other.kill()  # however it ends
        other.wait()
    taken = FolderLock.take(tmp_path)
    assert taken is not None and FolderLock.take(tmp_path) is None
    taken.release()
    taken.release()
    again = FolderLock.take(tmp_path)
    assert again is not None
    again.release()
    assert complaints(archive(tmp_path)) == ([], []), "the lock is no conversation"


def test_what_the_writer_has_no_place_for_is_written_with_the_next_order(tmp_path, monkeypatch):
    gate, plain = threading.Event(), Archive.write

    def slow(self, *parts):
        gate.wait(20)
        return plain(self, *parts)

    monkeypatch.setattr(writer, "MOST_WAITING", 1)
    monkeypatch.setattr(Archive, "write", slow)
    kept = Kept(folder=tmp_path)
    kept.read(0, TOKENS)
    kept.release(0)
    waiting = sum(node.writing for node in kept.cache.tree.nodes())
    assert 1 <= waiting <= 2
    kept.check()
    gate.set()
    while any(node.writing for node in kept.cache.tree.nodes()):
        kept.tiers.poll()
    assert kept.cache.order(Order("save"))["writing"] >= 1
    kept.cache.close()
    kept.check()


def test_a_file_of_another_prefix_under_this_name_is_not_believed(tmp_path):
    """Negative control: with the name's check out of the way, the wrong tokens would be believed."""
    made, one, other = archive(tmp_path), node_of(range(7)), node_of(range(1, 8))
    made.write(other, *blobs())
    made.path(other.key).rename(made.path(one.key))
    assert complaints(made) == ([], ["its name is not that of its tokens"])
    assert isinstance(one, Node) and FIXED.size + DIGEST == 44
