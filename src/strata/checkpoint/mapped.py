"""One file of a checkpoint, mapped into memory and read-only."""

import mmap
import stat
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from strata.core.errors import CheckpointError


class MappedFile:
    """The bytes of `path`; `size` is what the file held when it was opened.

    Views that were handed out stay valid after `close`: the mapping goes when the last of them does.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            mode = path.stat().st_mode
            if not stat.S_ISREG(mode):
                kind = "a folder" if stat.S_ISDIR(mode) else "neither a file nor a folder"
                raise CheckpointError(f"{path}: expected a file, found {kind}")
            with path.open("rb") as file:
                self.size = file.seek(0, 2)
                if self.size == 0:
                    raise CheckpointError(f"{path}: the file is empty", hint="download it again")
                self._map: mmap.mmap | None = mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            # ValueError: a NUL in the name, or a file that shrank between seek and mmap
            raise CheckpointError(f"{path}: cannot be opened: {error}") from error
        self._bytes: npt.NDArray[np.uint8] | None = np.frombuffer(self._map, dtype=np.uint8)

    def view(self, offset: int, nbytes: int, what: str) -> npt.NDArray[np.uint8]:
        """`nbytes` bytes from `offset` on, without a copy; `what` names them in errors.

        A mapped page that lies behind the end of its file kills the process when it is touched, so the file's
        present size is asked each time: a file that was cut after opening gives a CheckpointError here.
        """
        if self._map is None or self._bytes is None:
            raise CheckpointError(f"{self.path}: {what}: the checkpoint is closed")
        if offset < 0 or nbytes < 0 or offset + nbytes > self.size:
            raise CheckpointError(
                f"{self.path}: {what}: expected bytes within the file's {self.size}, found {offset} and {nbytes} more"
            )
        present = self._map.size()
        if present < self.size:
            raise CheckpointError(
                f"{self.path}: {what}: the file had {self.size} bytes when it was opened and has {present} now"
            )
        return self._bytes[offset : offset + nbytes]

    def close(self) -> None:
        """Give the mapping back (at once, or when the last view of it is gone)."""
        self._bytes = None
        mapping, self._map = self._map, None
        if mapping is None:
            return
        try:
            mapping.close()
        except BufferError:
            # views are still in use: their reference keeps the mapping alive, and dropping ours lets it go with them
            return

    def __enter__(self) -> "MappedFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
