"""Routing traces in a model: what `--routing-trace` does."""

from pathlib import Path

import torch

from strata.core.errors import UsageError
from strata.experts.traced import TracedExperts
from strata.experts.traces import load_trace
from strata.models.base import Model
from strata.plan.plan import Choice


def replay_routing(model: Model, path: Path, device: torch.device) -> Choice:
    """From now on the model's experts are those of the trace, token after token, for all rows of all slots.

    Answers make no sense then. UsageError when the trace is for a model of other sizes, CheckpointError when the file
    is none.
    """
    layers = sorted(model.store.banks)
    if not layers:
        raise UsageError("--routing-trace: this model has no experts")
    trace = load_trace(path)
    trace.check_fits(len(layers), model.shape.experts, model.shape.top_k)
    model.experts.inner = TracedExperts(model.experts.inner, trace, layers, device)
    return Choice("routing", trace.origin, f"{len(trace.ids)} tokens of {path.name} in place of the router's choice")
