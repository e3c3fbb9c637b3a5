"""What a model would do on this machine, from its headers: nothing is loaded, warmed or allocated."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from strata.assemble import draft_with, make_ops, open_device, planned
from strata.checkpoint.locate import open_checkpoint
from strata.checks.measured import Measured, Told
from strata.core.errors import UsageError
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.views import Weight
from strata.models.base import Model
from strata.models.registry import build_model
from strata.models.weights import dense_weights, row_tables, weight_bytes
from strata.plan.forecast import Rates, Work
from strata.plan.keeping import choose_state_disk, choose_state_ram
from strata.plan.machine import Machine
from strata.plan.plan import Choice, Plan, choose_warming
from strata.plan.wishes import Wishes
from strata.runtime.on_device import OnDevice
from strata.store.warm import missing_bytes, spans_of


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of a model's parts."""

    experts: int
    dense: int
    """Read whole by every step."""
    tables: int
    """Embeddings and n-grams, of which a step reads a few rows."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """Everything that a forecast is made from."""

    name: str
    architecture: str
    layers: int
    sizes: Sizes
    wishes: Wishes
    plan: Plan
    machine: Machine
    work: Work
    rates: Rates
    vram_bytes: int | None
    """Free VRAM of the GPU that would be used; None: the CPU is."""
    disturbed: bool
    """Other processes were busy while rates were measured."""


def prospect(path: Path, wishes: Wishes, told: Told, again: bool = False) -> Prospect:
    """Plan the model at `path` (headers suffice); rates of its formats that are not known are measured first."""
    with open_checkpoint(path) as checkpoint:
        total = sum(ref.nbytes for ref in checkpoint.tensors.values())
        ops, machine = make_ops(wishes, total)
        if not isinstance(ops, CpuOps):
            raise UsageError("--isa naive: the naive operations have no speed to forecast", "leave it out")
        gpu = open_device(wishes, ops)
        model = build_model(checkpoint, ops if gpu is None else gpu.ops)
        # Before a drafting head's experts join the model's.
        work, sizes = work_of(model, wishes), sizes_of(model)
        drafting, draft_choices = draft_with(checkpoint, model, wishes, ops if gpu is None else gpu.ops, gpu)
        plan = planned(model, machine, wishes, gpu, drafting.head if drafting is not None else None)
        spans = spans_of(checkpoint.bytes_of(ref) for ref in checkpoint.tensors.values())
        choices = [
            choose_warming(total, missing_bytes(spans), machine.memory_bytes, wishes.warm == "auto"),
            choose_state_ram(machine.memory_bytes, wishes.state_ram_gib)[1],
            choose_state_disk(wishes.state_disk_gib, wishes.state_dir),
            *draft_choices,
        ]
        known = Measured(Path(wishes.cache_dir).expanduser(), machine.threads, machine.isa)
        rates = known.need([*work.dense, *work.expert], ops, told, again)
        shape = model.shape
        return Prospect(
            path.name,
            shape.architecture,
            shape.layers,
            sizes,
            wishes,
            replace(plan, choices=(*plan.choices, *choices)),
            machine,
            work,
            rates,
            vram_of(gpu),
            known.disturbed,
        )


def vram_of(gpu: OnDevice | None) -> int | None:
    """Free bytes of the GPU."""
    return None if gpu is None else gpu.side.vram.free_bytes()


def sizes_of(model: Model) -> Sizes:
    """Bytes of the parts."""
    tables = sum(map(weight_bytes, row_tables(model)))
    return Sizes(model.store.nbytes, sum(map(weight_bytes, dense_weights(model))) - tables, tables)


def work_of(model: Model, wishes: Wishes) -> Work:
    """What a step reads."""
    tables = {id(table) for table in row_tables(model)}
    dense = by_format(weight for weight in dense_weights(model) if id(weight) not in tables)
    banks = list(model.store.banks.values())
    firsts = [matrix for bank in banks for matrix in (bank.gate[0], bank.up[0], bank.down[0])]
    expert = {name: nbytes // max(1, len(banks)) for name, nbytes in by_format(firsts).items()}
    weights = [*firsts, *dense_weights(model)]
    values = {w.format.name: w.rows * w.cols / weight_bytes(w) for w in weights}
    return Work(
        dense,
        expert,
        values,
        len(banks),
        model.shape.experts,
        model.shape.top_k,
        sum(layout.token_bytes(wishes.kv_type) for layout in model.layouts),
        sum(layout.sequence_bytes() for layout in model.layouts),
        sum(weight.rows > 1 for weight in dense_weights(model) if id(weight) not in tables) + len(banks),
    )


def by_format(weights: Iterable[Weight]) -> dict[str, int]:
    """Bytes of matrices by their formats."""
    found: Counter[str] = Counter()
    for weight in weights:
        found[weight.format.name] += weight_bytes(weight)
    return dict(found)


def why(choices: Iterable[Choice]) -> list[tuple[str, str, str]]:
    """Choices as rows of a table."""
    return [(choice.name, str(choice.value), choice.reason) for choice in choices]
