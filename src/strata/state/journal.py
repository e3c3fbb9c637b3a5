"""What a window that may be cut short must keep to redo its first rows.

Recurrent states cannot be cut at a row: they are set back to where the window began and the accepted rows are run
again from their saved inputs. The same kernel runs them, so the bits are those of a window that was never longer.
"""

from dataclasses import dataclass, field

import torch


@dataclass(slots=True)
class LayerJournal:
    """Inputs of one layer's recurrences for all rows of the step."""

    conv: torch.Tensor | None = None
    """[T, channels] before the convolution of the delta net."""
    rule: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None
    """qkv, beta, decay of the delta rule."""
    ngram: torch.Tensor | None = None
    """[T, channels] before the convolution of the n-gram embedding."""


@dataclass(slots=True)
class Backup:
    """One slot's recurrent tensors as they were before the open window, per layer."""

    conv: dict[int, torch.Tensor] = field(default_factory=dict)
    delta: dict[int, torch.Tensor] = field(default_factory=dict)
    ngram: dict[int, torch.Tensor] = field(default_factory=dict)


@dataclass(slots=True)
class OpenWindow:
    """A slot's window between reserve and commit: its rows in the step, and how to go back."""

    first_row: int
    rows: int
    backup: Backup | None
    """None for a window that is committed whole (it can still not be rolled back)."""
