"""One process at a time writes into a folder of kept conversations."""

import fcntl
import os
from pathlib import Path

NAME = "lock"


class FolderLock:
    """Held by this object from `take` to `release`; the system releases it when the process ends in whatever way."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, folder: Path) -> "FolderLock | None":
        """The lock of an existing folder; None when somebody else has it."""
        descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        return cls(descriptor)

    def release(self) -> None:
        """Let others have it; a second time does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
