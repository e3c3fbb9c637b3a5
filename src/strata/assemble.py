"""The composition root: a model's path and a person's wishes become a running engine."""

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import get_args

import torch

from strata.chat.tokenizer import load_tokenizer
from strata.checkpoint.checkpoint import Checkpoint
from strata.checkpoint.fingerprint import fingerprint
from strata.checkpoint.locate import open_checkpoint
from strata.core.errors import CheckpointError, RequestError, UnsupportedError, UsageError
from strata.core.limits import Limits
from strata.core.log import Log
from strata.engine.engine import Engine, EngineSettings
from strata.engine.request import Request
from strata.engine.settings import Settings
from strata.hub.resolve import local_path, logged
from strata.kernels.binding import bind_thread
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.naive_ops import NaiveOps
from strata.kernels.native import Native
from strata.kernels.ops import Ops
from strata.kernels.topology import read_topology
from strata.kernels.views import KvType
from strata.layers.batch import Tap
from strata.models.base import Model
from strata.models.drafting import DraftHead
from strata.models.registry import build_draft_head, build_model
from strata.plan.drafting import MOST_DRAFTS, choose_draft
from strata.plan.keeping import choose_state_disk, choose_state_ram
from strata.plan.machine import Machine, available_memory
from strata.plan.placement import place_threads
from strata.plan.plan import Choice, ModelSizes, Plan, choose_warming, host_states, make_plan
from strata.plan.setting import flag_of
from strata.plan.wishes import Wishes
from strata.runtime.drafts import Drafting
from strata.runtime.keeping import Keeping, OnDisk
from strata.runtime.on_device import OnDevice, find_device
from strata.runtime.routing import replay_routing
from strata.runtime.runner import DeviceRunner
from strata.sampling.grammar import MaskMaker, Vocabulary
from strata.speculate.vocabulary import BUILT_IN, draft_tokens, end_ids
from strata.store.warm import missing_bytes, spans_of, warm

VRAM_WISHES = (
    *("vram_gib", "vram_reserve_mib", "pcie_share"),
    *("adapt_every", "adapt_swaps", "adapt_decay", "adapt_min_gain", "adapt_async"),
)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model ready to run, with everything that was decided on the way."""

    checkpoint: Checkpoint
    model: Model
    plan: Plan
    runner: DeviceRunner
    engine: Engine
    drafting: Drafting | None = None
    """What the runner's drafts are made with."""

    def prepare(self, request: Request) -> None:
        """Compile a request's constraint, from any thread; RequestError when it cannot be."""
        if request.params.constraint is not None and self.runner.masks is not None:
            self.runner.masks.prepare(request.params.constraint)


def make_ops(wishes: Wishes, weight_bytes: int = 0) -> tuple[Ops, Machine]:
    """The CPU's operations (C++ for an instruction set, or the naive specification), and the machine they run on.

    On a machine with several memory nodes or kinds of cores the calling thread is bound with the pool's.
    """
    # Our own pool computes; torch's threads beside it would only fight for the same cores.
    torch.set_num_threads(1)
    if wishes.isa == "naive":
        if wishes.threads not in ("auto", 1):
            raise UsageError(f"--threads {wishes.threads}: the naive operations run on one", "leave it out")
        return NaiveOps(), Machine(1, "naive", available_memory(), "the naive operations run on one")
    placement = place_threads(read_topology(), None if wishes.threads == "auto" else wishes.threads, weight_bytes)
    refused = bind_thread(placement.cpus, placement.nodes)
    native = Native(placement.threads, wishes.isa)
    reason = "; ".join([placement.reason, *(f"the system refused {what}" for what in refused)])
    return CpuOps(native), Machine(native.threads, native.isa, available_memory(), reason)


def open_device(wishes: Wishes, cpu_ops: Ops) -> OnDevice | None:
    """The GPU that the model runs on, None for the CPU; UsageError for wishes of VRAM that is not used."""
    found = find_device(wishes)
    if found.device != "cpu":
        assert isinstance(cpu_ops, CpuOps), "the naive operations run on the CPU"
        return OnDevice(found, wishes, cpu_ops)
    for name in VRAM_WISHES:
        if getattr(wishes, name) != getattr(Wishes(), name):
            raise UsageError(f"{flag_of(name)}: experts have no VRAM on a CPU ({found.reason})", "leave it out")
    return None


