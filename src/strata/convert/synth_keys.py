"""The keys of a random model: sizes, hash constants, and a byte-level tokenizer with ChatML markers."""

from strata.checkpoint.typed import Typed, ValueType, array, f32, flag, string, u32
from strata.convert.shapes import Shape

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def ngram_sizes(s: Shape) -> list[int]:
    """Primes from `ngram_base` on, one per hash head (8 or 2 heads per n-gram order, orders 2 and 3)."""
    sizes: list[int] = []
    heads, n = 16 if s.ngram_base > 1000 else 4, s.ngram_base
    while len(sizes) < heads:
        if all(n % d for d in range(2, int(n**0.5) + 1)):
            sizes.append(n)
        n += 1
    return sizes


def synth_keys(s: Shape) -> dict[str, Typed]:
    """The keys that llama.cpp's and our loaders read."""
    a = s.arch
    keys = {
        "general.architecture": string(a),
        "general.name": string(f"random {a}"),
        f"{a}.block_count": u32(s.layers),
        f"{a}.context_length": u32(s.context),
        f"{a}.embedding_length": u32(s.hidden),
        f"{a}.feed_forward_length": u32(s.width * s.top_k),
        f"{a}.attention.head_count": u32(s.heads),
        f"{a}.attention.head_count_kv": u32(s.kv_heads),
        f"{a}.attention.key_length": u32(s.head_dim),
        f"{a}.attention.value_length": u32(s.head_dim),
        f"{a}.attention.layer_norm_rms_epsilon": f32(1e-6),
        f"{a}.rope.freq_base": f32(s.theta),
        f"{a}.expert_count": u32(s.experts),
        f"{a}.expert_used_count": u32(s.top_k),
        f"{a}.expert_feed_forward_length": u32(s.width),
        f"{a}.vocab_size": u32(s.vocabulary),
    }
    if s.shared:
        keys |= {
            f"{a}.expert_shared_feed_forward_length": u32(s.shared),
            f"{a}.rope.dimension_count": u32(s.rotary),
            f"{a}.ssm.conv_kernel": u32(4),
            f"{a}.ssm.state_size": u32(s.key_dim),
            f"{a}.ssm.group_count": u32(s.key_heads),
            f"{a}.ssm.time_step_rank": u32(s.value_heads),
            f"{a}.ssm.inner_size": u32(s.value_heads * s.key_dim),
            f"{a}.full_attention_interval": u32(s.interval),
        }
    if a in ("qwen35moe", "qwen4exp"):
        third = s.rotary // 6
        keys[f"{a}.rope.dimension_sections"] = array(ValueType.INT32, [s.rotary // 2 - 2 * third, third, third, 0])
    return keys | (exp_keys(s) if s.streams else {}) | tokenizer_keys(s.vocabulary)


def exp_keys(s: Shape) -> dict[str, Typed]:
    """Keys that only qwen4exp has; the hash multipliers are odd and small enough for any id."""
    a, sizes = s.arch, ngram_sizes(s)
    offsets = [sum(sizes[:i]) for i in range(len(sizes))]
    ratios = [4 if (i + 1) % s.interval == 0 else 0 for i in range(s.layers)]
    return {
        f"{a}.hyper_connection.count": u32(s.streams),
        f"{a}.hyper_connection.low_rank": u32(s.low_rank),
        f"{a}.attention.indexer.head_count": u32(s.index_heads),
        f"{a}.attention.indexer.key_length": u32(s.index_dim),
        f"{a}.attention.indexer.top_k": u32(s.index_budget),
        f"{a}.attention.compress_ratios": array(ValueType.UINT32, ratios),
        f"{a}.ple.layers": array(ValueType.UINT32, [1]),
        f"{a}.ple.ngram_size": u32(3),
        f"{a}.ple.heads_per_ngram": u32(len(sizes) // 2),
        f"{a}.ple.conv_kernel": u32(4),
        f"{a}.ple.eos_token_id": u32(s.vocabulary - 3),
        f"{a}.ple.layer_multipliers": array(ValueType.UINT64, [23703573157769, 20109073645365, 8052911324071]),
        f"{a}.ple.head_vocab_sizes": array(ValueType.UINT64, sizes),
        f"{a}.ple.head_offsets": array(ValueType.UINT64, offsets),
        f"{a}.embedding_length_per_layer_input": u32(s.ngram_row),
    }


def byte_letters() -> list[str]:
    """GPT-2's printable stand-in for each byte value."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(spare)) for b in range(256)]


def tokenizer_keys(vocabulary: int) -> dict[str, Typed]:
    """A byte-level tokenizer with one merge and ChatML markers, padded to `vocabulary`."""
    letters = byte_letters()
    tokens = [*letters, "Ġt"]
    tokens += [f"[unused{i}]" for i in range(len(tokens), vocabulary - len(SPECIAL))] + list(SPECIAL)
    types = [1] * 257 + [5] * (vocabulary - 257 - len(SPECIAL)) + [3] * len(SPECIAL)
    return {
        "tokenizer.ggml.model": string("gpt2"),
        "tokenizer.ggml.pre": string("qwen2"),
        "tokenizer.ggml.tokens": array(ValueType.STRING, tokens),
        "tokenizer.ggml.token_type": array(ValueType.INT32, types),
        "tokenizer.ggml.merges": array(ValueType.STRING, ["Ġ t"]),
        "tokenizer.ggml.eos_token_id": u32(vocabulary - 1),
        "tokenizer.ggml.padding_token_id": u32(vocabulary - 3),
        "tokenizer.ggml.add_bos_token": flag(False),
        "tokenizer.chat_template": string(CHATML),
    }
