"""What the process holds of the host's memory, by what it is for: the parts add up to what the system counts."""

from collections.abc import Callable, Mapping
from pathlib import Path

STATUS = Path("/proc/self/status")
FIELDS = {"RssAnon": "anonymous", "RssFile": "files", "RssShmem": "shared"}


def resident(status: Path = STATUS) -> dict[str, int]:
    """Bytes in memory by kind, as Linux tells them; elsewhere none.

    `anonymous` is the process's own; `files` are mapped (the model, libraries) and can be read again; `shared` is
    shared memory.
    """
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return {}
    found = (line.split() for line in lines if line.partition(":")[0] in FIELDS)
    return {FIELDS[name.rstrip(":")]: int(count) << 10 for name, count, *_ in found}


class HostMemory:
    """The parts that are counted, and what is left of the process's own memory besides them."""

    def __init__(
        self, parts: Callable[[], Mapping[str, int]], resident: Callable[[], Mapping[str, int]] = resident
    ) -> None:
        """Made when the model is loaded and nothing has run: what is held besides the parts then is the base."""
        self.parts = parts
        self.resident = resident
        self.base = self.resident().get("anonymous", 0) - sum(parts().values())

    def values(self) -> Mapping[str, int]:
        """Bytes by use; all but `files` and `shared` add up to the anonymous memory. Empty where nobody counts it.

        `base` is what was held before the first step (the interpreter, libraries, weights that are not read from the
        file where it lies); `rest` is what has come since and is none of the parts, or went (then it is negative).
        """
        found = dict(self.resident())
        if "anonymous" not in found:
            return {}
        parts = self.parts()
        rest = found.pop("anonymous") - self.base - sum(parts.values())
        return {"base": self.base, **parts, "rest": rest, **found}
