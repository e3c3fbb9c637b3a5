"""The bytes behind pages and slots, to the host and back: named numpy arrays, so that nobody else needs torch."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from strata.state.prefix import Blob
from strata.state.sequence import SequenceStates


class StateContents:
    """Implements `tiers.Contents` on the states of all slots."""

    def __init__(self, states: SequenceStates) -> None:
        self.states = states
        self.page_sizes = {name: tensor[0].nbytes for name, tensor in states.planes()}
        """Bytes of a page by tensor."""
        self.state_sizes = {name: tensor[0].nbytes for name, tensor in states.recurrent()}
        """Bytes of a slot's recurrent state by tensor."""
        self.page_bytes = sum(self.page_sizes.values())
        self.state_bytes = sum(self.state_sizes.values())
        self.nbytes = states.pages.pages * self.page_bytes + len(states.length) * self.state_bytes
        """Of all pages and slots."""

    def gather(self, pages: Sequence[int]) -> Blob:
        """See `tiers.Contents`."""
        index = torch.tensor(pages, dtype=torch.int64)
        return {name: raw(tensor[index.to(tensor.device)]) for name, tensor in self.states.planes()}

    def scatter(self, pages: Sequence[int], blob: Blob) -> None:
        """See `tiers.Contents`."""
        index = torch.tensor(pages, dtype=torch.int64)
        for name, tensor in self.states.planes():
            rows = torch.from_numpy(blob[name]).view(tensor.dtype).view(len(pages), *tensor.shape[1:])
            tensor[index.to(tensor.device)] = rows.to(tensor.device)

    def state_of(self, slot: int) -> Blob:
        """See `tiers.Contents`."""
        return {name: raw(tensor[slot].clone()) for name, tensor in self.states.recurrent()}

    def begin(self, slot: int, tokens: npt.NDArray[np.int64], state: Blob) -> None:
        """Let the cleared slot go on behind `tokens`, which lie on its pages, with `state`."""
        self.states.begin(slot, tokens, {name: torch.from_numpy(part) for name, part in state.items()})


def raw(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    """The bytes of a tensor that nobody else uses, on the host."""
    found: npt.NDArray[np.uint8] = tensor.contiguous().cpu().view(-1).view(torch.uint8).numpy()
    return found
