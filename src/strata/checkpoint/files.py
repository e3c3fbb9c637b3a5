"""The mapped files of one model, as every container offers them."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from strata.checkpoint.mapped import MappedFile
from strata.checkpoint.tensor import TensorRef
from strata.checkpoint.text import shown


class MappedFiles:
    """Bytes of tensors by where they lie; close it (or use `with`) to give the files back."""

    def __init__(self, files: Sequence[MappedFile]) -> None:
        self._files = {file.path: file for file in files}

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that holds tensors, in order."""
        return tuple(self._files)

    @property
    def file_bytes(self) -> dict[Path, int]:
        """The size of each file when it was opened."""
        return {path: file.size for path, file in self._files.items()}

    def bytes_of(self, ref: TensorRef) -> npt.NDArray[np.uint8]:
        """The tensor's bytes as a flat read-only view of the mapped file (no copy)."""
        return self._files[ref.file].view(ref.offset, ref.nbytes, f"tensor {shown(ref.name)}")

    def close(self) -> None:
        """Unmap the files; views that are still in use stay valid."""
        for file in self._files.values():
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
