"""Rounding with error feedback where a tensor's Hessian is known, for `write_model`."""

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock

from strata.convert.hessian import Hessians
from strata.convert.tensors import Bytes, Floats
from strata.convert.types import Choice
from strata.quant.feedback import Factors, factors, rounded, supported

KEPT = 8
"""Factors held at once: pieces of a few matrices are in work at the same time."""


@dataclass(slots=True)
class Feedback:
    """Chooses codes again, by what their matrix reads (quant/feedback.py)."""

    hessians: Hessians
    lock: Lock = field(default_factory=Lock)
    held: OrderedDict[tuple[str, int], Factors] = field(default_factory=OrderedDict)

    def covers(self, choice: Choice) -> bool:
        """Whether the tensor's format and what is known of its inputs allow it."""
        moments = self.hessians.get(choice.item.name)
        return supported(choice.format) and not choice.copied and moments is not None and bool(moments.rows.any())

    def rounded(self, choice: Choice, matrix: int, rows: Floats, raw: Bytes) -> Bytes:
        """`raw`, which is `rows` of a matrix encoded, with better codes; as it is where nothing is known."""
        return rounded(choice.format, raw, rows, self.factors(choice.item.name, matrix)) if self.covers(choice) else raw

    def factors(self, name: str, matrix: int) -> Factors:
        """Made once for all pieces of a matrix, or twice when two threads come at once."""
        key = (name, matrix)
        with self.lock:
            known = self.held.get(key)
        if known is not None:
            return known
        hessian = self.hessians[name].of(matrix)
        assert hessian is not None
        made = factors(hessian)
        with self.lock:
            self.held[key] = made
            while len(self.held) > KEPT:
                self.held.popitem(last=False)
        return made
