"""What was learned about a model's experts, kept for its next start.

A small JSON file per model: how often each expert was used, relative to its most used one. A profile is a hint: one
that is damaged, of another version or of another model is ignored with a warning, and the start is as without one.
"""

import json
import os
import tempfile
from pathlib import Path

import numpy as np

from strata.core.log import Log
from strata.experts.adaptive import Counts

VERSION = 1
LARGEST = 1_000_000
"""What the most used expert's count is written as."""


class Profile:
    """The file of one model. `model` identifies its weights: the same name means the same experts."""

    def __init__(self, folder: Path, model: str, layers: int, experts: int, log: Log) -> None:
        self.path = folder / f"{model}.json"
        self.model = model
        self.shape = (layers, experts)
        self.log = log

    def load(self) -> Counts | None:
        """The counts [layers, experts] with `LARGEST` at the most used, or None when nothing usable is there."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            self._ignored(error)
            return None
        try:
            return decode(text, self.model, self.shape)
        except ValueError as error:
            self._ignored(error)
            return None

    def save(self, counts: Counts) -> None:
        """Replace the file, whole or not at all. A folder that cannot be written costs a warning."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)
            temporary = Path(name)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(encode(counts, self.model))
                temporary.replace(self.path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        except OSError as error:
            self.log.warning("profile not saved", file=self.path, reason=error)

    def _ignored(self, reason: Exception) -> None:
        self.log.warning("profile ignored", file=self.path, reason=reason)


def encode(counts: Counts, model: str) -> str:
    """The file's text."""
    most = float(counts.max(initial=0.0))
    scaled = np.rint(counts * (LARGEST / most) if most > 0 else counts).astype(np.int64)
    return json.dumps({"version": VERSION, "model": model, "counts": scaled.tolist()}, separators=(",", ":"))


def decode(text: str, model: str, shape: tuple[int, int]) -> Counts:
    """The counts of a file's text; ValueError says why it is of no use."""
    found = json.loads(text)
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise ValueError(f"not a profile of version {VERSION}")
    if found.get("model") != model:
        raise ValueError(f"it belongs to model {str(found.get('model'))[:20]!r}")
    try:
        counts = np.array(found.get("counts"), np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError("its counts are no table of numbers") from error
    if counts.shape != shape or not np.isfinite(counts).all() or (counts < 0).any():
        raise ValueError(f"expected counts of {shape[0]} layers and {shape[1]} experts, found {counts.shape}")
    return counts
