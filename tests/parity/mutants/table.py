"""Every fault: what it is, where it can happen, which operation shows it first."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

from parity.mutants import layers, tensors
from parity.mutants import ops as altered

QWEN = ("qwen3_moe", "qwen3_next", "qwen3_5_moe", "qwen4_exp")
HYBRID = ("qwen3_next", "qwen3_5_moe", "qwen4_exp")
PLAIN_HYBRID = ("qwen3_next", "qwen3_5_moe")
TILED = ("qwen3_5_moe", "qwen4_exp")
EXP = ("qwen4_exp",)
EXPERTS = (*QWEN, "mixtral")
ALL = (*EXPERTS, "llama")


@dataclass(frozen=True)
class Fault:
    """A fault and the operation (without its layer) that must be named; a dict where that depends on the oracle."""

    name: str
    oracles: tuple[str, ...]
    op: str | dict[str, str]
    patch: Callable[[pytest.MonkeyPatch], None] = lambda patch: None
    ops: type[altered.Altered] = altered.Altered
    form: str = "gguf"

    def expected(self, oracle: str) -> str:
        """The operation for one oracle."""
        return self.op if isinstance(self.op, str) else self.op.get(oracle, self.op[""])


NORM = {"": "attn_norm", "qwen4_exp": "hyper_attn.read"}
LOG = tensors.vectors(("ssm_a",), lambda a: -torch.log(-a))
FAULTS = (
    Fault("zero-centred norms used without the +1", HYBRID, NORM, tensors.vectors(tensors.NORMS, lambda w: w - 1)),
    Fault("plain norms used as 1 + w", ("qwen3_moe", "llama"), NORM, tensors.vectors(tensors.NORMS, lambda w: w + 1)),
    Fault("+1 on the delta net's norm too", HYBRID, "delta_net", tensors.vectors(("ssm_norm",), lambda w: w + 1)),
    Fault("query and gate rows as two halves", HYBRID, "attention.q", layers.query_and_gate_as_halves),
    Fault("the other rotary layout", ALL, "attention.q", ops=altered.OtherRopeLayout),
    Fault("rotary over the whole head", HYBRID, "attention.q", layers.rotary_over_the_whole_head),
    Fault("delta net: silu and sigmoid gate exchanged", HYBRID, "delta_net", ops=altered.OtherGate),
    Fault("delta net: gate before the norm", HYBRID, "delta_net", ops=altered.GateBeforeNorm),
    Fault("delta net: A_log without exp", HYBRID, "delta_net.decay", LOG),
    Fault("delta net: dt_bias dropped", HYBRID, "delta_net.decay", tensors.vectors(("ssm_dt.bias",), torch.zeros_like)),
    Fault("delta net: a and b swapped", HYBRID, "delta_net.beta", ops=altered.SwappedRates),
    Fault("delta net: no query scale", HYBRID, "delta_net", ops=altered.NoQueryScale),
    Fault("delta net: no l2 norm", HYBRID, "delta_net", ops=altered.NoL2Norm),
    Fault("delta net: no silu after the convolution", HYBRID, "delta_net.qkv", ops=altered.NoSiluAfterConvolution),
    Fault(
        "delta net: taps reversed",
        HYBRID,
        "delta_net.qkv",
        tensors.vectors(("ssm_conv1d",), lambda w: w.flip(-1).contiguous()),
    ),
    Fault("delta net: decay after the update", HYBRID, "delta_net", ops=altered.DecayAfterUpdate),
    Fault("delta net: read before the update", HYBRID, "delta_net", ops=altered.ReadBeforeUpdate),
    Fault("tiled everywhere but in the output projection", TILED, "delta_net", tensors.output_columns_grouped),
    Fault(
        "tiled everywhere but in A and dt",
        TILED,
        "delta_net.decay",
        tensors.vectors(("ssm_a", "ssm_dt.bias"), lambda v: tensors.grouped(v, 1)),
    ),
    Fault("experts: weights not renormalised", EXPERTS, "router", ops=altered.NoRenormalisation),
    Fault("experts: sigmoid router", EXPERTS, "router", ops=altered.SigmoidRouter),
    Fault("experts: gate and up swapped", EXPERTS, "moe", tensors.gate_and_up_swapped),
    Fault("experts: shared expert without its gate", HYBRID, "moe", layers.shared_expert_without_gate),
    Fault("streams: no / n before silu", EXP, "hyper_attn.read", layers.hyper_without_division_before_silu),
    Fault("streams: no / n in the injection", EXP, "hyper_attn.write", layers.hyper_injection(2.0, divide=False)),
    Fault("streams: injection without the 2", EXP, "hyper_attn.write", layers.hyper_injection(1.0, divide=True)),
    Fault("streams: sum for mean", EXP, "hyper_attn.read", ops=altered.SumOfStreams),
    # the first read sees equal streams, where one mean square is as good as four
    Fault("streams: one mean square for all", EXP, "hyper_ffn.read", ops=altered.OneStatisticForAllGroups),
    Fault("n-gram: one layer later", EXP, "ple.rows", layers.ngram_one_layer_later),
    Fault("n-gram: crosses an end of text", EXP, "ple.rows", layers.ngram_context(cut_at_end=False)),
    Fault("n-gram: start padded with 0", EXP, "ple.rows", layers.ngram_context(pad=0)),
    Fault("n-gram: longest heads first", EXP, "ple.rows", layers.ngram_longest_first),
    Fault("n-gram: convolution without dilation", EXP, "ple", ops=altered.NoDilation),
    Fault("n-gram: convolution input not normed", EXP, "ple", layers.ngram_convolution_input_not_normed),
    Fault("n-gram: no signed root", EXP, "ple", layers.ngram_without_signed_root),
    Fault("n-gram: only the convolution added", EXP, "ple", layers.ngram_convolution_only),
    Fault("selection: everything kept", EXP, "attention.selected", layers.dense_attention),
    Fault(
        "selection: keys normed and rotated before pooling",
        EXP,
        "attention.selected",
        ops=altered.KeysNormedBeforePooling,
    ),
    Fault(
        "selection: block rotated at its last token",
        EXP,
        "attention.selected",
        layers.block_position(lambda ratio, blocks, starts: starts + ratio - 1),
    ),
    Fault(
        "selection: block rotated at its number",
        EXP,
        "attention.selected",
        layers.block_position(lambda ratio, blocks, starts: blocks.clamp_min(0)),
    ),
    Fault("selection: no relu", EXP, "attention.selected", ops=altered.NoRelu),
    Fault("selection: tail dropped", EXP, "attention.selected", ops=altered.NoTail),
    Fault("selection: own block forced in", EXP, "attention.selected", ops=altered.OwnBlockForced),
)
"""The faults whose effect on the logits was measured when the formulas were written down."""

MORE = (
    Fault("no indexer at all", EXP, "attention.selected", layers.no_indexer),
    Fault("shared expert forgotten", HYBRID, "moe", layers.shared_expert_forgotten),
    Fault(
        "residual dropped after the mixer", ("llama", "qwen3_next"), "ffn_norm", layers.residual_dropped_after_the_mixer
    ),
    Fault("streams: written onto the normed ones", EXP, "hyper_attn.write", layers.hyper_write_onto_normed_streams),
    Fault("key heads paired the other way", HYBRID, "delta_net", ops=altered.OtherPairing),
    Fault("key heads paired the other way", HYBRID, "delta_net", ops=altered.OtherPairing, form="saved"),
    Fault("convolution forgets between steps", HYBRID, "delta_net.qkv", ops=altered.ForgetsColumns),
    Fault("n-gram convolution keeps three columns", EXP, "ple", ops=altered.ForgetsNgramColumns),
    Fault("delta net forgets between steps", HYBRID, "delta_net", ops=altered.ForgetsMemory),
    Fault("norm without +1", PLAIN_HYBRID, "attn_norm", tensors.rule("attn_norm", transform="plain"), form="saved"),
    Fault("norm without +1", EXP, "hyper_attn.read", tensors.rule("hc_attn_norm", transform="plain"), form="saved"),
    Fault("A_log as it is", HYBRID, "delta_net.decay", tensors.rule("ssm_a", transform="plain"), form="saved"),
    Fault("index rows swapped", EXP, "attention.selected", tensors.index_rows_swapped, form="saved"),
    Fault("qkvz as global parts", ("qwen3_next",), "delta_net.qkv", layers.packed_as_global_parts, form="saved"),
    Fault("ba as global halves", ("qwen3_next",), "delta_net.beta", layers.ba_as_global_halves, form="saved"),
)
"""Faults of wiring, of state between steps, and of reading safetensors."""