def warm_weights(checkpoint: Checkpoint, machine: Machine, wishes: Wishes, log: Log) -> Choice:
    """Bring the model's files into memory if they fit; what was decided."""
    spans = spans_of(checkpoint.bytes_of(ref) for ref in checkpoint.tensors.values())
    total = sum(span.nbytes for span in spans)
    choice = choose_warming(total, missing_bytes(spans), machine.memory_bytes, wishes.warm == "auto")
    if choice.value == "read ahead":
        began_s = time.monotonic()
        warm(spans, partial(log.progress, "reading ahead"))
        log.info("read ahead", mib=total >> 20, seconds=round(time.monotonic() - began_s, 2))
    return choice


def sizes_of(model: Model, kv_type: KvType = "f32", head: DraftHead | None = None) -> ModelSizes:
    """What the plan needs to know of a model, and of its drafting head."""
    layouts = [*model.layouts, *(head.layouts if head is not None else ())]
    per_type = {name: sum(layout.token_bytes(name) for layout in layouts) for name in get_args(KvType)}
    return ModelSizes(
        context=model.shape.context,
        token_bytes=per_type[kv_type],
        sequence_bytes=sum(layout.sequence_bytes() for layout in layouts),
        expert_bytes=model.store.nbytes,
        kv_type=kv_type,
        bf16_token_bytes=per_type["bf16"],
    )


def files_of(checkpoint: Checkpoint, wishes: Wishes) -> OnDisk | None:
    """Where conversations survive the process; None: nowhere."""
    if not wishes.state_disk_gib:
        return None
    folder, budget = Path(wishes.state_dir).expanduser(), int(wishes.state_disk_gib * (1 << 30))
    return OnDisk(folder, budget, fingerprint(checkpoint))


def load(model: Path | str | None, wishes: Wishes, log: Log | None = None, tap: Tap | None = None) -> Loaded:
    """Open, plan and build; the engine is not started yet."""
    said = log if log is not None else Log()
    checkpoint = open_checkpoint(local_path(model, logged(said)))
    cpu_ops, machine = make_ops(wishes, sum(ref.nbytes for ref in checkpoint.tensors.values()))
    gpu = open_device(wishes, cpu_ops)
    if gpu is not None:
        gpu.compile(ref.format.name for ref in checkpoint.tensors.values())
    warming = warm_weights(checkpoint, machine, wishes, said)
    built = build_model(checkpoint, cpu_ops if gpu is None else gpu.ops)
    drafting, draft_choices = draft_with(checkpoint, built, wishes, cpu_ops if gpu is None else gpu.ops, gpu)
    head = drafting.head if drafting is not None else None
    plan = planned(built, machine, wishes, gpu, head)
    ram_bytes, ram = choose_state_ram(machine.memory_bytes, wishes.state_ram_gib)
    keeping = Keeping(plan.pages, ram_bytes=ram_bytes, disk=files_of(checkpoint, wishes), log=said)
    kept = choose_state_disk(wishes.state_disk_gib, wishes.state_dir)
    choices = [*plan.choices, warming, ram, kept, *draft_choices]
    if plan.arena:
        built.store.to_arena(partial(said.progress, "copying experts to RAM"))
    if gpu is not None:
        choices += gpu.choices(built, head)
        gpu.bring(built, partial(said.progress, "bringing weights to the GPU"), head)
    limits = Limits(plan.slots, plan.context, plan.step_tokens)
    ops, apart = (cpu_ops, None) if gpu is None else (gpu.ops, gpu.apart)
    masks = MaskMaker(partial(vocabulary_of, checkpoint), built.shape.vocabulary)
    runner = DeviceRunner(built, ops, limits, tap, wishes.kv_type, keeping, apart, drafting, masks)
    if gpu is not None:
        # Experts get what is left behind the states.
        choices += gpu.place(built, fingerprint(checkpoint), host_room(machine, ram_bytes, wishes), said)
        gpu.compiled(partial(said.progress, "compiling GPU kernels", counted=True))
    if wishes.routing_trace is not None:
        choices.append(replay_routing(built, Path(wishes.routing_trace), runner.states.memory.device))
    plan = replace(plan, choices=tuple(choices))
    for choice in plan.choices:
        said.info("plan", setting=choice.name, value=choice.value, reason=choice.reason)
    settings = EngineSettings(
        scheduler=Settings(
            chunk_tokens=plan.chunk,
            queue_limit=wishes.queue_limit,
            max_gap_s=wishes.max_gap_ms / 1000,
            max_wait_s=wishes.max_wait_s,
            draft_limit=MOST_DRAFTS if drafting is not None else 0,
        ),
        requested_slots=plan.requested_slots,
        slots_reason=plan.slots_reason,
        plan={choice.name: {"value": choice.value, "reason": choice.reason} for choice in plan.choices},
    )
    return Loaded(checkpoint, built, plan, runner, Engine(runner, settings, said), drafting)


