"""Fresh runners over one loaded model, for checks that start engine after engine."""

from collections.abc import Sequence

from strata.assemble import Loaded
from strata.core.held import Held
from strata.core.limits import Limits
from strata.core.sharing import PRIVATE, SHARED, Sharing
from strata.engine.runner import Runner
from strata.layers.batch import Tap
from strata.runtime.apart import Apart
from strata.runtime.drafts import Drafting
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
    run = loaded.runner
    return Forgetful(loaded.model, run.ops, limits_of(loaded, slots), tap, run.states.kv_type, apart=lent(run))


def keeping(loaded: Loaded, slots: int, how: Keeping | None = None, drafting: Drafting | None = None) -> Runner:
    """A fresh runner that keeps conversations; without `drafting` no slot has drafts."""
    run = loaded.runner
    limits, kv_type = limits_of(loaded, slots), run.states.kv_type
    return DeviceRunner(loaded.model, run.ops, limits, None, kv_type, how, lent(run), drafting)


def lent(runner: DeviceRunner) -> Apart | None:
    """The runner's device, for another one over the same model."""
    return None if runner.apart is None else runner.apart.lent()


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
