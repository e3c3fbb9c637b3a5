"""The rendezvous on a device (csrc/device/rendezvous.h)."""

from dataclasses import dataclass

import torch

from strata.kernels.device import THREADS, Device, Kernel
from strata.kernels.device_addresses import floats
from strata.kernels.experts.gpu import Grouped, ungrouped
from strata.kernels.experts.table import ExpertTable
from strata.kernels.linear.launch import address_of
from strata.kernels.rendezvous.mailbox import Mailbox

PLACE = Kernel("rendezvous", "rendezvous_place", early=True)
CHOOSE_AND_PLACE = Kernel("route_place", "route_place", early=True)
COMBINE = Kernel("rendezvous", "rendezvous_combine", early=True)
POISONED = 2
"""Place in `Desk.encounter`."""
LEDGER = 12
"""Words of a layer's ledger: entries by way, distinct experts by way, those of the last call, its GPU and waiting
nanoseconds, calls."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What all calls of a device share. The device writes it; between steps the host may too."""

    mailbox: Mailbox
    encounter: torch.Tensor
    """int64 [5]"""
    ledger: torch.Tensor
    """int64 [layers, LEDGER]"""
    uses: torch.Tensor
    """int32 [layers, experts]: entries since the host set it back."""
    call: torch.Tensor
    """int64 [experts, words]: entries of the experts of the call under way; tier 0 where this device computes."""
    limit_ns: int
    """How long a call waits for the CPU."""

    @classmethod
    def of(cls, device: torch.device, mailbox: Mailbox, layers: int, experts: int, words: int, limit_ns: int) -> "Desk":
        """An empty one."""
        return cls(
            mailbox,
            torch.zeros(5, dtype=torch.int64, device=device),
            torch.zeros(layers, LEDGER, dtype=torch.int64, device=device),
            torch.zeros(layers, experts, dtype=torch.int32, device=device),
            torch.zeros(experts, words, dtype=torch.int64, device=device),
            limit_ns,
        )


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one layer's experts lie now, on the device."""

    entries: torch.Tensor
    """int64 [experts, words]; the tier says where the bytes lie (naive.Tier)."""
    share: torch.Tensor
    """int32 [most + 1]: of m missing experts so many go over PCIe."""


def place(
    device: Device,
    desk: Desk,
    layer: int,
    placement: Placement,
    x: torch.Tensor,
    ids: torch.Tensor,
    table: ExpertTable,
) -> tuple[torch.Tensor, Grouped]:
    """Sort the call's experts, fill `desk.call`, ask the CPU for its part.

    -> ways int32 [T, k] (naive.Way), and the pairs by expert that this device computes.

    x float32 [T, hidden] and ids int32 [T, k] are on the device, T and T * k within the mailbox's sizes, every id below
    the number of experts. `table`: `desk.call` with the sizes and formats of the layer's experts.
    """
    rows, top_k = ids.shape
    experts = len(placement.entries)
    ways, (grouped, more) = device.empty(rows, top_k, dtype=torch.int32), ungrouped(device, x, top_k, table)
    known = call_addresses(desk, layer, placement, x, ways, grouped)
    sizes = (rows, top_k, experts, x.shape[1], layer, *map(address_of, (grouped.inputs.by32, grouped.inputs.by16)))
    device.launch(PLACE, (1 + more, 1, 1), THREADS, 8 * (experts + grouped.pairs), ids.data_ptr(), *known, *sizes)
    return ways, grouped


@dataclass(frozen=True, slots=True)
class Chosen:
    """The choice for a row, ids int32 and weights float32 [1, k], and what `place` gives for it."""

    ids: torch.Tensor
    weights: torch.Tensor
    ways: torch.Tensor
    grouped: Grouped


def choose_and_place(
    device: Device,
    desk: Desk,
    layer: int,
    placement: Placement,
    x: torch.Tensor,
    logits: torch.Tensor,
    top_k: int,
    renormalise: bool,
    table: ExpertTable,
) -> Chosen:
    """Ops.route of logits float32 [1, experts], then `place` of the row x [1, hidden], in one launch."""
    experts = len(placement.entries)
    if logits.shape != (1, experts) or not 1 <= top_k <= experts:
        raise ValueError(
            f"choose_and_place: expected logits [1, {experts}] and top_k 1 .. {experts}, "
            f"found {list(logits.shape)} and {top_k}"
        )
    scores = floats(device, "choose_and_place: logits", logits, logits.shape)
    ids, ways = (device.empty(1, top_k, dtype=torch.int32) for _ in range(2))
    weights, (grouped, more) = device.empty(1, top_k), ungrouped(device, x, top_k, table)
    known = (scores, ids.data_ptr(), weights.data_ptr(), int(renormalise))
    call = call_addresses(desk, layer, placement, x, ways, grouped)
    sizes = (top_k, experts, x.shape[1], layer, *map(address_of, (grouped.inputs.by32, grouped.inputs.by16)))
    shared = 16 * experts + 8 * top_k
    device.launch(CHOOSE_AND_PLACE, (1 + more, 1, 1), THREADS, shared, *known, *call, *sizes)
    return Chosen(ids, weights, ways, grouped)


def call_addresses(
    desk: Desk, layer: int, placement: Placement, x: torch.Tensor, ways: torch.Tensor, grouped: Grouped
) -> tuple[int, ...]:
    """What the placing of a call reads and writes, in the order of the kernels' arguments."""
    box = desk.mailbox
    call = (x, placement.entries, placement.share, desk.call, ways, grouped.jobs, desk.encounter)
    counts = (desk.ledger[layer], desk.uses[layer])
    return tuple(tensor.data_ptr() for tensor in (*call, *counts, box.head, box.ids, box.x))


def combine(
    device: Device,
    desk: Desk,
    layer: int,
    outputs: torch.Tensor,
    weights: torch.Tensor,
    ways: torch.Tensor,
    y: torch.Tensor,
    last: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> None:
    """Wait for the CPU's part, if there is one, and add up all experts in rank order into y [T, hidden].

    outputs [T, k, hidden] holds what the device computed; weights [T, k]. `last`: own [T, hidden] and strength [T, 1];
    sigmoid(strength) * own is added last.
    """
    rows, top_k, hidden = outputs.shape
    box = desk.mailbox
    own, strength = (0, 0) if last is None else (last[0].data_ptr(), last[1].data_ptr())
    device.launch(
        COMBINE,
        (-(-hidden // THREADS), rows, 1),
        THREADS,
        0,
        outputs.data_ptr(),
        weights.data_ptr(),
        ways.data_ptr(),
        desk.encounter.data_ptr(),
        desk.ledger[layer].data_ptr(),
        box.head.data_ptr(),
        box.answers.data_ptr(),
        own,
        strength,
        y.data_ptr(),
        top_k,
        hidden,
        desk.limit_ns,
    )
