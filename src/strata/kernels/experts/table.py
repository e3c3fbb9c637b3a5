"""Where the experts of a layer are, as device kernels read it (csrc/device/expert_table.h).

A table is int64 [experts, 10]; row e:

    0, 1, 2   addresses of the bytes of gate, up and down
    3, 4, 5   addresses of their planes of scales, 0 where a format has none
    6, 7, 8   the bits of the float32 factors of their products (Weight.scale)
    9         formats and tier: byte k is the number of the format (native.FORMAT_CODES) of matrix k; byte 3 is the
              tier, 0 when this device computes the expert, anything else when its results come from elsewhere

An address may be any that the device can read: its own memory, or host memory that is mapped for it. 16-byte lines
around the bytes are read as a whole. Only columns 0 .. 5 and the tier may change while programs exist that use the
table, and not while one runs.
"""

from dataclasses import dataclass

import torch

from strata.kernels.device import Device
from strata.kernels.linear.launch import bits
from strata.kernels.native import FORMAT_CODES, describe_bank
from strata.kernels.views import ExpertBank, Weight
from strata.quant.format import QuantFormat

COLUMNS = 10
TIER_SHIFT = 24
KINDS = ("gate", "up", "down")


@dataclass(frozen=True, slots=True)
class ExpertTable:
    """A table with what the host has to know of it; `formats[k]` are those of gate, up and down."""

    entries: torch.Tensor
    hidden: int
    width: int
    formats: tuple[tuple[QuantFormat, ...], tuple[QuantFormat, ...], tuple[QuantFormat, ...]]

    @property
    def fused(self) -> QuantFormat | None:
        """The one format of all gates and ups, if they have one."""
        gate, up, _ = self.formats
        return gate[0] if gate == up and len(gate) == 1 else None


def entry(weights: tuple[Weight, Weight, Weight], addresses: list[tuple[int, int]], tier: int = 0) -> list[int]:
    """A row of the table: an expert's gate, up and down with the addresses of their two planes."""
    codes = sum(FORMAT_CODES[weight.format.name] << 8 * kind for kind, weight in enumerate(weights))
    data, scales = [first for first, _ in addresses], [second for _, second in addresses]
    return [*data, *scales, *(bits(weight.scale) for weight in weights), codes | tier << TIER_SHIFT]


def table_of(device: Device, bank: ExpertBank) -> ExpertTable:
    """A table of all experts of `bank`, each copied to the device; ValueError when its matrices do not fit together."""
    describe_bank(bank)
    rows = []
    for weights in zip(bank.gate, bank.up, bank.down, strict=True):
        rows.append(entry(weights, [device.weight(weight) for weight in weights]))
    return described(device.resident(torch.tensor(rows, dtype=torch.int64)), bank)


def described(entries: torch.Tensor, bank: ExpertBank) -> ExpertTable:
    """A table of `bank` whose rows are already made."""
    gate, up, down = (
        tuple(dict.fromkeys(weight.format for weight in weights)) for weights in (bank.gate, bank.up, bank.down)
    )
    return ExpertTable(entries, bank.gate[0].cols, bank.gate[0].rows, (gate, up, down))
