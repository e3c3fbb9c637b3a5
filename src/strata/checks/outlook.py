"""A prospect in words: places, speeds with their reasons, and what would help. Pure but for the types it reads."""

from collections.abc import Sequence
from dataclasses import dataclass

from strata.checks.prospect import Prospect
from strata.experts.traces import ADVERSE, TYPICAL
from strata.plan.forecast import prompt_seconds, step_seconds
from strata.plan.vram import choose_arena
from strata.state.pages import PAGE

GIB = 1 << 30
CROWD = 4
PROMPT = 4096

Row = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a person sees."""

    places: Sequence[Row]
    """(part, size, where)"""
    speeds: Sequence[Row]
    """(what, about how fast, what that is known from)"""
    rates: dict[str, float]
    """Tokens per second by name."""
    advice: Sequence[str]


def outlook(found: Prospect) -> Outlook:
    """Everything about a prospect."""
    rates = rates_of(found)
    return Outlook(places_of(found), speeds_of(found, rates), rates, advice_of(found))


def places_of(found: Prospect) -> list[Row]:
    """What lies where."""
    sizes, plan, states = found.sizes, found.plan, states_of(found)
    total = sizes.experts + sizes.dense + sizes.tables
    ram = "RAM, mapped from the file" if total <= found.machine.memory_bytes else "disk, as far as RAM does not hold it"
    if found.vram_bytes is None:
        return [
            ("routed experts", size(sizes.experts), ram),
            ("dense weights, read by every step", size(sizes.dense), ram),
            ("embeddings and n-grams, a few rows a step", size(sizes.tables), ram),
            (f"conversations: {plan.slots} slots, {plan.pages} pages of {PAGE} tokens", size(states), "RAM"),
        ]
    arena = arena_of(found)
    share = arena / max(1, sizes.experts)
    return [
        ("routed experts", size(arena), f"VRAM: {share:.0%} of them, the most used"),
        ("", size(sizes.experts - arena), "RAM: read over PCIe or computed by the CPU"),
        ("dense weights, read by every step", size(sizes.dense), "VRAM"),
        ("embeddings and n-grams, a few rows a step", size(sizes.tables), "pinned RAM"),
        (f"conversations: {plan.slots} slots, {plan.pages} pages of {PAGE} tokens", size(states), "VRAM"),
    ]


def states_of(found: Prospect) -> int:
    """Bytes of all conversations."""
    plan, work = found.plan, found.work
    return plan.pages * PAGE * work.token_bytes + plan.slots * work.sequence_bytes


def arena_of(found: Prospect) -> int:
    """Bytes of VRAM that experts get behind weights and conversations; UsageError for more than there is."""
    left = (found.vram_bytes or 0) - found.sizes.dense - states_of(found)
    return choose_arena(left, found.sizes.experts, found.wishes.vram_gib, found.wishes.vram_reserve_mib)[0]


def rates_of(found: Prospect) -> dict[str, float]:
    """Tokens per second that the CPU will reach; none where experts come from the disk or a GPU works, too."""
    if found.vram_bytes is not None or not fits(found):
        return {}
    work, rates, context = found.work, found.rates, found.plan.context
    deep, prompt = context // 2, min(PROMPT, context)
    return {
        "decode": 1 / step_seconds(work, rates, 1, 0),
        "decode deep": 1 / step_seconds(work, rates, 1, deep),
        "decode crowd": CROWD / step_seconds(work, rates, CROWD, 0),
        "prompt": prompt / prompt_seconds(work, rates, prompt, found.plan.chunk),
    }


def speeds_of(found: Prospect, rates: dict[str, float]) -> list[Row]:
    """Speeds with their reasons."""
    work, plan = found.work, found.plan
    dense = sum(work.dense.values())
    step = dense + work.layers * work.top_k * work.expert_bytes
    rows = [
        (
            "bytes that a step reads",
            f"{step / 1e9:.2f} GB",
            f"{dense / 1e9:.2f} dense, {work.layers} x {work.top_k} of {work.experts} experts of "
            f"{work.expert_bytes / 1e6:.2f} MB",
        )
    ]
    if rates:
        memory = f"{found.machine.threads} threads read {found.rates.read_gbs:.1f} GB/s here"
        rows += [
            ("decode, one stream", f"{rates['decode']:.1f} tok/s", f"bytes by the rates of their formats; {memory}"),
            (
                f"decode behind {plan.context // 2} tokens",
                f"{rates['decode deep']:.1f} tok/s",
                f"{plan.context // 2 * work.token_bytes / 1e6:.0f} MB of keys and values more",
            ),
            (
                f"decode, {CROWD} streams together",
                f"{rates['decode crowd']:.1f} tok/s",
                f"{work.distinct(CROWD):.0f} distinct experts a step when drawn alike; trained models share more",
            ),
            ("prompt", f"{rates['prompt']:.0f} tok/s", "multiply-adds by format, attention not counted"),
        ]
    if found.vram_bytes is not None:
        rows += hits(found)
    each = plan.context * work.token_bytes + work.sequence_bytes
    rows.append(
        ("one more slot", size(each), f"at {plan.context} tokens; {size(work.sequence_bytes)} whatever its length")
    )
    return rows


def hits(found: Prospect) -> list[Row]:
    """How often experts will be in VRAM."""
    share = arena_of(found) / max(1, found.sizes.experts)
    return [
        (
            "experts found in VRAM",
            f"{TYPICAL.hits(share):.0%}",
            f"{share:.0%} of them are there; a trained model's favourites, {ADVERSE.hits(share):.0%} with hardly any",
        )
    ]


def fits(found: Prospect) -> bool:
    """Whether all weights can lie in free memory."""
    sizes = found.sizes
    return sizes.experts + sizes.dense + sizes.tables <= found.machine.memory_bytes


def advice_of(found: Prospect) -> list[str]:
    """What would help, as sentences."""
    said = []
    sizes, work = found.sizes, found.work
    if not fits(found):
        total = sizes.experts + sizes.dense + sizes.tables
        said.append(
            f"the weights need {size(total)} and {size(found.machine.memory_bytes)} of RAM are free: with fewer bits a "
            "weight, or more RAM, experts would not be read from disk again and again"
        )
    state = found.plan.context * work.token_bytes
    step = sum(work.dense.values()) + work.layers * work.top_k * work.expert_bytes
    kept = next((choice.value for choice in found.plan.choices if choice.name == "kv_type"), "")
    if kept == "f32" and state > step:
        said.append("--kv-type bf16 halves what long conversations keep and read; it rounds what is written")
    if found.vram_bytes is not None:
        said.append("strata bench decode measures this card's speed with this model")
    if found.disturbed:
        said.append("other processes were busy while rates were measured: strata calibrate on a quiet machine")
    return said


def size(nbytes: float) -> str:
    """In GiB, or MiB when it is small."""
    return f"{nbytes / GIB:.1f} GiB" if nbytes >= GIB else f"{nbytes / (1 << 20):.1f} MiB"
