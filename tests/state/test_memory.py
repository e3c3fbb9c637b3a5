"""What the host writes and what operations read, apart from each other as on a device."""

import torch

from state.tiny import LAYOUTS, Tiny, difference, memory
from strata.core.window import Window
from strata.state.memory import HOST, Memory, Mirror
from strata.state.sequence import SequenceStates

APART = Memory(torch.device("cpu"), apart=True)
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8] * 8


def outputs(where: Memory) -> tuple[list[torch.Tensor], SequenceStates]:
    """Two slots in turn over several pages, a window that is cut, and a slot restored into another."""
    tiny, states = Tiny(), SequenceStates(LAYOUTS, 3, 192, memory=where)
    tiny.extend(states, 0, TOKENS, 40)
    tiny.extend(states, 1, TOKENS[5:], 31)
    found = [tiny.run(states, [Window(0, 96, (1, 2, 3), 3), Window(1, 91, (7,), 1)])]
    states.commit(0, 2, tiny.ops)
    states.commit(1, 1, tiny.ops)
    states.restore(2, states.snapshot(0))
    found.append(tiny.run(states, [Window(2, 98, (4, 4), 1), Window(0, 98, (4, 4), 1)], keep=False))
    for slot in (0, 2):
        states.commit(slot, 2, tiny.ops)
    return found, states


def test_on_the_host_both_sides_are_one_tensor():
    mirror = HOST.mirror(3, dtype=torch.int32)
    assert mirror.device is mirror.host
    mirror.publish()


def test_apart_the_device_sees_what_was_published():
    mirror = APART.mirror(2, 3, dtype=torch.int32)
    mirror.host[:] = 7
    assert not mirror.device.any()
    mirror.publish((1, slice(1, 3)))
    assert mirror.device.tolist() == [[0, 0, 0], [0, 7, 7]]
    mirror.publish()
    assert mirror.device.tolist() == mirror.host.tolist()


def test_states_apart_give_the_same_bits():
    (together, one), (apart, two) = outputs(HOST), outputs(APART)
    assert all(torch.equal(a, b) for a, b in zip(together, apart, strict=True))
    assert not any(difference(memory(one, slot), memory(two, slot)) for slot in range(3))


def test_a_copy_that_is_missing_is_seen(monkeypatch):
    """Negative control."""
    expected, _ = outputs(APART)
    monkeypatch.setattr(Mirror, "publish", publish_some)
    found, _ = outputs(APART)
    assert not all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


def publish_some(self: Mirror, at: object = slice(None)) -> None:
    """All but the second page of each slot."""
    if at != (0, slice(1, 2)):
        self.device[at] = self.host[at]
