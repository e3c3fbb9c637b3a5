"""Which tensor is written in which format, and why."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from strata.convert.tensors import Item
from strata.core.errors import UsageError
from strata.quant.format import QuantFormat
from strata.quant.formats import FORMATS

SMALL = re.compile(
    r"(norm|norm_key|norm_query|norm_conv)\.weight$|ssm_a$|ssm_dt\.bias$|conv1d\.weight$|ffn_gate_inp(_shexp)?\.weight$|\.scale$"
)
"""Kept in F32: norms, decay rates, convolutions, routers (llama-quantize keeps the same ones)."""

FLOATS = ("F32", "F16", "BF16")
FALLBACK = ("Q8_0", "F16")
"""Tried in turn where a row does not fill the asked format's blocks."""


@dataclass(frozen=True, slots=True)
class Types:
    """The wishes: one format for all matrices, others for experts, the down projections, embeddings; then patterns."""

    base: str
    expert: str | None = None
    down: str | None = None
    embedding: str | None = None
    patterns: Sequence[tuple[str, str]] = ()
    """(regular expression, format); the last that matches wins over everything else."""

    def __post_init__(self) -> None:
        for name in (self.base, self.expert, self.down, self.embedding, *(f for _, f in self.patterns)):
            if name is not None and (name not in FORMATS or FORMATS[name].type_id < 0):
                known = ", ".join(sorted(n for n, f in FORMATS.items() if f.type_id >= 0 and f.kind != "data"))
                raise UsageError(f"--type {name}: not a format that GGUF can hold", f"one of {known}")


@dataclass(frozen=True, slots=True)
class Choice:
    """One tensor's format and the reason."""

    item: Item
    format: QuantFormat
    reason: str


def choose(item: Item, types: Types) -> Choice:
    """The format of one tensor."""
    wanted, reason = wish(item, types)
    fmt = FORMATS[wanted]
    if item.columns % fmt.block == 0:
        return Choice(item, fmt, reason)
    for name in FALLBACK:
        if item.columns % FORMATS[name].block == 0:
            why = f"rows of {item.columns} do not fill {wanted}'s blocks of {fmt.block}"
            return Choice(item, FORMATS[name], why)
    return Choice(item, FORMATS["F32"], f"rows of {item.columns} fill no block")


def wish(item: Item, types: Types) -> tuple[str, str]:
    """(format's name, reason) before the row length is considered."""
    for pattern, name in reversed(types.patterns):
        if re.search(pattern, item.name):
            return name, f"pattern {pattern}"
    if len(item.shape) == 1 or SMALL.search(item.name):
        return "F32", "small and sensitive"
    if "ffn_down_exps" in item.name and types.down:
        return types.down, "down projection of experts"
    if "_exps" in item.name and types.expert:
        return types.expert, "experts"
    if item.name in ("token_embd.weight", "output.weight", "per_layer_token_embd.weight") and types.embedding:
        return types.embedding, "embeddings"
    return types.base, "all matrices"
