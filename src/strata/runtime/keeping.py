"""From settings to a prefix cache on the states of all slots."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from strata import __version__
from strata.core.errors import UsageError
from strata.core.log import Log
from strata.state.archive import SUFFIX, Archive, digest
from strata.state.cache import PrefixCache
from strata.state.contents import StateContents
from strata.state.lock import FolderLock
from strata.state.pages import PAGE
from strata.state.prefix import PrefixTree
from strata.state.sequence import SequenceStates
from strata.state.stops import Spacing
from strata.state.tiers import Disk, Tiers
from strata.state.writer import Writer

GRID = 32
"""Where a prompt may be cut so that its state is kept: the grain to which chunks are cut beside streams, so that a stop
there costs no further window. Any other number gives the same bits on a CPU; a device with an arithmetic of its own for
prompts needs a multiple of its blocks (docs/numerics.md)."""


@dataclass(frozen=True, slots=True)
class OnDisk:
    """Where conversations survive the process."""

    folder: Path
    budget: int
    """Bytes."""
    model: str
    """Which model's they are."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """What is kept of sequences that were read, and for how long."""

    pages: int | None = None
    """Pages that all slots and kept prefixes share; None = as many as the slots can fill."""
    ram_bytes: int = 1 << 30
    """For recurrent states, and for pages that had to leave the pool."""
    spacing: Spacing = field(default=Spacing(GRID, 8 * PAGE))
    disk: OnDisk | None = None
    log: Log = field(default_factory=Log)
    """Hears of files that cannot be used, of what gives way, and of who waits for pages."""
    ahead: int = 8
    """Pages that a sequence is promised behind its prompt, before it has to ask for more."""


def identity_of(model: str, contents: StateContents, states: SequenceStates, spacing: Spacing) -> bytes:
    """Names everything that a kept byte depends on: model, arithmetic, types, shapes, grid."""
    facts: Mapping[str, object] = {
        "model": model,
        "version": __version__,
        "device": states.memory.device.type,
        "kv_type": states.kv_type,
        "page": PAGE,
        "grid": spacing.grid,
        "pages": contents.page_sizes,
        "state": contents.state_sizes,
        "layouts": repr(states.layouts),
    }
    return digest(json.dumps(facts, sort_keys=True).encode())


def disk_of(wished: OnDisk, key: bytes, contents: StateContents, rewrites: int, log: Log) -> Disk | None:
    """The folder of this identity; None, with a warning, while another process has it.

    UsageError when there can be no such folder.
    """
    folder = wished.folder / key.hex()
    try:
        archive = Archive(folder, key, contents.page_sizes, contents.state_sizes, PAGE, rewrites)
        lock = FolderLock.take(folder)
        tell_others(wished.folder, folder, log)
    except OSError as error:
        raise UsageError(
            f"--state-dir {wished.folder}: conversations cannot be kept there: {error.strerror}",
            "name a folder that can be written to, or leave --state-disk-gib out",
        ) from error
    if lock is None:
        log.warning("conversations are not kept on disk", folder=folder, reason="another process uses this folder")
        return None
    return Disk(archive, Writer(archive, contents.gather), wished.budget, lock)


def tell_others(folder: Path, own: Path, log: Log) -> None:
    """Say what lies there of other models, other settings or other versions, for nobody else will."""
    for other in sorted(folder.iterdir()):
        files = [*other.glob(f"*{SUFFIX}")] if other.is_dir() and other != own else []
        if files:
            log.info(
                "kept conversations not used",
                folder=other,
                files=len(files),
                mib=sum(file.stat().st_size for file in files if file.exists()) >> 20,
                reason="of another model, other settings or another version",
            )


def prefix_cache(states: SequenceStates, keeping: Keeping) -> tuple[PrefixCache, StateContents]:
    """The cache, and the way its bytes go."""
    contents = StateContents(states)
    disk, key = None, b"memory only"
    if keeping.disk is not None:
        key = identity_of(keeping.disk.model, contents, states, keeping.spacing)
        disk = disk_of(keeping.disk, key, contents, states.pages.rewrites, keeping.log)
    tree = PrefixTree(PAGE, bool(contents.state_bytes), key, states.pages.rewrites)
    tiers = Tiers(tree, states.pages, contents, keeping.ram_bytes, disk, keeping.log)
    states.reclaim = tiers.reclaim
    return PrefixCache(tiers, keeping.spacing, keeping.ahead), contents
