"""The memory in use on the GPU, as nvidia-smi tells it, while something runs."""

import subprocess
from threading import Event, Thread


class VramWatch:
    """In MiB; None where nvidia-smi does not tell."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.ended = Event()
        self.thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "VramWatch":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()

    @property
    def peak_mib(self) -> int | None:
        """The most that was seen."""
        return max(self.seen, default=None)

    def _watch(self) -> None:
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        while not self.ended.wait(0.2):
            try:
                said = subprocess.run(query, capture_output=True, text=True, check=True, timeout=5)
                self.seen.append(int(said.stdout.split()[0]))
            except (OSError, subprocess.SubprocessError, ValueError, IndexError):
                return
