"""A model on a GPU: which one there is, and what is brought there. The part of assembling that only a GPU needs."""

import importlib.util
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from strata.core.errors import UsageError
from strata.core.log import Log
from strata.experts.placing import HostSide, emulated, side_of
from strata.experts.profile import Profile
from strata.kernels.compiling import PROMPT_UNITS, units_for
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.device import Device
from strata.kernels.devices import open_device
from strata.kernels.gpu_ops import GpuOps
from strata.models.base import Model
from strata.models.drafting import DraftHead
from strata.models.weights import dense_bytes, dense_weights, row_bytes, row_tables, weight_bytes
from strata.plan.machine import available_memory
from strata.plan.plan import STEP_TOKENS, Choice
from strata.plan.pool import StateRoom
from strata.plan.vram import choose_chunk, choose_state_room, reserve_bytes, reserve_for
from strata.plan.wishes import Wishes
from strata.runtime.apart import Apart
from strata.runtime.tiers import reported, tier_experts
from strata.state.memory import Memory

LEAST_CAPABILITY = (8, 0)
"""Copies beside the threads that asked for them (cp.async) begin here; products do not compile for older ones."""
EMULATED_SHARE = 0.5
"""Part of the host's free memory that stands for the emulator's VRAM."""


@dataclass(frozen=True, slots=True)
class Found:
    """Where the model will run."""

    device: str
    """ "cpu", "cuda" or "emulator"."""
    reason: str


def find_device(wishes: Wishes) -> Found:
    """Resolve "auto"; UsageError for a device that is not there, or for wishes that do not go together."""
    asked = wishes.device
    if wishes.isa == "naive":
        if asked not in ("auto", "cpu"):
            raise UsageError(f"--device {asked}: the naive operations run on the CPU", "leave --isa naive out")
        return Found("cpu", "the naive operations run on the CPU")
    if asked not in ("auto", "cuda"):
        return Found(asked, "as asked")
    missing = no_cuda()
    if asked == "auto":
        return Found("cpu", missing) if missing else Found("cuda", "a GPU that can be used")
    if missing:
        raise UsageError(f"--device cuda: {missing}", "use --device cpu, or install a driver and torch for CUDA")
    return Found("cuda", "as asked")


def no_cuda() -> str:
    """Why CUDA cannot be used; empty when it can."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:  # no driver, one that is too old, no GPU: torch says which
        return str(error).splitlines()[0]
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        return "the package cuda-bindings, which torch's CUDA wheels bring, is not installed"
    found = torch.cuda.get_device_capability()
    if found < LEAST_CAPABILITY:
        have, least = (".".join(map(str, version)) for version in (found, LEAST_CAPABILITY))
        return f"{torch.cuda.get_device_name()} has compute capability {have}, {least} or more is needed"
    return ""


class OnDevice:
    """A GPU (or its emulator) with what belongs to it."""

    def __init__(self, found: Found, wishes: Wishes, host_ops: CpuOps) -> None:
        self.found = found
        self.wishes = wishes
        self.host_ops = host_ops
        self.cache = Path(wishes.cache_dir).expanduser()
        self.device: Device = open_device(found.device, self.cache / "kernels")
        self.ops = GpuOps(self.device)
        self.kernels: list[str] = []
        """Units of kernels that are compiled ahead."""
        self.side: HostSide = self.emulated() if found.device == "emulator" else side_of(self.device.torch_device)
        self.ending: Callable[[], object] | None = None
        """Ends what works beside the steps: when it is called, when this goes, or with the process."""

    @staticmethod
    def emulated() -> HostSide:
        """The emulator's side, with a part of the host's memory."""
        total = int(EMULATED_SHARE * available_memory())
        return emulated(lambda: total)

    @property
    def apart(self) -> Apart:
        """The device as the runner sees it."""
        memory = Memory(self.device.torch_device, apart=True)
        return Apart(self.device.name, memory, self.host_ops, self.close)

    def chunk(self, model: Model) -> tuple[int, str]:
        """Prompt tokens of a step, and why; the reserve has room for them from now on."""
        asked, each = self.wishes.prompt_chunk, row_bytes(model)
        chunk, reason = (STEP_TOKENS, "default of the emulator") if asked == "auto" else (asked, "as asked")
        if asked == "auto" and self.found.device != "emulator":
            chunk, reason = choose_chunk(each, self.side.vram.free_bytes())
        reserve = reserve_for(self.wishes.vram_reserve_mib, chunk * each)
        self.wishes = replace(self.wishes, vram_reserve_mib=reserve)
        return chunk, reason

    def room(self, model: Model, head: DraftHead | None = None) -> StateRoom:
        """For sequence states, beside the other weights of model and head; UsageError when the memory is too small."""
        wishes = self.wishes
        return choose_state_room(
            self.side.vram.free_bytes(),
            dense_bytes(model, head),
            model.store.nbytes,
            wishes.vram_gib,
            wishes.vram_reserve_mib,
        )

    def compile(self, formats: Iterable[str]) -> None:
        """Begin to compile the kernels that weights of these formats need, beside what is loaded meanwhile."""
        self.kernels = units_for(formats)
        self.device.compile_ahead(self.kernels)

    def compiled(self, progress: Callable[[int, int], None]) -> None:
        """Wait for the kernels of steps; those of prompts go on, and a prompt waits for what it needs."""
        self.device.compiled([unit for unit in self.kernels if not unit.startswith(PROMPT_UNITS)], progress)

    def bring(self, model: Model, progress: Callable[[int, int], None], head: DraftHead | None = None) -> None:
        """Copy what every step (and draft) reads to the device, now and not within the first; pin what it reads in
        place."""
        tables = row_tables(model)
        for table in tables:
            self.device.leave(table)
        here = {id(table) for table in tables}
        weights = [weight for weight in dense_weights(model, head) if id(weight) not in here]
        done, total = 0, sum(map(weight_bytes, weights))
        for weight in weights:
            self.device.weight(weight)
            done += weight_bytes(weight)
            progress(done, total)
        self.device.synchronize()

    def place(self, model: Model, name: str, host_bytes: int, log: Log) -> tuple[Choice, ...]:
        """Give the experts what is left -> what was decided; `name` is the model's for what is learned about it.

        `host_bytes` of host memory may be pinned.
        """
        if not model.store.banks:
            return ()
        shape, native = model.shape, self.host_ops.native
        profile = Profile(self.cache / "profiles", name, max(model.store.banks) + 1, shape.experts, log)
        side = reported(self.side, log)
        tiered = tier_experts(self.device, native, model, self.wishes, host_bytes, side, profile)
        self.ending = weakref.finalize(self, tiered.close)
        return tiered.choices

    def choices(self, model: Model, head: DraftHead | None = None) -> tuple[Choice, ...]:
        """Where the model is, and what stays of it on the device."""
        reserve = reserve_bytes(self.wishes.vram_reserve_mib)
        tables = sum(map(weight_bytes, row_tables(model)))
        return (
            Choice("gpu", self.device.name, f"{self.side.vram.free_bytes() >> 20} MiB were free"),
            Choice("vram_reserve_mib", reserve >> 20, "left free for the rows of a step and for others"),
            Choice("vram_weights_mib", dense_bytes(model, head) >> 20, "what every step reads whole"),
            Choice("rows_in_ram_mib", tables >> 20, "embeddings, of which a step reads a few rows in place"),
        )

    def close(self) -> None:
        """End what works beside the steps; what was learned is kept."""
        if self.ending is not None:
            self.ending()
