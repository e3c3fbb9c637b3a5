"""How many of a layer's missing experts the GPU reads over PCIe, while the CPU computes the others. Pure.

Both begin at once and the layer goes on when the slower one is done. A model of two straight lines finds the balance;
what really happened corrects it. A mixture is a bet, though: CPU and PCIe share the host's memory. So the three
policies (all CPU, all PCIe, mixed) are measured side by side, the best one is used, and the others are tried again only
as long as all trials together cost about `TRIALS` of the time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Policy = Literal["cpu", "pcie", "mixed"]
POLICIES: tuple[Policy, ...] = ("cpu", "pcie", "mixed")

TRIALS = 0.01
"""Part of the time that trials of policies which are not the best may cost."""
GAIN = 0.1
"""Weight of one observation."""
LARGEST_STEP = 2.0
"""An observation counts as off by this factor at most: one page fault is not a trend."""
DOUBT, UNSEEN = 1.5, 4.0
"""How much longer than expected a trial may take, of a policy that was used before and of one that never was."""
SETTLED = 1 << 30
"""Observations after which one more weighs `GAIN`."""
LAST = 0.05
"""Part of a call's time that the GPU waits at least where the CPU was the last."""
LEARNING_STEPS = 64
"""Steps in which the split hears of every layer."""
TOLD = 4
"""Layers of which it hears in a correction later: each takes the host some 40 us, 48 of them 2 ms."""
REST = 32
"""Observations of a bucket between two trials in it."""


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds for n experts: start + each * n, and nothing for none."""

    start: float
    each: float

    def at(self, n: int) -> float:
        """Seconds for `n` experts."""
        return self.start + self.each * n if n else 0.0

    def corrected(self, n: int, seconds: float) -> "Line":
        """Drawn a little towards `n` experts having taken `seconds`, by the least change of both parts: so calls of
        several sizes tell what belongs to the start and what to an expert."""
        off = self.at(n) * (_pull(seconds / self.at(n), SETTLED) - 1.0)
        start, each = self.start + off / (1 + n * n), self.each + off * n / (1 + n * n)
        if start < 0.0:
            return Line(0.0, each + start / n)
        return Line(start, each) if each >= 0.0 else Line(start + each * n, 0.0)


def fit_line(samples: Sequence[tuple[int, float]]) -> Line:
    """The least-squares line through (n, seconds), neither part negative; from the measurement at the start."""
    if not samples or any(n < 1 or seconds <= 0.0 for n, seconds in samples):
        raise ValueError(f"a line needs times of one expert or more, found {samples}")
    n = np.array([s[0] for s in samples], float)
    t = np.array([s[1] for s in samples], float)
    each = float(t.sum() / n.sum())
    spread = float(((n - n.mean()) ** 2).sum())
    if spread > 0.0:
        slope = float(((n - n.mean()) * (t - t.mean())).sum()) / spread
        start = float(t.mean() - slope * n.mean())
        if slope > 0.0 and start >= 0.0:
            return Line(start, slope)
    return Line(0.0, each)


def balance(misses: int, cpu: Line, pcie: Line) -> int:
    """How many of `misses` over PCIe make the slower side fastest; one at least on each side where there are two."""
    if misses < 2:
        return 0
    near = range(1, misses)
    if pcie.each > 0.0 and cpu.each > 0.0:
        # Where the lines cross, give or take what rounding does.
        crossing = (cpu.start - pcie.start + cpu.each * misses) / (pcie.each + cpu.each)
        cross = int(min(max(crossing, 0.0), misses))
        first = min(max(cross - 1, 1), misses - 1)
        near = range(first, max(first + 1, min(cross + 3, misses)))
    return min(near, key=lambda n: (max(pcie.at(n), cpu.at(misses - n)), n))


def fixed_table(share: float, most: int) -> npt.NDArray[np.int32]:
    """[most + 1]: for every number of misses, how many go over PCIe when the person asked for `share` of them."""
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"a share from 0 to 1 is needed, found {share}")
    table: npt.NDArray[np.int32] = np.rint(share * np.arange(most + 1)).astype(np.int32)
    return table


def told(layers: Sequence[int], steps: int, every: int) -> Sequence[int]:
    """Those of `layers`, that missed experts, of which the split hears after `steps` steps, corrected every `every`:
    all of them at first, then some, others each time."""
    if steps <= LEARNING_STEPS or len(layers) <= TOLD:
        return layers
    first = steps // every * TOLD
    return [layers[(first + i) % len(layers)] for i in range(TOLD)]


class Experience:
    """Measured over modelled time of one policy: per bucket where it was used there, else over all buckets."""

    def __init__(self, buckets: int) -> None:
        self.overall = 1.0
        self.total = 0
        self.ratio = np.ones(buckets)
        self.seen = np.zeros(buckets, int)

    def at(self, bucket: int) -> float:
        """The factor on the model's time."""
        return float(self.ratio[bucket]) if self.seen[bucket] else self.overall

    def add(self, bucket: int, factor: float) -> None:
        """One more measurement; the first ones weigh most."""
        if not self.seen[bucket]:
            self.ratio[bucket] = self.overall
        self.ratio[bucket] *= _pull(factor / float(self.ratio[bucket]), int(self.seen[bucket]))
        self.overall *= _pull(factor / self.overall, self.total)
        self.seen[bucket] += 1
        self.total += 1


