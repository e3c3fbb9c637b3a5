"""From what a user names to a path: the demo, a file, a folder, or a model on the hub."""

import time
from pathlib import Path

from strata.checkpoint.demo import model_path
from strata.core.log import Log
from strata.hub.cached import find
from strata.hub.download import Said
from strata.hub.hub import Hub
from strata.hub.name import hub_name

PROGRESS_EVERY_S = 3.0


def local_path(model: str | Path | None, hub: Hub, said: Said) -> Path:
    """Where the model is; a hub's name that the cache does not hold is downloaded first.

    `said` hears of the progress. StrataError when it cannot be had.
    """
    name = hub_name(model) if isinstance(model, str) else None
    if name is None:
        return model_path(model)
    return find(hub.cache, name) or hub.pull(name, said)


def logged(log: Log) -> Said:
    """Tells `log` how far a download is, a line every few seconds."""
    last = [time.monotonic()]

    def said(what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - last[0] >= PROGRESS_EVERY_S:
            last[0] = now
            log.info("downloading", file=what, done_mib=done >> 20, total_mib=total >> 20)

    return said
