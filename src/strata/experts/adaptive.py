"""Which experts deserve a frame: uses counted with decay, and swaps with hysteresis. Pure.

A byte of VRAM saves as much traffic as its expert is used, whatever the expert's size and layer. So experts of all
layers compete by their count of uses alone, and the budget moves to the layers where it serves most.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strata.experts.frames import Frames, Owner

Counts = npt.NDArray[np.float64]
"""[layers, experts]; rows of layers without experts are 0."""


@dataclass(frozen=True, slots=True)
class AdaptSettings:
    """The adaptive tier's knobs."""

    every: int = 16
    """Steps between two rounds; 0: the start stays."""
    swaps: int = 32
    """Most swaps of a round: what is copied takes bandwidth from the steps."""
    decay: float = 0.8
    """What a count keeps from one round to the next."""
    min_gain: float = 0.3
    """How much more than the one that leaves (and one use more) a newcomer must have been used."""
    asynchronous: bool = True
    """Copies run beside the steps, and count when they have landed."""

    def __post_init__(self) -> None:
        if self.every < 0 or self.swaps < 0:
            raise ValueError(f"rounds every {self.every} steps with {self.swaps} swaps")
        if not 0.0 <= self.decay <= 1.0 or self.min_gain < 0.0:
            raise ValueError(f"a decay of {self.decay} and a gain of {self.min_gain}")


@dataclass(frozen=True, slots=True)
class Swap:
    """`newcomer` gets the frame of `leaver`, or free space when there is none to leave."""

    newcomer: Owner
    leaver: Owner | None


class Usage:
    """Uses of every expert, recent ones weighing more."""

    def __init__(self, start: Counts, decay: float) -> None:
        self.counts = start.astype(np.float64, copy=True)
        self.decay = decay

    def add(self, uses: npt.NDArray[np.integer]) -> None:
        """A round's uses [layers, experts]."""
        self.counts *= self.decay
        self.counts += uses


def hottest(counts: Counts, sizes: npt.NDArray[np.int64]) -> Iterator[Owner]:
    """All experts, the most used first. `sizes` [layers]: 0 where there are none.

    Equal ones come expert by expert, so that nothing known spreads a budget over the layers.
    """
    order = np.argsort(-counts.T, axis=None, kind="stable")
    for flat in order:
        expert, layer = divmod(int(flat), len(counts))
        if sizes[layer]:
            yield layer, expert


def choose_swaps(
    counts: Counts,
    frames: Frames,
    framed: npt.NDArray[np.bool_],
    sizes: npt.NDArray[np.int64],
    settings: AdaptSettings,
    busy: Collection[Owner],
) -> list[Swap]:
    """The round's swaps: the most used misses against the least used residents. `frames` is left as it is.

    `framed` [layers, experts] marks those that `frames` holds; of `busy` ones it may say either. Marks are kept where
    frames change: to go through 24,000 names took 5 ms of a round.

    `busy` experts neither come nor go. No resident is proposed twice, and a newcomer fits where its leaver lies (two
    that count on the same free space beside it may not both). Misses that fit into free space need no gain.
    """
    available = np.broadcast_to((sizes > 0)[:, None], counts.shape).copy()
    if not (available & ~framed & (counts > 0.0)).any():
        return []
    for owner in busy:
        available[owner] = False
    looked_at = 4 * settings.swaps
    cold = _extremes(counts, available & framed, looked_at)
    found: list[Swap] = []
    room = max((run.nbytes for runs in frames.free.values() for run in runs), default=0)
    for owner in _extremes(-counts, available & ~framed & (counts > 0.0), looked_at):
        if len(found) == settings.swaps:
            break
        nbytes = int(sizes[owner[0]])
        if nbytes <= room:
            found.append(Swap(owner, None))
            room -= nbytes
            continue
        limit = counts[owner] / (1.0 + settings.min_gain) - 1.0
        leaver = next((c for c in cold if counts[c] >= limit or frames.fits_in_place_of(c, nbytes)), None)
        if leaver is not None and counts[leaver] < limit:
            cold.remove(leaver)
            found.append(Swap(owner, leaver))
    return found


def _extremes(values: Counts, among: npt.NDArray[np.bool_], most: int) -> list[Owner]:
    """The `most` smallest values among the marked, smallest first; ties by layer and expert."""
    flat = np.flatnonzero(among)
    chosen = values.reshape(-1)[flat]
    if len(flat) > most:
        near = np.argpartition(chosen, most)[:most]
        flat, chosen = flat[near], chosen[near]
    return [_owner(values, i) for i in flat[np.lexsort((flat, chosen))]]


def _owner(counts: Counts, flat: np.integer) -> Owner:
    layer, expert = divmod(int(flat), counts.shape[1])
    return layer, expert
