"""What a step writes down of windows that may be cut short, so that their first rows can be run into the states.

A recurrent state cannot be cut at a row. So it is held as it was while such a window runs; the rows that come to count
are run once more from their saved inputs, by the same kernel: the bits are those of a window that was never longer.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from strata.kernels.step_program import StepProgram
from strata.state.memory import Mirror


@dataclass(slots=True)
class LayerJournal:
    """Inputs of one layer's recurrences for all rows of the step."""

    conv: torch.Tensor | None = None
    """[T, channels] before the convolution of the delta net."""
    rule: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None
    """qkv, beta, decay of the delta rule."""
    ngram: torch.Tensor | None = None
    """[T, channels] before the convolution of the n-gram embedding."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A recorded run of a journal's rows, and where it reads which rows count."""

    program: StepProgram
    segments: Mirror
    listed: npt.NDArray[np.int32]
    """Where the host writes them: [runs, 3]."""


@dataclass(slots=True)
class Journal:
    """Of one step."""

    layers: list[LayerJournal]
    lasting: bool = False
    """Whether later steps write at the same addresses: then a replay is worth recording."""
    replays: dict[int, Replay] = field(default_factory=dict)
    """By the number of windows."""
    ran: set[int] = field(default_factory=set)
    """Numbers of windows that were replayed op by op, where recording needs that."""


@dataclass(slots=True)
class OpenWindow:
    """A slot's window between reserve and commit: its rows in the step, and whether its state is held."""

    first_row: int
    rows: int
    held: bool
    """Not held, it is committed whole (it can still not be rolled back)."""
