"""What an answer must look like, as a request carries it. Pure: no torch, no numpy."""

import base64
import binascii
import json
from dataclasses import dataclass

from strata.core.errors import RequestError


@dataclass(frozen=True, slots=True)
class Constraint:
    """A grammar, a limit of reasoning, or both."""

    grammar: str = ""
    """In llguidance's form (Lark, or JSON of several); empty: any text. It covers the answer from its first token."""
    budget: int | None = None
    """Tokens after which reasoning that is still open is closed."""
    close: str = "</think>"
    """What ends reasoning."""
    closing: str = "\n</think>\n\n"
    """What is written to end it."""
    most: int | None = None
    """Tokens of the answer, its stop included, within which it is brought to its end; None: it takes what it takes."""
    marks: str = ""
    """Text is free but for these characters, which may commit an answer to more; empty: any may."""
    closings: tuple[str, ...] = ()
    """What ends free text, and calls: where one fits, it leads to the end."""
    names: tuple[str, ...] = ()
    """What may be written where there is a choice of names: the first that fits leads to the nearest end."""
    opened: bool = True
    """The prompt has begun the reasoning; else the answer does, or has none, by beginning with `open`."""
    open: str = "<think>"

    def __post_init__(self) -> None:
        if self.budget is not None and self.budget < 0:
            raise RequestError(f"a budget of reasoning is 0 tokens or more, found {self.budget}", param="mask")
        if self.most is not None and self.most < 1:
            raise RequestError(f"an answer has 1 token or more, found most={self.most}", param="mask")
        if not self.close or self.close not in self.closing:
            raise RequestError("what is written to end reasoning must contain its end", param="mask")

    def written(self) -> str:
        """One word for a protocol line."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode()


def read_constraint(word: str) -> Constraint:
    """The constraint of a protocol line's word; ValueError for anything else."""
    try:
        fields = json.loads(base64.b64decode(word, altchars=b"-_", validate=True))
        lists = {name: tuple(fields[name]) for name in ("closings", "names") if name in fields}
        made = Constraint(**{**fields, **lists})
    except (binascii.Error, ValueError, TypeError, RecursionError) as error:
        raise ValueError("expected a constraint (base64url of a JSON object)") from error
    texts = (made.grammar, made.close, made.closing, made.open, made.marks, *made.closings, *made.names)
    whole = isinstance(made.budget, int | None) and isinstance(made.most, int | None) and isinstance(made.opened, bool)
    if not whole or not all(isinstance(text, str) for text in texts):
        raise ValueError("a constraint has texts and a whole number")
    return made
