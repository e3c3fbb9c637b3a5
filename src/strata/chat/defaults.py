"""What a request that says nothing gets: the user's wishes, else what the model's own files recommend."""

from collections.abc import Mapping
from typing import Any

from strata.checkpoint.checkpoint import Checkpoint
from strata.checkpoint.metadata import Metadata
from strata.plan.wishes import Wishes
from strata.sampling.params import SamplingParams

_BOUNDS = {
    "temperature": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repeat_penalty": (0.01, 100.0),
}


def recommended(checkpoint: Checkpoint) -> Mapping[str, float]:
    """SamplingParams fields by name: general.sampling.* of a GGUF, or generation_config.json with do_sample."""
    metadata = checkpoint.metadata
    if checkpoint.kind == "gguf":
        names = {"temperature": "temp", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
        return _read(metadata, {name: f"general.sampling.{key}" for name, key in names.items()})
    if not metadata.flag("generation.do_sample", False):
        return {}
    names = {name: name for name in ("temperature", "top_k", "top_p", "min_p")}
    names["repeat_penalty"] = "repetition_penalty"
    return _read(metadata, {name: f"generation.{key}" for name, key in names.items()})


def _read(metadata: Metadata, keys: Mapping[str, str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, key in keys.items():
        if key not in metadata:
            continue
        if name == "top_k":
            found[name] = metadata.integer(key, 0, (1 << 31) - 1)
        else:
            found[name] = metadata.number(key, *_BOUNDS[name])
    return found


def defaults_from(wishes: Wishes, recommendation: Mapping[str, float]) -> SamplingParams:
    """Sampling of a request that says nothing: the wishes, else the recommendation, else greedy."""
    wished = {
        "temperature": wishes.temp,
        "top_k": wishes.top_k,
        "top_p": wishes.top_p,
        "min_p": wishes.min_p,
        "repeat_penalty": wishes.repeat_penalty,
        "presence_penalty": wishes.presence_penalty,
        "frequency_penalty": wishes.frequency_penalty,
    }
    chosen: dict[str, Any] = dict(recommendation) | {k: v for k, v in wished.items() if v is not None}
    return SamplingParams(**chosen)
