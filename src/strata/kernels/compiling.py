"""Units of device kernels compiled ahead, on several threads, so that a first start does not stop at each of them."""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, as_completed

from strata.kernels.device_source import units
from strata.quant.formats import FORMATS

Told = Callable[[int, int], None]
"""(how many are compiled, of how many)"""

PROMPT_UNITS = ("prompt_", "delta_prompt")
"""Beginnings of the units that only prompts need: steps may begin without them."""
FOR_THE_HOST = ("probe", "attention_few", "attention_whole")
"""Units that no GPU launches as they are named: a test's, and those whose shape is compiled in when it is known
(`attention_few` for every shape at once takes NVRTC a minute)."""


def units_for(formats: Iterable[str]) -> list[str]:
    """The units that a model with weights of these formats may launch, those of steps first.

    Which of a format or of none are listed; what depends on a model's sizes too is compiled when it is first launched.
    """
    known = set(formats)
    codes = {f"STRATA_SUB={fmt.sub} STRATA_MINIMA={int(fmt.minima)}" for fmt in map(FORMATS.__getitem__, known)}
    wanted = [unit for unit in units() if unit not in FOR_THE_HOST and is_for(unit, known, codes)]
    return sorted(wanted, key=lambda unit: unit.startswith(PROMPT_UNITS))


def is_for(unit: str, formats: set[str], codes: set[str]) -> bool:
    """Whether the unit has no defines, or those of one of these formats (two of them) or kinds of codes."""
    _, _, defines = unit.partition(" ")
    if defines.startswith("STRATA_FORMAT="):
        return {define.partition("=")[2] for define in defines.split(" ")} <= formats
    if defines.startswith("STRATA_SUB="):
        return any(defines.startswith(code) for code in codes)
    return not defines


class Compiling:
    """Makes cubins ahead. What is asked for before its turn is made at once by the thread that asks.

    When the program ends, what is being made is awaited and nothing more is begun: a pool of concurrent.futures would
    work off its whole queue first (a minute after the answer of a first `strata run`).
    """

    def __init__(self, make: Callable[[str], bytes], workers: int) -> None:
        """`make` gives a unit's cubin, from any thread."""
        self.make = make
        self.workers = workers
        self.begun: dict[str, Future[bytes]] = {}
        self.waiting: deque[str] = deque()
        self.threads: list[threading.Thread] = []
        self.lock = threading.Lock()

    def begin(self, wanted: Iterable[str]) -> None:
        """Compile these, in this order, while the caller goes on."""
        with self.lock:
            new = [unit for unit in dict.fromkeys(wanted) if unit not in self.begun]
            self.begun |= {unit: Future() for unit in new}
            self.waiting += new
            self.threads = [thread for thread in self.threads if thread.is_alive()]
            for _ in range(min(self.workers - len(self.threads), len(self.waiting))):
                self.threads.append(threading.Thread(target=self._work, name="compiling"))
                self.threads[-1].start()

    def cubin(self, unit: str) -> bytes:
        """The unit's cubin; what `make` raises, when it did."""
        with self.lock:
            ahead = self.begun.get(unit)
        if ahead is None or ahead.cancel() or ahead.cancelled():
            return self.make(unit)
        return ahead.result()

    def wait(self, wanted: Iterable[str], told: Told) -> None:
        """Until these have been made; what `make` raises, when it did for one of them."""
        with self.lock:
            waited = [self.begun[unit] for unit in wanted if unit in self.begun]
        for done, ahead in enumerate(as_completed(waited), 1):
            if not ahead.cancelled():  # who asked for it meanwhile makes it
                ahead.result()
            told(done, len(waited))

    def _work(self) -> None:
        while threading.main_thread().is_alive():
            with self.lock:
                if not self.waiting:
                    return
                unit = self.waiting.popleft()
                ahead = self.begun[unit]
            if not ahead.set_running_or_notify_cancel():
                continue
            try:
                ahead.set_result(self.make(unit))
            except BaseException as error:  # noqa: BLE001 - whoever asks for the unit gets it
                ahead.set_exception(error)
