"""Units of device kernels compiled ahead, on several threads, so that a first start does not stop at each of them."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed

from strata.kernels.device_source import units
from strata.quant.formats import FORMATS

Told = Callable[[int, int], None]
"""(how many are compiled, of how many)"""

PROMPT_UNITS = ("prompt_", "delta_prompt", "attention_whole", "attention_list", "select_prompt")
"""Beginnings of the units that only prompts need: steps may begin without them."""


def units_for(formats: Iterable[str]) -> list[str]:
    """The units that a model with weights of these formats may launch, those of steps first.

    Which of a format or of none are listed; what depends on a model's sizes too is compiled when it is first launched.
    """
    known = set(formats)
    codes = {f"STRATA_SUB={fmt.sub} STRATA_MINIMA={int(fmt.minima)}" for fmt in map(FORMATS.__getitem__, known)}
    wanted = [unit for unit in units() if unit != "probe" and is_for(unit, known, codes)]
    return sorted(wanted, key=lambda unit: unit.startswith(PROMPT_UNITS))


def is_for(unit: str, formats: set[str], codes: set[str]) -> bool:
    """Whether the unit has no defines, or those of one of these formats or kinds of codes."""
    _, _, defines = unit.partition(" ")
    if defines.startswith("STRATA_FORMAT="):
        return defines.removeprefix("STRATA_FORMAT=") in formats
    if defines.startswith("STRATA_SUB="):
        return any(defines.startswith(code) for code in codes)
    return not defines


class Compiling:
    """Makes cubins ahead. What is asked for before its turn is made at once by the thread that asks."""

    def __init__(self, make: Callable[[str], bytes], workers: int) -> None:
        """`make` gives a unit's cubin, from any thread."""
        self.make = make
        self.pool = ThreadPoolExecutor(workers, "compiling")
        self.begun: dict[str, Future[bytes]] = {}
        self.lock = threading.Lock()

    def begin(self, wanted: Iterable[str]) -> None:
        """Compile these, in this order, while the caller goes on."""
        with self.lock:
            for unit in wanted:
                if unit not in self.begun:
                    self.begun[unit] = self.pool.submit(self.make, unit)

    def cubin(self, unit: str) -> bytes:
        """The unit's cubin; what `make` raises, when it did."""
        with self.lock:
            ahead = self.begun.get(unit)
        if ahead is None or ahead.cancel():
            return self.make(unit)
        return ahead.result()

    def wait(self, wanted: Iterable[str], told: Told) -> None:
        """Until these have been made; what `make` raises, when it did for one of them."""
        with self.lock:
            waited = [self.begun[unit] for unit in wanted if unit in self.begun and not self.begun[unit].cancelled()]
        for done, ahead in enumerate(as_completed(waited), 1):
            if not ahead.cancelled():  # who asked for it meanwhile makes it
                ahead.result()
            told(done, len(waited))

    def close(self) -> None:
        """Begin nothing more."""
        self.pool.shutdown(wait=False, cancel_futures=True)
