"""A named set of tensors with typed metadata; implemented by `gguf.open_gguf` and `safetensors.open_folder`."""

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
        """Every tensor by its name in the file."""
        ...

    def bytes_of(self, ref: TensorRef) -> npt.NDArray[np.uint8]:
        """The tensor's bytes as a flat read-only view of the mapped file (no copy)."""
        ...
