"""Device copies of host tensors, made once and kept as long as their originals."""

import math
import weakref
from collections.abc import Sequence
from dataclasses import replace

import torch

from strata.kernels.native import describe, remember
from strata.kernels.views import Weight


class Residency:
    """Copies by the identity of what was copied; on the host's own memory nothing is copied."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._tensors: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}
        self._weights: dict[int, tuple[weakref.ref[Weight], Weight]] = {}
        self._counters: dict[int, torch.Tensor] = {}
        self._constants: dict[tuple[int, ...], torch.Tensor] = {}

    def tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """See Device.resident."""
        if tensor.device == self.device:
            return tensor
        known = self._tensors.get(id(tensor))
        return known[1] if known is not None else remember(self._tensors, tensor, tensor.to(self.device))

    def weight(self, weight: Weight) -> tuple[int, int]:
        """See Device.weight; errors as native.describe."""
        known = self._weights.get(id(weight))
        if known is None:
            describe(weight)
            here = replace(weight, planes=tuple(plane.to(self.device) for plane in weight.planes))
            remember(self._weights, weight, here)
            known = self._weights[id(weight)]
        planes = known[1].planes
        return planes[0].data_ptr(), planes[1].data_ptr() if len(planes) > 1 else 0

    def leave(self, weight: Weight, planes: tuple[torch.Tensor, ...]) -> None:
        """The weight's bytes are `planes`, in the host's memory that the device reads in place."""
        describe(weight)
        remember(self._weights, weight, replace(weight, planes=planes))

    def constants(self, values: Sequence[int]) -> torch.Tensor:
        """See Device.constants."""
        key = tuple(values)
        if key not in self._constants:
            self._constants[key] = torch.tensor(key, dtype=torch.int64, device=self.device)
        return self._constants[key]

    def counters(self, count: int) -> torch.Tensor:
        """See Device.counters."""
        if count not in self._counters:
            self._counters[count] = torch.zeros(count, dtype=torch.int32, device=self.device)
        return self._counters[count]

    @property
    def nbytes(self) -> int:
        """Bytes of all copies on the device."""
        copies = [copy for _, copy in self._tensors.values()]
        copies += [plane for _, weight in self._weights.values() for plane in weight.planes]
        return sum(math.prod(copy.shape) * copy.element_size() for copy in copies if copy.device == self.device)
