"""Which tensor is written in which format, and why not the one that was asked for."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from strata.convert.names import WRITABLE, format_named
from strata.convert.tensors import Item
from strata.core.errors import UsageError
from strata.quant.encode import needs_importance
from strata.quant.format import QuantFormat
from strata.quant.formats import FORMATS

SMALL = re.compile(
    r"(norm|norm_key|norm_query|norm_conv)\.weight$|ssm_a$|ssm_dt\.bias$|conv1d\.weight$|ffn_gate_inp(_shexp)?\.weight$"
    r"|rope_freqs\.weight$"
)
"""Kept in F32: norms, decay rates, convolutions, routers (llama-quantize keeps the same ones)."""

PRECISE = re.compile(r"(^|\.)(output_hc|hc_attn|hc_ffn|hc_head)_(down|up|inject)\.weight$|indexer\.[qk]_proj\.weight$"
                     r"|ssm_(alpha|beta|ba)\.weight$")  # fmt: skip
"""Hyper-connections, indexer, delta-net gates: 2% of a model's bytes; published low-bit files hold them in BF16."""

EMBEDDINGS = ("token_embd.weight", "output.weight", "per_layer_token_embd.weight")

NARROWER = {
    "IQ1_S": "IQ4_NL", "IQ1_M": "IQ4_NL", "IQ2_XXS": "IQ4_NL", "IQ2_XS": "IQ4_NL", "IQ2_S": "IQ4_NL",
    "IQ3_XXS": "IQ4_NL", "IQ3_S": "IQ4_NL", "IQ4_XS": "IQ4_NL", "NVFP4": "IQ4_NL", "Q2_0": "IQ4_NL",
    "Q2_K": "IQ4_NL", "Q3_K": "IQ4_NL", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0",
    "TQ1_0": "Q4_0", "TQ2_0": "Q4_0",
}  # fmt: skip
"""Format of shorter blocks, at least as precise, for rows that do not fill the asked format's (mostly llama.cpp's
choice, tensor_type_fallback)."""

HEAD_BITS = 6.5625
"""The vocabulary projection gets at least Q6_K's bits, as in llama-quantize's files."""


@dataclass(frozen=True, slots=True)
class Types:
    """The wishes: one format for all matrices, others for experts, down projections, embeddings, drafting layers."""

    base: str
    expert: str | None = None
    down: str | None = None
    """ffn_down_exps; `expert` where absent."""
    embedding: str | None = None
    drafting: str | None = None
    patterns: Sequence[tuple[str, str]] = ()
    """(regular expression, format); the last that matches wins over everything else."""

    def __post_init__(self) -> None:
        for name in (self.base, self.expert, self.down, self.embedding, self.drafting, *(f for _, f in self.patterns)):
            if name is not None and name not in WRITABLE:
                format_named("--type", name)
        for pattern, _ in self.patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise UsageError(f"--tensor-type {pattern!r}: no regular expression: {error}") from error


@dataclass(frozen=True, slots=True)
class Choice:
    """One tensor's format."""

    item: Item
    format: QuantFormat
    asked: str
    """The format that was asked for."""
    wish: str
    """The option that asked, e.g. "--down-type"."""
    reason: str = ""
    """Why the format is another one, or how it is weighed; empty where there is nothing to say."""

    @property
    def copied(self) -> bool:
        """Whether the source's bytes are taken as they are."""
        return self.item.native is not None and self.item.native.format == self.format

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return self.item.count // self.item.columns * self.format.row_bytes(self.item.columns)


def choose_all(items: Sequence[Item], types: Types) -> list[Choice]:
    """The format of every tensor; UsageError when a wish concerns none."""
    tied = all(item.name != "output.weight" for item in items)
    choices = [choose(item, types, tied) for item in items]
    check_all_used(types, choices)
    return choices


def choose(item: Item, types: Types, tied: bool = False) -> Choice:
    """The format of one tensor; `tied`: the embedding is the vocabulary projection too."""
    asked, wish = wished(item, types)
    head = "token_embd.weight" if tied else "output.weight"
    name, reason = kept(item, asked, wish, item.name == head)
    if item.columns % FORMATS[name].block:
        name, reason = filled(item, name)
    return Choice(item, FORMATS[name], asked, wish, reason)


def wished(item: Item, types: Types) -> tuple[str, str]:
    """(format's name, the option that asks for it)."""
    for pattern, name in reversed(types.patterns):
        if re.search(pattern, item.name):
            return name, f"--tensor-type {pattern}"
    if item.drafting and types.drafting:
        return types.drafting, "--mtp-type"
    if "_exps." in item.name:
        if "ffn_down_exps." in item.name and types.down:
            return types.down, "--down-type"
        if types.expert:
            return types.expert, "--expert-type"
    if item.name in EMBEDDINGS and types.embedding:
        return types.embedding, "--embedding-type"
    return types.base, "--type"


def kept(item: Item, asked: str, wish: str, head: bool) -> tuple[str, str]:
    """(format, reason): what stays precise although a lower format was asked for."""
    by_name = wish.startswith("--tensor-type")
    if len(item.shape) == 1 or "conv1d" in item.name:
        return "F32", "" if asked == "F32" else "vectors and convolutions stay F32"
    if by_name:
        return asked, ""
    if SMALL.search(item.name):
        return "F32", "" if asked == "F32" else "routers stay F32"
    if FORMATS[asked].kind == "float" or asked == "Q8_0":
        return asked, ""
    if PRECISE.search(item.name):
        return "BF16", "hyper-connections, indexers and delta-net gates stay BF16"
    bits = 8 * FORMATS[asked].block_bytes / FORMATS[asked].block
    if head and wish == "--type" and bits < HEAD_BITS:
        return "Q6_K", "the vocabulary projection gets Q6_K (--embedding-type changes it)"
    if item.name == "token_embd.weight" and wish == "--type" and needs_importance(FORMATS[asked]):
        return "IQ3_S", f"embeddings are looked up, so nothing weighs {asked}'s columns (--embedding-type changes it)"
    return asked, ""


def filled(item: Item, name: str) -> tuple[str, str]:
    """(format, reason): the first one whose blocks the rows fill."""
    why = f"rows of {item.columns} do not fill {name}'s blocks of {FORMATS[name].block}"
    for other in (NARROWER.get(name, "Q8_0"), "Q8_0", "F16"):
        if item.columns % FORMATS[other].block == 0:
            return other, why
    raise AssertionError("F16 has blocks of one value")


def check_all_used(types: Types, choices: Sequence[Choice]) -> None:
    """UsageError when a wish concerns no tensor: an option that does nothing is a mistake."""
    wishes = {c.wish for c in choices}
    asked = {
        "--expert-type": (types.expert, "the model has no experts that no other option names"),
        "--down-type": (types.down, "the model has no experts"),
        "--embedding-type": (types.embedding, "no embedding is left for it"),
        "--mtp-type": (types.drafting, "the model has no drafting layer"),
    }
    for option, (name, why) in asked.items():
        if name is not None and option not in wishes:
            raise UsageError(f"{option} {name}: nothing to do: {why}")
    for pattern, name in types.patterns:
        if not any(re.search(pattern, c.item.name) for c in choices):
            raise UsageError(
                f"--tensor-type {pattern}={name}: no tensor's name matches", "strata inspect lists the names"
            )
