"""From what a user names to an open checkpoint."""

from pathlib import Path

from strata.checkpoint.gguf import GgufCheckpoint, open_gguf, shard_of
from strata.checkpoint.safetensors import INDEX, SINGLE, SafetensorsCheckpoint, open_folder
from strata.core.errors import CheckpointError

OpenCheckpoint = GgufCheckpoint | SafetensorsCheckpoint
"""What `open_checkpoint` gives: a Checkpoint that can be closed, with its files and notes."""


def open_checkpoint(path: Path) -> OpenCheckpoint:
    """Open a .gguf file (any of a split opens all of it), a safetensors folder, or a folder with one GGUF model."""
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except (OSError, ValueError) as error:
        # ValueError: a NUL in the name
        raise CheckpointError(f"{path}: cannot be opened: {error}") from error
    if not exists:
        raise CheckpointError(f"{path}: expected a model file or folder, found nothing", hint="check the path")
    if is_folder:
        return _open_folder(path)
    if path.name.endswith((".safetensors", ".json")):
        raise CheckpointError(
            f"{path}: expected a .gguf file or a folder, found one file of a folder",
            hint=f"name the folder: {path.parent}",
        )
    return open_gguf(path)


def _open_folder(path: Path) -> OpenCheckpoint:
    if (path / SINGLE).exists() or (path / INDEX).exists():
        return open_folder(path)
    models = gguf_models(path)
    if len(models) == 1:
        return open_gguf(models[0])
    if models:
        names = ", ".join(p.name for p in models[:8]) + (" ..." if len(models) > 8 else "")
        raise CheckpointError(
            f"{path}: expected one GGUF model in the folder, found {len(models)}: {names}", hint="name the file"
        )
    stray = sorted(p.name for p in path.glob("*.safetensors"))
    found = f"{stray[0]} without {INDEX}" if stray else "no .gguf and no .safetensors file"
    raise CheckpointError(
        f"{path}: expected {SINGLE}, {INDEX} or a .gguf file in the folder, found {found}",
        hint="name the folder that holds the weights, or download them again",
    )


def gguf_models(folder: Path) -> list[Path]:
    """The GGUF models in `folder`, by name; a split counts once, by its first file that is there."""
    models: dict[str, Path] = {}
    for path in sorted(p for p in folder.glob("*.gguf") if not p.is_dir()):
        shard = shard_of(path.name)
        models.setdefault(path.name if shard is None else shard.name(1), path)
    return list(models.values())
