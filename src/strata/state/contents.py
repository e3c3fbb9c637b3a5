"""The bytes behind pages and slots, to the host and back: named numpy arrays, so that nobody else needs torch."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from strata.state.blobs import blank
from strata.state.prefix import Blob
from strata.state.sequence import SequenceStates
from strata.state.staging import Arriving, Staging


class StateContents:
    """Implements `tiers.Contents` on the states of all slots."""

    def __init__(self, states: SequenceStates) -> None:
        self.states = states
        self.staging = Staging(states.memory.device)
        if states.memory.device.type == "cuda":
            self.staging.start()  # now, for no prompt shall wait for it
        self.page_sizes = {name: tensor[0].nbytes for name, tensor in states.planes()}
        """Bytes of a page by tensor."""
        self.state_sizes = {name: tensor[0].nbytes for name, tensor in states.recurrent()}
        """Bytes of a slot's recurrent state by tensor."""
        self.page_bytes = sum(self.page_sizes.values())
        self.state_bytes = sum(self.state_sizes.values())
        self.nbytes = states.pages.pages * self.page_bytes + len(states.length) * self.state_bytes
        """Of all pages and slots."""

    def host_bytes(self) -> dict[str, int]:
        """What pages and slots take of the host's memory: the system gives a page its bytes when it is first used."""
        if self.states.memory.device.type != "cpu":
            return {"pool": 0, "states": self.staging.nbytes}
        return {
            "pool": self.states.pages.used * self.page_bytes,
            "states": len(self.states.length) * self.state_bytes,
        }

    def gather(self, pages: Sequence[int]) -> Blob:
        """See `tiers.Contents`."""
        index = torch.tensor(pages, dtype=torch.int64)
        found = blank({name: len(pages) * size for name, size in self.page_sizes.items()})
        planes = self.states.planes()
        if self.states.memory.apart:
            there = index.to(self.states.memory.device)
            return Arriving(found, self.staging.bring((found[name], tensor[there]) for name, tensor in planes))
        for name, tensor in planes:
            torch.index_select(tensor, 0, index, out=typed(found[name], tensor, len(pages)))
        return found

    def scatter(self, pages: Sequence[int], blob: Blob) -> None:
        """See `tiers.Contents`."""
        index = torch.tensor(pages, dtype=torch.int64)
        for name, tensor in self.states.planes():
            tensor[index.to(tensor.device)] = typed(blob[name], tensor, len(pages)).to(tensor.device)

    def state_of(self, slot: int) -> Blob:
        """See `tiers.Contents`."""
        found = blank(self.state_sizes)
        states = [(name, tensor[slot : slot + 1]) for name, tensor in self.states.recurrent()]
        if self.states.memory.apart:
            return Arriving(found, self.staging.bring((found[name], tensor) for name, tensor in states))
        for name, tensor in states:
            typed(found[name], tensor, 1).copy_(tensor)
        return found

    def begin(self, slot: int, tokens: npt.NDArray[np.int64], state: Blob) -> None:
        """Let the cleared slot go on behind `tokens`, which lie on its pages, with `state`."""
        self.states.begin(slot, tokens, {name: torch.from_numpy(part) for name, part in state.items()})


def typed(part: npt.NDArray[np.uint8], tensor: torch.Tensor, rows: int) -> torch.Tensor:
    """The same bytes as `rows` rows of the type and shape that `tensor` has."""
    return torch.from_numpy(part).view(tensor.dtype).view(rows, *tensor.shape[1:])