class Split:
    """The split for layers whose experts have one size."""

    def __init__(self, cpu: Line, pcie: Line, most: int) -> None:
        """`cpu` and `pcie` as measured alone; `most` is the largest number of misses of a call."""
        self.pure: dict[Policy, Line] = {"cpu": cpu, "pcie": pcie}
        self.cpu, self.pcie = cpu, pcie
        """As they are beside each other; these find the balance."""
        self.asking = 0.0
        """Seconds between the sorting of experts and what the CPU computed being there, in which it did not compute."""
        self.most = most
        buckets = bucket_of(most) + 1
        self.known = {policy: Experience(buckets) for policy in POLICIES}
        self.rest = np.full(buckets, REST)
        self.trial: dict[int, Policy] = {}
        """Buckets in which another policy than the best one is being tried."""
        self.seconds = 0.0
        self.trial_seconds = 0.0
        self.known_table = np.array([self.over_pcie(m) for m in range(most + 1)], np.int32)

    def table(self, reach: int | None = None) -> npt.NDArray[np.int32]:
        """[most + 1]: for every number of misses, how many of them go over PCIe now.

        Only the first `reach` (all) are found anew, which takes some microseconds each.
        """
        count = self.most + 1 if reach is None else min(reach, self.most + 1)
        self.known_table[:count] = [self.over_pcie(m) for m in range(count)]
        return self.known_table.copy()

    def over_pcie(self, misses: int) -> int:
        """Experts over PCIe of `misses`."""
        if misses < 1:
            return 0
        policy = self.trial.get(bucket_of(misses), self.best(misses))
        return {"cpu": 0, "pcie": misses, "mixed": balance(misses, self.cpu, self.pcie)}[policy]

    def best(self, misses: int) -> Policy:
        """The policy that is fastest by all that is known."""
        return min(_open_to(misses), key=lambda policy: self.expected(policy, misses))

    def expected(self, policy: Policy, misses: int) -> float:
        """Seconds. Nobody is slower alone than beside the other, so what mixtures show bounds the pure policies."""
        own = self._modelled(policy, misses) * self.known[policy].at(bucket_of(misses))
        return own if policy == "mixed" else min(own, (self.cpu if policy == "cpu" else self.pcie).at(misses))

    def _modelled(self, policy: Policy, misses: int) -> float:
        if policy != "mixed":
            return self.pure[policy].at(misses)
        n = balance(misses, self.cpu, self.pcie)
        return max(self.pcie.at(n), self.cpu.at(misses - n))

    def observe(self, misses: int, over_pcie: int, seconds: float, cpu_seconds: float, waited: float) -> None:
        """A call took `seconds` until all experts were there; the CPU worked `cpu_seconds` of it (0: it had none), and
        the GPU `waited` for it after all that was its own."""
        if misses < 1 or seconds <= 0.0:
            return
        policy: Policy = "cpu" if over_pcie == 0 else "pcie" if over_pcie == misses else "mixed"
        bucket = bucket_of(misses)
        expected = {p: self.expected(p, misses) for p in _open_to(misses)}
        self.seconds += seconds
        if self.trial.get(bucket) == policy:
            self.trial_seconds += max(0.0, seconds - min(expected.values()))
        self.known[policy].add(bucket, seconds / self._modelled(policy, misses))
        if policy == "mixed":
            self._rebalance(misses, over_pcie, seconds, cpu_seconds, waited)
        elif policy == "cpu" and self.cpu.at(misses) < seconds:
            self.cpu = self.cpu.corrected(misses, seconds)
        elif policy == "pcie" and self.pcie.at(misses) < seconds:
            self.pcie = self.pcie.corrected(misses, seconds)
        self._plan_trial(misses, bucket, policy)

    def _rebalance(self, misses: int, over_pcie: int, seconds: float, cpu_seconds: float, waited: float) -> None:
        """Correct both lines by what each side took, asking and answering among it."""
        self.pcie = self.pcie.corrected(over_pcie, seconds - waited)
        if cpu_seconds <= 0.0:
            return
        if waited > LAST * seconds:
            self.asking += GAIN * (seconds - cpu_seconds - self.asking)
            self.cpu = self.cpu.corrected(misses - over_pcie, seconds)
        else:  # it was done first, nobody knows when
            self.cpu = self.cpu.corrected(misses - over_pcie, min(seconds, cpu_seconds + self.asking))

    def _plan_trial(self, misses: int, bucket: int, policy: Policy) -> None:
        """End the bucket's trial, or begin one: of the policy that is likeliest better, when the costs allow it."""
        if self.trial.get(bucket) == policy:
            del self.trial[bucket]
            self.rest[bucket] = REST
            return
        self.rest[bucket] -= 1
        if self.rest[bucket] > 0 or bucket in self.trial:
            return
        best = self.best(misses)
        least = self.expected(best, misses)
        for other in sorted((p for p in _open_to(misses) if p != best), key=lambda p: self.known[p].seen[bucket]):
            worst = self.expected(other, misses) * (DOUBT if self.known[other].total else UNSEEN)
            if self.trial_seconds + worst - least <= TRIALS * self.seconds:
                self.trial[bucket] = other
                return


def _open_to(misses: int) -> tuple[Policy, ...]:
    """A single expert cannot be split."""
    return POLICIES if misses > 1 else POLICIES[:2]


def bucket_of(misses: int) -> int:
    """Calls with about as many misses share their experience: 1 to 16 each alone, then eight buckets to a doubling."""
    if misses <= 16:
        return max(0, misses - 1)
    doubling = (misses - 1).bit_length() - 5
    return 16 + 8 * doubling + ((misses - 1 - (16 << doubling)) >> (doubling + 1))


def _pull(factor: float, seen: int) -> float:
    """What an observation that was off by `factor` multiplies an estimate by, after `seen` earlier ones."""
    step = min(max(factor, 1.0 / LARGEST_STEP), LARGEST_STEP)
    return float(step ** max(GAIN, 1.0 / (seen + 2)))
