"""Where every operation's input comes from: catches a dropped residual or a block that reads the wrong values."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from strata.parity.figures import INPUT_TOLERANCE, Figure, difference
from strata.parity.forward import Tensors
from strata.parity.settings import Settings
from strata.parity.weights import Array

Maybe = Array | None


def added(a: Maybe, b: Maybe) -> Maybe:
    """a + b; unknown when either is, or when they do not fit (which the operation's own check says)."""
    return None if a is None or b is None or a.shape != b.shape else a + b


class Wiring:
    """Follows the residual through one step list; call `check` for every operation in order.

    A value that was not reported is unknown, and what depends on it is not checked.
    """

    def __init__(self, settings: Settings, taps: dict[str, Tensors]) -> None:
        self.s, self.taps = settings, taps
        self.residual: Maybe = None
        self.block_input: Maybe = None
        self.block_output: Maybe = None
        self.inject: Maybe = None

    def check(self, op: str) -> list[Figure]:
        """The inputs of `op` against what went before, then the values it hands on."""
        leaf = op.split(".", 2)[2] if op.startswith("blk.") else op
        step = STEPS.get(leaf)
        return [] if step is None else step(self, op)

    def get(self, op: str, part: str) -> Maybe:
        """A reported tensor in float64, if there is one."""
        value: npt.NDArray[np.generic] | None = self.taps[op].get(part)
        return None if value is None else value.astype(np.float64)

    def same(self, op: str, part: str, wanted: Maybe) -> list[Figure]:
        """Hold one input to the value it should be."""
        got = self.get(op, part)
        if got is None or wanted is None:
            return []
        return difference(op, f"input {part}", got, wanted, INPUT_TOLERANCE)

    def embed(self, op: str) -> list[Figure]:
        """The residual starts as the embedding, once per stream."""
        y = self.get(op, "y")
        self.residual = np.tile(y, (1, self.s.streams)) if self.s.streams and y is not None else y
        return []

    def read(self, op: str) -> list[Figure]:
        """A norm or a hyper-connection read before a block."""
        found = self.same(op, "x", self.residual)
        mixed = self.get(op, "mixed")
        self.block_input = self.get(op, "y") if mixed is None else mixed
        self.inject = self.get(op, "inject")
        return found

    def block(self, op: str) -> list[Figure]:
        """A mixer or a feed-forward: added to a plain residual at once."""
        found = self.same(op, "x", self.block_input)
        self.block_output = self.get(op, "y")
        if not self.s.streams:
            self.residual = added(self.residual, self.block_output)
        return found

    def router(self, op: str) -> list[Figure]:
        """The router sees what the experts see."""
        return self.same(op, "x", self.block_input)

    def write(self, op: str) -> list[Figure]:
        """A hyper-connection write after a block."""
        found = self.same(op, "x", self.residual)
        found += self.same(op, "block", self.block_output) + self.same(op, "inject", self.inject)
        self.residual = self.get(op, "y")
        return found

    def add(self, op: str) -> list[Figure]:
        """The n-gram embedding: streams in, streams out."""
        found = self.same(op, "x", self.residual)
        self.residual = self.get(op, "y")
        return found

    def head(self, op: str) -> list[Figure]:
        """The head reads the last norm's output."""
        return self.same(op, "x", self.block_input)


STEPS: dict[str, Callable[[Wiring, str], list[Figure]]] = {
    "embed": Wiring.embed,
    "attn_norm": Wiring.read,
    "ffn_norm": Wiring.read,
    "hyper_attn.read": Wiring.read,
    "hyper_ffn.read": Wiring.read,
    "attention": Wiring.block,
    "delta_net": Wiring.block,
    "router": Wiring.router,
    "moe": Wiring.block,
    "ffn": Wiring.block,
    "hyper_attn.write": Wiring.write,
    "hyper_ffn.write": Wiring.write,
    "ple": Wiring.add,
    "output_hyper": Wiring.read,
    "output_norm": Wiring.read,
    "head": Wiring.head,
}
