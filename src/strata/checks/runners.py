"""Fresh runners over one loaded model, for checks that start engine after engine."""

from collections.abc import Sequence

from strata.assemble import Loaded
from strata.core.held import Held
from strata.core.limits import Limits
from strata.core.log import Log
from strata.core.sharing import PRIVATE, SHARED, Sharing
from strata.engine.runner import Runner
from strata.layers.batch import Tap
from strata.runtime.keeping import Keeping
from strata.runtime.runner import DeviceRunner
from strata.sampling.params import SamplingParams


class Forgetful(DeviceRunner):
    """Keeps nothing of a sequence: every prompt is read whole."""

    def seat(
        self,
        slot: int,
        tokens: Sequence[int],
        params: SamplingParams,
        most: int | None = None,
        sharing: Sharing = SHARED,
    ) -> Held:
        """See `Runner.seat`."""
        return super().seat(slot, tokens, params, most, PRIVATE)


def forgetful(loaded: Loaded, slots: int, tap: Tap | None = None) -> Runner:
    """A fresh runner that keeps nothing."""
    return Forgetful(loaded.model, loaded.runner.ops, limits_of(loaded, slots), tap, loaded.runner.states.kv_type)


def keeping(loaded: Loaded, slots: int, how: Keeping | None = None, log: Log | None = None) -> Runner:
    """A fresh runner that keeps conversations."""
    limits, kv_type = limits_of(loaded, slots), loaded.runner.states.kv_type
    return DeviceRunner(loaded.model, loaded.runner.ops, limits, None, kv_type, how, log)


def limits_of(loaded: Loaded, slots: int) -> Limits:
    """The plan's sizes with another number of slots."""
    return Limits(slots, loaded.plan.context, max(loaded.plan.step_tokens, slots))


def spoil(runner: Runner, slot: int) -> None:
    """Damage what a slot remembers, far enough to change tokens: all signs turn."""
    assert isinstance(runner, DeviceRunner)
    states = runner.states
    for layer in states.layers:
        for plane in (layer.keys, layer.values):
            if plane is not None and states.pages.held[slot]:
                stored = plane.data if plane.scales is None else plane.scales
                stored[states.pages.held[slot][0]] *= -1
        for tensor in (layer.conv, layer.delta, layer.ngram):
            if tensor is not None:
                tensor[slot] *= -1
