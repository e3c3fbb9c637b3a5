"""Counts of where experts were computed, from three independent places. Pure.

The device counts what it sorts, the answering thread what it computes, and both must agree; the sum over the ways must
be rows x top-k of every call.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strata.kernels.rendezvous.answerer import Answer
from strata.kernels.rendezvous.naive import Way


@dataclass(frozen=True, slots=True)
class LastCall:
    """A layer's last call, as the device saw it."""

    misses: int
    """Distinct experts without a frame."""
    over_pcie: int
    gpu_seconds: float
    wait_seconds: float


class Counters:
    """The device's ledger (int64 [layers, 12], csrc/device/rendezvous.h) beside what the host counted."""

    def __init__(self, layers: int, top_k: int) -> None:
        self.top_k = top_k
        self.ledger = np.zeros((layers, 12), np.int64)
        self.cpu_entries = np.zeros(layers, np.int64)
        self.cpu_experts = np.zeros(layers, np.int64)
        self.rows = np.zeros(layers, np.int64)
        """Rows of all calls of each layer, counted by the host as it made them."""

    def answered(self, answers: Iterable[Answer]) -> None:
        """Take note of what the answering thread did."""
        for answer in answers:
            self.cpu_entries[answer.layer] += answer.entries
            self.cpu_experts[answer.layer] += answer.experts

    @property
    def entries(self) -> npt.NDArray[np.int64]:
        """[layers, 3]: (row, rank) pairs by way, as the device sorted them."""
        return self.ledger[:, 0:3]

    @property
    def experts(self) -> npt.NDArray[np.int64]:
        """[layers, 3]: distinct experts by way, each counted once per call."""
        return self.ledger[:, 3:6]

    def missing(self) -> npt.NDArray[np.int64]:
        """[layers]: distinct experts without a frame in each layer's last call."""
        return self.ledger[:, 7] + self.ledger[:, 8]

    def last(self, layer: int) -> LastCall:
        """The layer's last call."""
        _, pcie, cpu, gpu_ns, wait_ns = (int(v) for v in self.ledger[layer, 6:11])
        return LastCall(pcie + cpu, pcie, gpu_ns * 1e-9, wait_ns * 1e-9)

    def disagreement(self) -> str:
        """Where the places that count do not agree; empty when they do. Only between steps."""
        for layer in range(len(self.ledger)):
            device, host = int(self.entries[layer, Way.CPU]), int(self.cpu_entries[layer])
            if device != host:
                return f"layer {layer}: the device left {device} entries to the CPU, which computed {host}"
            if self.experts[layer, Way.CPU] != self.cpu_experts[layer]:
                return f"layer {layer}: {self.experts[layer, Way.CPU]} experts left, {self.cpu_experts[layer]} computed"
            total, expected = int(self.entries[layer].sum()), int(self.rows[layer]) * self.top_k
            if total != expected:
                return f"layer {layer}: {total} entries were sorted, {expected} were routed"
        return ""

    def bytes_by_way(self, sizes: Mapping[int, int]) -> dict[str, int]:
        """Bytes of experts read by way; `sizes` of one expert by layer."""
        per_layer = np.array([sizes.get(layer, 0) for layer in range(len(self.ledger))], np.int64)
        totals = (self.experts * per_layer[:, None]).sum(axis=0)
        return {name: int(total) for name, total in zip(("vram", "pcie", "cpu"), totals, strict=True)}