def vocabulary_of(checkpoint: Checkpoint) -> Vocabulary:
    """What the model's tokens stand for; RequestError when it has no tokenizer that can be read."""
    try:
        tokenizer = load_tokenizer(checkpoint)
    except (CheckpointError, UnsupportedError) as error:
        raise RequestError(f"masks need the model's vocabulary: {error.message}", param="mask") from error
    pieces = [tokenizer.piece(token) for token in range(tokenizer.size)]
    return Vocabulary(pieces, tokenizer.control, tokenizer.stop_ids, partial(tokenizer.encode, bos=False))


def draft_with(
    checkpoint: Checkpoint, model: Model, wishes: Wishes, ops: Ops, gpu: OnDevice | None
) -> tuple[Drafting | None, list[Choice]]:
    """What drafts are made with, None for nothing, and why. The head's experts join the model's."""
    found = choose_draft(wishes.draft, "cpu" if gpu is None else gpu.found.device, wishes.routing_trace is not None)
    if not found.drafts:
        return None, [found.choice]
    apart = None if wishes.mtp is None else open_checkpoint(Path(wishes.mtp))
    head = build_draft_head(checkpoint, model, ops, apart)
    if head is None:
        choice = Choice("draft_head", "none", "the model has none, drafts come from the conversation")
        return Drafting(None, found.depth, wishes.price / 1e6), [found.choice, choice]
    vocabulary = model.shape.vocabulary
    keys = checkpoint.metadata.values
    tokens = draft_tokens(wishes.draft_vocab, vocabulary, end_ids(keys), keys.get(BUILT_IN))
    if tokens is not None:
        head = head.narrowed(torch.tensor(tokens, dtype=torch.int64))
    known = vocabulary if tokens is None else len(tokens)
    choices = [
        Choice("draft_head", "mtp", "the model's own" if apart is None else f"of {wishes.mtp}"),
        Choice("draft_vocabulary", known, f"of {vocabulary} tokens (--draft-vocab {wishes.draft_vocab})"),
    ]
    return Drafting(head, found.depth, wishes.price / 1e6), [found.choice, *choices]


def planned(
    model: Model, machine: Machine, wishes: Wishes, gpu: OnDevice | None, head: DraftHead | None = None
) -> Plan:
    """Every "auto" resolved; with a GPU the states lie there, and `--ram-gib` is no copy but what may be pinned."""
    sizes = sizes_of(model, wishes.kv_type, head)
    room = host_states(machine) if gpu is None else gpu.room(model, head)
    if wishes.kv_gib is not None:
        room = replace(room, pages=int(wishes.kv_gib * (1 << 30)))
    if gpu is None:
        found = make_plan(machine, sizes, wishes.ctx_size, wishes.parallel, wishes.prompt_chunk, wishes.ram_gib, room)
        return replace(found, choices=(Choice("device", "cpu", find_device(wishes).reason), *found.choices))
    chunk, why = gpu.chunk(model)
    found = make_plan(machine, sizes, wishes.ctx_size, wishes.parallel, chunk, None, room)
    others = tuple(choice for choice in found.choices if choice.name not in ("experts", "prompt_chunk"))
    own = (Choice("device", gpu.found.device, gpu.found.reason), Choice("prompt_chunk", chunk, why))
    return replace(found, choices=(*own, *others))


def host_room(machine: Machine, kept_bytes: int, wishes: Wishes) -> int:
    """Host memory that experts may be pinned in, beside what is kept of conversations."""
    if wishes.ram_gib is not None:
        return int(wishes.ram_gib * (1 << 30))
    return max(0, machine.memory_bytes - kept_bytes)
