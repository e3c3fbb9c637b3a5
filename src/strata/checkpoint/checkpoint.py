"""A named set of tensors with typed metadata; `locate.open_checkpoint` gives one for a path."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from strata.checkpoint.metadata import Metadata
from strata.checkpoint.tensor import TensorRef


class Checkpoint(Protocol):
    """Headers of a model, and its bytes on demand."""

    @property
    def path(self) -> Path:
        """What the user named: the first file of a split, or the folder."""
        ...

    @property
    def kind(self) -> Literal["gguf", "safetensors"]:
        """Which container, and so which tensor names and conventions."""
        ...

    @property
    def metadata(self) -> Metadata:
        """GGUF key-values, or config.json (text_config merged up) with dotted keys for nested objects."""
        ...

    @property
    def tensors(self) -> Mapping[str, TensorRef]:
        """Every tensor by the name that loaders use (each TensorRef has its name in the file).

        They differ only in safetensors folders, where `language_model.` is stripped and `model.visual.*` left out.
        """
        ...

    def bytes_of(self, ref: TensorRef) -> npt.NDArray[np.uint8]:
        """The tensor's bytes as a flat read-only view of the mapped file (no copy)."""
        ...
