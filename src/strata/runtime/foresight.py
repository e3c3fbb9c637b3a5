"""Tells the experts what the next step will probably read, by its drafts, where that pays.

It pays where experts are not at hand: a forecast costs some microseconds an expert, a page that has to come from a
disk holds up all threads. So how long an expert is expected to be waited for is asked now and then; as long as all are
there, nothing is foretold or learned.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from strata.core.window import Window
from strata.experts.forecast import Forecast
from strata.experts.protocol import Experts

EVERY = 128
"""Steps between two looks at whether experts have to be waited for."""
FORECAST_S = 10e-6
"""What an expert costs that is foretold, on threads that have other work."""
START, FAST = 0.5, 0.1
"""Share of the foretold experts that are read, before any was; weight of a step in it."""


class Foresight:
    """Of one engine."""

    def __init__(self, experts: Experts, layers: Sequence[int]) -> None:
        """`layers`: numbers of the trunk's layers with experts, in order."""
        self.experts = experts
        self.layers = tuple(layers)
        self.forecast = Forecast()
        self.steps = 0
        self.wait_s = 0.0
        """That an expert of a step is expected to be waited for."""
        self.right = START
        self.foretold: list[tuple[int, int]] = []

    @property
    def pays(self) -> bool:
        """Whether an expert that is foretold saves more than it costs."""
        return self.wait_s * self.right > FORECAST_S

    def before(self, windows: Sequence[Window]) -> None:
        """A step of these windows is about to run."""
        if self.steps % EVERY == 0:
            self.wait_s = self.experts.wait_s()
        self.steps += 1
        self.foretold = []
        if self.pays and (tokens := [token for w in windows if w.checks_drafts for token in w.tokens]):
            self.foretold = self.forecast.of(tokens)
            self.experts.prefetch([(self.layers[layer], expert) for layer, expert in self.foretold])

    def after(self, windows: Sequence[Window], routed: Mapping[int, torch.Tensor]) -> None:
        """The step has run; `routed` by layer: int32 [T, k] of all its rows."""
        if not self.pays:
            return
        ids = np.stack([routed[layer].numpy() for layer in self.layers])
        if self.foretold:
            read = {(layer, expert) for layer, rows in enumerate(ids) for expert in np.unique(rows).tolist()}
            right = sum(pair in read for pair in self.foretold) / len(self.foretold)
            self.right += (right - self.right) * FAST
        self.forecast.learn([token for window in windows for token in window.tokens], ids)

    def values(self) -> dict[str, object]:
        """The decision and what it goes by, as plain values."""
        return {"pays": self.pays, "wait_us": round(1e6 * self.wait_s, 3), "right": round(self.right, 3)}
