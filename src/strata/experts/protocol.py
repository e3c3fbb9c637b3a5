"""What a layer sees of its experts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from strata.experts.map import ExpertMap
from strata.kernels.ops import Ops


@dataclass(frozen=True, slots=True)
class SharedOutput:
    """What an expert that every token visits gives, behind its gate: it is added last."""

    own: torch.Tensor
    """[T, hidden]"""
    strength: torch.Tensor
    """[T, 1], before the sigmoid"""
    ready: Callable[[], None]
    """To be called before work that reads `own` is asked for."""

    def add(self, ops: Ops, y: torch.Tensor) -> torch.Tensor:
        """y + sigmoid(strength) * own, one fma per value."""
        self.ready()
        return ops.stream_add(y, self.own, self.strength, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Choosing:
    """What a router gives for the rows of a call, float32 [T, experts], and how experts are chosen by it."""

    logits: torch.Tensor
    top_k: int
    renormalise: bool

    def chosen(self, ops: Ops) -> tuple[torch.Tensor, torch.Tensor]:
        """(ids int32, weights float32), each [T, top_k]; see Ops.route."""
        return ops.route(self.logits, self.top_k, self.renormalise)


class Experts(Protocol):
    """The routed experts of all layers, wherever each of them is computed."""

    def run(
        self,
        layer: int,
        x: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
        shared: SharedOutput | None = None,
    ) -> torch.Tensor:
        """Sum over k in rank order of weights[t, k] * expert_{ids[t, k]}(x_t), then what is `shared`.

        x float32 [T, hidden]; ids int32 [T, k]; weights float32 [T, k] -> [T, hidden]. The result does not depend on
        where an expert's bytes lie.
        """
        ...

    def choose_and_run(
        self, ops: Ops, layer: int, x: torch.Tensor, choosing: Choosing, shared: SharedOutput | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(What `run` gives for the experts that are chosen; their ids and weights, as the router would have them)."""
        ...

    def prefetch(self, forecast: Sequence[tuple[int, int]]) -> None:
        """Likely (layer, expert) pairs of the next step; a hint that never changes a result."""
        ...

    def wait_s(self) -> float:
        """Seconds that an expert of a step is expected to be waited for before it can be read, where `prefetch` could
        have brought it: 0 when all are at hand.
        """
        ...

    def waited_s(self, layers: Sequence[int]) -> float:
        """Seconds for which the last call of each of `layers` waited for experts that were computed elsewhere."""
        ...

    def begin_step(self, rows: int) -> None:
        """The host is about to start a step of `rows` rows: the last moment to change what it reads."""
        ...

    def end_step(self) -> None:
        """The step has ended and its results are there. EngineError: some of them are not."""
        ...

    def resize(self, budget_bytes: int) -> int:
        """Let experts take up to so many bytes of VRAM from now on, between steps -> bytes they take.

        UnsupportedError: they lie in no VRAM.
        """
        ...

    def map(self) -> ExpertMap:
        """Every expert's place and uses, between steps."""
        ...

    def status(self) -> dict[str, object]:
        """Plain values for people and metrics; empty when there is nothing to say."""
        ...
