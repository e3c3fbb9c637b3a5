"""config.json as flat metadata."""

from collections.abc import Mapping
from pathlib import Path

from strata.checkpoint.jsonfile import read_object
from strata.checkpoint.metadata import Metadata, Scalar, Value
from strata.core.errors import CheckpointError


def read_config(folder: Path) -> Metadata:
    """`folder`/config.json, and generation_config.json (if there) under the prefix "generation.".

    The language model's own `text_config` is merged over the outer object. Nested objects become dotted keys
    (`rope_parameters.rope_theta`); lists of scalars stay lists; other lists become keys with indices
    (`groups.0.name`).
    """
    path = folder / "config.json"
    outer = read_object(path)
    inner = outer.pop("text_config", None)
    if inner is not None and not isinstance(inner, dict):
        raise CheckpointError(f"{path}: key text_config: expected an object, found {type(inner).__name__}")
    values = flatten(outer, path) | flatten(inner or {}, path)
    extra = folder / "generation_config.json"
    if extra.exists():
        generation = {f"generation.{key}": value for key, value in flatten(read_object(extra), extra).items()}
        both = sorted(values.keys() & generation.keys())
        if both:
            raise CheckpointError(f"{path}: key {both[0]}: expected only in {extra.name}, found in both files")
        values |= generation
    return Metadata(path, values)


def flatten(value: Mapping[str, object], file: Path) -> dict[str, Value]:
    """Nested objects as dotted keys; CheckpointError when two of them become the same key."""
    flat: dict[str, Value] = {}

    def put(key: str, item: object) -> None:
        if isinstance(item, dict):
            for name, inner in item.items():
                put(f"{key}.{name}", inner)
            return
        if isinstance(item, list) and not all(isinstance(i, Scalar) for i in item):
            for index, inner in enumerate(item):
                put(f"{key}.{index}", inner)
            return
        if key in flat:
            raise CheckpointError(f"{file}: key {key!r:.100}: expected once, found twice")
        if isinstance(item, list):
            flat[key] = tuple(item)
        elif item is None or isinstance(item, Scalar):
            flat[key] = item

    for key, item in value.items():
        put(key, item)
    return flat
