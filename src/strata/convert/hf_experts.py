"""A layer's routed experts in a safetensors folder: stacked (gate and up in one tensor) or one by one."""

from collections.abc import Iterator

from strata.checkpoint.checkpoint import Checkpoint
from strata.convert.stored import Matrices, gathered
from strata.core.errors import CheckpointError
from strata.models.hf_weights import stored_weights
from strata.models.registry import Architecture

OURS = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")


def expert_matrices(
    checkpoint: Checkpoint, entry: Architecture, layer: str, used: set[str]
) -> Iterator[tuple[str, Matrices]]:
    """(our name, one matrix per expert) of the layer under prefix `layer`; nothing for a dense one."""

    def take(name: str) -> Matrices:
        stored = stored_weights(checkpoint, name)
        used.update(stored.used)
        return Matrices(f"{stored.ref.file}: tensor {name}", stored.weights)

    for at in entry.experts_at:
        base = f"{layer}{at}"
        if f"{base}.gate_up_proj" in checkpoint.tensors:
            both = take(f"{base}.gate_up_proj")
            half = both.rows // 2
            yield OURS[0], both.cut(0, half)
            yield OURS[1], both.cut(half, both.rows)
            yield OURS[2], take(f"{base}.down_proj")
            return
    base = f"{layer}{entry.experts_at[0]}"
    count = _count(checkpoint, base)
    for leaf, ours in zip(entry.expert_leaves, OURS, strict=True):
        if not count:
            return
        parts = [take(f"{base}.{e}.{leaf}.weight") for e in range(count)]
        _check_equal(parts)
        yield ours, gathered(parts)


def _count(checkpoint: Checkpoint, base: str) -> int:
    """How many experts are stored one by one."""
    numbers = {n.removeprefix(f"{base}.").split(".")[0] for n in checkpoint.tensors if n.startswith(f"{base}.")}
    return 1 + max((int(n) for n in numbers if n.isdigit()), default=-1)


def _check_equal(parts: list[Matrices]) -> None:
    first = parts[0]
    for part in parts:
        if (part.rows, part.columns) != (first.rows, first.columns):
            raise CheckpointError(
                f"{part.source}: expected {first.rows} x {first.columns}, found {part.rows} x {part.columns}"
            )
        if part.stored != first.stored:
            raise CheckpointError(f"{part.source}: expected {first.stored} as expert 0, found {part.stored}")
