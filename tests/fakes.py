"""A Runner without a model: the next token is a hash of all tokens so far."""

import hashlib
import threading
from collections.abc import Mapping, Sequence

from strata.core.errors import CapacityError, EngineError, RequestError, UnsupportedError
from strata.core.held import Held
from strata.core.limits import Limits
from strata.core.order import Order
from strata.core.sharing import SHARED, Sharing
from strata.core.window import Window
from strata.engine.runner import Drawn, Stepped
from strata.sampling.params import SamplingParams
from strata.speculate.accept import accepted


def next_token(tokens: Sequence[int], params: SamplingParams, vocabulary: int) -> int:
    """What the fake model says after `tokens`; the seed matters, so sampled sessions differ too."""
    text = f"{params.seed}:{','.join(map(str, tokens))}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) % vocabulary


class FakeRunner:
    """Keeps each slot's tokens, checks that windows continue them, and can fail or wait on demand.

    `steps` records every step's windows. `fail_at` holds numbers of step calls (from 1) that raise. `draft_depth`
    proposes that many tokens, every third of them wrong. With `gate` set, each step waits for a release of it.
    """

    def __init__(
        self, limits: Limits | None = None, vocabulary: int = 50, draft_depth: int = 0, keeps: bool = True
    ) -> None:
        self._limits = limits or Limits(slots=4, context=256, step_tokens=64)
        self.vocabulary = vocabulary
        self.draft_depth = draft_depth
        self.keeps = keeps
        self.fail_at: set[int] = set()
        self.fail_seat = False
        self.poisoned: set[int] = set()
        """Prompts that begin with one of these tokens fail their own windows once they are read."""
        self.fail_release = False
        self.gate: threading.Semaphore | None = None
        self.calls = 0
        self.steps: list[tuple[Window, ...]] = []
        self.released: list[int] = []
        self.entered = threading.Semaphore(0)
        """Released once on entry to every step."""
        self.states: dict[int, list[int]] = {slot: [] for slot in range(self._limits.slots)}
        self.pending: dict[int, int] = {}
        """The last drawn token of a slot, which its state does not hold yet."""
        self.params: dict[int, SamplingParams] = {}
        self.most: dict[int, int] = {}
        """What the sequence of a seated slot may grow to."""
        self.pool = self._limits.slots * self._limits.context
        """Tokens that all seated slots may come to hold together."""
        self.told_short: set[int] = set()
        """Slots without a page to write to."""
        self.orders: list[Order] = []
        self.closed = False

    @property
    def limits(self) -> Limits:
        """Fixed sizes."""
        return self._limits

    def known(self, tokens: Sequence[int]) -> int:
        """Longest prefix that any slot's whole state makes."""
        prefixes = (state for state in self.states.values() if state == list(tokens[: len(state)]))
        return max((len(state) for state in prefixes), default=0)

    def seat(
        self,
        slot: int,
        tokens: Sequence[int],
        params: SamplingParams,
        most: int | None = None,
        sharing: Sharing = SHARED,
    ) -> Held:
        """Cuts the slot's state back to the prefix it shares with `tokens`; windows are to end at every mark."""
        if self.fail_seat:
            raise EngineError("seat was told to fail")
        if slot in self.params:
            raise EngineError(f"slot {slot} is taken")
        seated = sum(self.most[other] for other in self.params)
        if most is not None and seated + most > self.pool:
            raise CapacityError(f"{most} tokens were asked, {self.pool - seated} are free", param="tokens")
        if max(tokens) >= self.vocabulary:
            raise RequestError(f"token {max(tokens)} is not in 0 to {self.vocabulary - 1}", param="tokens")
        state = self.states[slot]
        shared = 0
        while shared < min(len(state), len(tokens) - 1) and state[shared] == tokens[shared]:
            shared += 1
        self.states[slot] = state[: shared if self.keeps else 0]
        self.params[slot] = params
        self.most[slot] = most or self._limits.context
        return Held(len(self.states[slot]), stops=tuple(sorted(sharing.marks)))

    def release(self, slot: int) -> None:
        """The slot's request is over; its state stays."""
        if self.fail_release:
            raise EngineError("release was told to fail")
        del self.params[slot]
        self.pending.pop(slot, None)
        self.released.append(slot)

    def short(self, lengths: Mapping[int, int]) -> frozenset[int]:
        """Those that were told to be, as long as another one is not."""
        return frozenset(self.told_short & lengths.keys()) if lengths.keys() - self.told_short else frozenset()

    def draft(self, caps: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
        """Right guesses but for every third position."""
        drafts = {}
        for slot, cap in caps.items():
            text = [*self.states[slot], self.pending[slot]]
            for _ in range(min(cap, self.draft_depth)):
                token = self.says(text, slot)
                text.append(token if len(text) % 3 else (token + 1) % self.vocabulary)
            if drafted := text[len(self.states[slot]) + 1 :]:
                drafts[slot] = tuple(drafted)
        return drafts

    def step(self, windows: Sequence[Window]) -> list[Stepped]:
        """Runs the windows; a failing step changes nothing."""
        self.calls += 1
        self.entered.release()
        if self.gate is not None:
            self.gate.acquire()
        if self.calls in self.fail_at:
            raise EngineError(f"step {self.calls} was told to fail")
        rows = sum(len(window.tokens) for window in windows)
        slots = [window.slot for window in windows]
        if rows > self._limits.step_tokens or len(set(slots)) != len(slots):
            raise EngineError(f"a step of {rows} rows for slots {slots}")
        self.steps.append(tuple(windows))
        return [self._run(window) for window in windows]

    def says(self, text: Sequence[int], slot: int) -> int:
        """The token after `text`."""
        return next_token(text, self.params[slot], self.vocabulary)

    def _run(self, window: Window) -> Stepped:
        slot, state = window.slot, self.states[window.slot]
        if window.start != len(state) or window.end > self._limits.context:
            raise EngineError(f"{window} does not continue a state of {len(state)} tokens")
        text = [*state, *window.tokens]
        ends = range(len(text) - window.score + 1, len(text) + 1)
        drawn = [self.says(text[:end], slot) for end in ends]
        taken = accepted(window.tokens[len(window.tokens) - len(drawn) + 1 :], drawn) if drawn else 0
        drawn = drawn[: taken + 1]
        self.states[slot] = text[: len(text) - window.score + len(drawn)]
        if drawn and text[0] in self.poisoned:
            self.states[slot] = []
            return Stepped(slot, (), 0, "this prompt was told to fail")
        if drawn:
            self.pending[slot] = drawn[-1]
        tokens = tuple(Drawn(token, *self._scores(slot, token)) for token in drawn)
        return Stepped(slot, tokens, len(self.states[slot]))

    def _scores(self, slot: int, token: int) -> tuple[float | None, tuple[tuple[int, float], ...]]:
        wanted = self.params[slot].logprobs
        if wanted < 0:
            return None, ()
        return -0.5, tuple(((token + i) % self.vocabulary, -0.5 - i) for i in range(wanted))

    def order(self, order: Order) -> Mapping[str, int]:
        """Only counts; restoring is refused."""
        if order.verb == "restore":
            raise UnsupportedError("nothing is kept")
        self.orders.append(order)
        return {"orders": len(self.orders)}

    def close(self) -> None:
        """Remembers it."""
        self.closed = True

    def status(self) -> Mapping[str, object]:
        """How many step calls there were."""
        return {"calls": self.calls}
