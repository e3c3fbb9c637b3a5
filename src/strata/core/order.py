"""What can be asked about memory, apart from any request."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Order:
    """What to do with conversations that no slot uses, or with the experts' VRAM."""

    verb: Literal["park", "restore", "save", "clear", "vram", "experts"]
    """park: all out of the pages; restore: what is held of `tokens` back into them; save: all to disk; clear: none
    is kept any more, on disk neither; vram: experts take up to `mib` MiB from now on; experts: the answer
    says where each of them is."""
    tokens: tuple[int, ...] = ()
    mib: int = 0
