"""One frozen answer to "what goes where, and why". Pure: from numbers to numbers."""

from dataclasses import dataclass
from typing import Literal

from strata.core.errors import UsageError
from strata.plan.machine import Machine
from strata.plan.pool import StateRoom, StateSizes, check_context, choose_context, choose_pages, choose_slots

DEFAULT_SLOTS = 4
SHARE_FOR_STATES = 0.5
"""Part of the available memory that "auto" gives to sequence states."""
STEP_TOKENS = 512


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """What a model needs."""

    context: int
    """Tokens it was trained for."""
    token_bytes: int
    """State per token of context."""
    sequence_bytes: int
    """State per sequence, whatever its length."""
    expert_bytes: int
    kv_type: str = "f32"
    """What keys and values are kept as; `token_bytes` counts them so."""
    bf16_token_bytes: int = 0
    """State per token of context with a bf16 cache."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One setting with the value it got, and why."""

    name: str
    value: int | str
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that was decided."""

    slots: int
    requested_slots: int
    slots_reason: str
    context: int
    pages: int
    """Of the caches, shared by all slots."""
    chunk: int
    step_tokens: int
    arena: bool
    choices: tuple[Choice, ...]


def make_plan(
    machine: Machine,
    sizes: ModelSizes,
    context: int | None,
    slots: int | Literal["auto"],
    chunk: int | Literal["auto"],
    ram_gib: float | None,
    states: StateRoom | None = None,
) -> Plan:
    """Resolve every "auto"; UsageError for a wish that cannot be met. States lie in the host's memory unless told."""
    if states is None:
        states = host_states(machine)
    wanted = DEFAULT_SLOTS if slots == "auto" else slots
    state = StateSizes(sizes.token_bytes, sizes.sequence_bytes, sizes.context)
    tokens, context_reason = choose_context(state, context, wanted, states)
    check_context(state, tokens, states)
    serving, slots_reason = choose_slots(state, tokens, wanted, slots == "auto", states)
    pages, pages_reason = choose_pages(state, tokens, serving, states)
    size = STEP_TOKENS if chunk == "auto" else chunk
    arena = choose_arena(sizes, machine, ram_gib)
    choices = (
        Choice("threads", machine.threads, machine.threads_reason),
        Choice("isa", machine.isa, "best instruction set of this processor, or as asked"),
        Choice("context", tokens, context_reason),
        Choice("slots", serving, slots_reason),
        Choice("pages", pages, pages_reason),
        Choice("kv_type", sizes.kv_type, kv_reason(sizes, tokens)),
        Choice("prompt_chunk", size, "default" if chunk == "auto" else "as asked"),
        Choice("experts", "RAM arena" if arena else "mapped file", "as asked" if arena else "default: no copy is made"),
    )
    step = max(size, STEP_TOKENS) + serving
    return Plan(serving, wanted, slots_reason, tokens, pages, size, step, arena, choices)


def host_states(machine: Machine) -> StateRoom:
    """Room for states in the host's memory."""
    return StateRoom(int(machine.memory_bytes * SHARE_FOR_STATES), machine.memory_bytes)


def kv_reason(sizes: ModelSizes, context: int) -> str:
    """What keys and values take, and what bf16 would save."""
    takes = f"{context * sizes.token_bytes >> 20} MiB a conversation of {context} tokens"
    if sizes.kv_type != "f32":
        return f"as asked: {takes}; what is written is rounded"
    saved = context * (sizes.token_bytes - sizes.bf16_token_bytes) >> 20
    return f"default, exact: {takes}; --kv-type bf16 saves {saved} MiB and reads half at long contexts"


WARM_SHARE = 0.9
"""Part of the available memory that a file may take to be read ahead of its use."""


def choose_warming(weight_bytes: int, missing_bytes: int, memory_bytes: int, wished: bool) -> Choice:
    """Whether the model's file is brought into memory before the first request ("read ahead") or as it is touched."""
    if not wished:
        return Choice("weights", "as touched", "as asked")
    if weight_bytes > WARM_SHARE * memory_bytes:
        sizes = f"{weight_bytes >> 20} MiB, {memory_bytes >> 20} MiB are free"
        return Choice("weights", "as touched", f"reading ahead would push out what was read: {sizes}")
    return Choice("weights", "read ahead", f"{missing_bytes >> 20} of {weight_bytes >> 20} MiB are not in memory yet")


def choose_arena(sizes: ModelSizes, machine: Machine, ram_gib: float | None) -> bool:
    """Whether experts are copied into RAM: only when a budget was given, and then it must hold them."""
    if ram_gib is None:
        return False
    if ram_gib * (1 << 30) < sizes.expert_bytes:
        raise UsageError(
            f"--ram-gib {ram_gib:g}: the experts need {sizes.expert_bytes / (1 << 30):.1f} GiB",
            "leave the flag out to read them from the mapped file",
        )
    if sizes.expert_bytes > machine.memory_bytes:
        raise UsageError(
            f"--ram-gib {ram_gib:g}: the experts need {sizes.expert_bytes / (1 << 30):.1f} GiB, "
            f"{machine.memory_bytes / (1 << 30):.1f} GiB are free"
        )
    return True
