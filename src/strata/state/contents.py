"""The bytes behind pages and slots, to the host and back: named numpy arrays, so that nobody else needs torch."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from strata.state.blobs import blank
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

    def host_bytes(self) -> dict[str, int]:
        """What pages and slots take of the host's memory: the system gives a page its bytes when it is first used."""
        if not all(tensor.is_cpu for _, tensor in (*self.states.planes(), *self.states.recurrent())):
            return {"pool": 0, "states": 0}
        return {
            "pool": self.states.pages.used * self.page_bytes,
            "states": len(self.states.length) * self.state_bytes,
        }

    def gather(self, pages: Sequence[int]) -> Blob:
        """See `tiers.Contents`."""
        index = torch.tensor(pages, dtype=torch.int64)
        found = blank({name: len(pages) * size for name, size in self.page_sizes.items()})
        for name, tensor in self.states.planes():
            target = typed(found[name], tensor, len(pages))
            if tensor.is_cpu:
                torch.index_select(tensor, 0, index, out=target)
            else:
                target.copy_(tensor[index.to(tensor.device)])
        return found

    def scatter(self, pages: Sequence[int], blob: Blob) -> None:
        """See `tiers.Contents`."""
        index = torch.tensor(pages, dtype=torch.int64)
        for name, tensor in self.states.planes():
            tensor[index.to(tensor.device)] = typed(blob[name], tensor, len(pages)).to(tensor.device)

    def state_of(self, slot: int) -> Blob:
        """See `tiers.Contents`."""
        found = blank(self.state_sizes)
        for name, tensor in self.states.recurrent():
            typed(found[name], tensor, 1).copy_(tensor[slot : slot + 1])
        return found

    def begin(self, slot: int, tokens: npt.NDArray[np.int64], state: Blob) -> None:
        """Let the cleared slot go on behind `tokens`, which lie on its pages, with `state`."""
        self.states.begin(slot, tokens, {name: torch.from_numpy(part) for name, part in state.items()})


def typed(part: npt.NDArray[np.uint8], tensor: torch.Tensor, rows: int) -> torch.Tensor:
    """The same bytes as `rows` rows of the type and shape that `tensor` has."""
    return torch.from_numpy(part).view(tensor.dtype).view(rows, *tensor.shape[1:])
