"""From what a user names to a path: the demo, a file, a folder, or a model on the hub."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strata.checkpoint.demo import model_path
from strata.core.log import Log
from strata.hub.name import Said, hub_name

if TYPE_CHECKING:
    from strata.hub.hub import Hub


def local_path(model: str | Path | None, said: Said, hub: "Hub | None" = None) -> Path:
    """Where the model is; a hub's name that the cache does not hold is downloaded first.

    `said` hears of the progress. StrataError when it cannot be had. The hub's client is loaded for such a name only: it
    takes a third of a second, and most starts name a file.
    """
    name = hub_name(model) if isinstance(model, str) else None
    if name is None:
        return model_path(model)
    client: Any = importlib.import_module("strata.hub.hub").Hub() if hub is None else hub
    path: Path = client.find(name) or client.pull(name, said)
    return path


def logged(log: Log) -> Said:
    """Tells `log` how far a download is."""
    return lambda file, done, total: log.progress(f"downloading {file}", done, total)
