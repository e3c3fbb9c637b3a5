"""How many conversations run at once, how long they may get, and the pages they share. Pure.

Pages are shared by use: one conversation may fill them all, so room for the longest one and something for each further
one is enough, and not room for the longest one times their number.
"""

from dataclasses import dataclass

from strata.core.errors import UsageError
from strata.state.pages import PAGE

SHARE_OF_CONTEXT, MOST_SHARE = 1 / 8, 4096
"""Tokens that every further conversation adds to the pool at least: a part of the model's context, at most so many."""
SHARE_FOR_FURTHER = 0.25
"""Part of the room for states that "auto" leaves to further conversations where the longest one could fill it all."""
LEAST_CONTEXT = 256


@dataclass(frozen=True, slots=True)
class StateRoom:
    """Memory for sequence states."""

    usual: int
    """What "auto" fills at most."""
    most: int
    """What there is."""
    pages: int | None = None
    """Of it for pages, as asked (--kv-gib); None: what recurrent states leave."""


@dataclass(frozen=True, slots=True)
class StateSizes:
    """Bytes of a conversation."""

    token: int
    sequence: int
    """Whatever its length."""
    context: int
    """Tokens the model was trained for."""

    @property
    def further(self) -> int:
        """Bytes that one more conversation needs beside the longest."""
        return self.sequence + int(min(MOST_SHARE, SHARE_OF_CONTEXT * self.context)) * self.token

    def whole(self, tokens: int) -> int:
        """Bytes of a conversation that long."""
        return tokens * self.token + self.sequence


def choose_context(sizes: StateSizes, asked: int | None, wanted: int, states: StateRoom) -> tuple[int, str]:
    """Tokens a conversation may have: as asked, else the trained context, else what the room for states holds."""
    if asked is not None:
        if asked > sizes.context:
            raise UsageError(
                f"--ctx-size {asked}: the model was trained for {sizes.context} tokens", "ask for that or less"
            )
        check_context(sizes, asked, states)
        return asked, "as asked"
    room = states.usual - min((wanted - 1) * sizes.further, int(SHARE_FOR_FURTHER * states.usual)) - sizes.sequence
    room = room if states.pages is None else states.pages
    fits = sizes.context if not sizes.token else room // sizes.token
    if fits >= sizes.context:
        return sizes.context, "the model's own"
    if fits < LEAST_CONTEXT:
        raise UsageError(f"the states of one conversation do not fit: {states.usual >> 20} MiB are free for them")
    tokens = fits // LEAST_CONTEXT * LEAST_CONTEXT
    return tokens, f"{room >> 20} MiB hold no more at {sizes.token} bytes a token"


def check_context(sizes: StateSizes, tokens: int, states: StateRoom) -> None:
    """UsageError unless a conversation that long fits the memory, and the pages that were asked for."""
    if states.pages is not None and states.pages > states.most:
        raise UsageError(
            f"--kv-gib {states.pages / (1 << 30):g}: {states.most / (1 << 30):.1f} GiB are free", "ask for less"
        )
    if sizes.whole(tokens) > states.most:
        raise UsageError(
            f"a conversation of {tokens} tokens needs {sizes.whole(tokens) >> 20} MiB, {states.most >> 20} MiB are "
            "free",
            "ask for a smaller --ctx-size",
        )
    if states.pages is not None and page_count(tokens) * PAGE * sizes.token > states.pages:
        raise UsageError(
            f"--kv-gib {states.pages / (1 << 30):g}: a conversation of {tokens} tokens needs "
            f"{page_count(tokens) * PAGE * sizes.token / (1 << 30):.3g} GiB of pages",
            "ask for more, or for a smaller --ctx-size",
        )


def choose_slots(sizes: StateSizes, tokens: int, wanted: int, automatic: bool, states: StateRoom) -> tuple[int, str]:
    """How many conversations run at once: as many of `wanted` as fit the room for states, but one at least."""
    if wanted < 1:
        raise UsageError(f"--parallel {wanted}: at least one slot is needed")
    if states.pages is None:
        room, each = states.usual - sizes.whole(tokens), sizes.further
    else:
        room, each = states.most - states.pages - sizes.sequence, sizes.sequence
    fits = wanted if not each else max(1, 1 + room // each)
    if wanted <= fits:
        return wanted, "default" if automatic else "as asked"
    return fits, (
        f"{states.usual >> 20} MiB for states hold {fits} of {wanted} conversations: "
        f"{sizes.whole(tokens) >> 20} MiB for the longest, {each >> 20} MiB for each further one"
    )


def choose_pages(sizes: StateSizes, tokens: int, slots: int, states: StateRoom) -> tuple[int, str]:
    """Pages that all conversations share."""
    one, nbytes = page_count(tokens), PAGE * sizes.token
    every = slots * one
    if states.pages is not None and nbytes:
        return states.pages // nbytes, f"as asked: {states.pages // nbytes * PAGE} tokens of all conversations"
    fits = every if not nbytes else (states.usual - slots * sizes.sequence) // nbytes
    if fits >= every:
        return every, f"as many as {slots} conversations of {tokens} tokens fill"
    pages = max(one, fits)
    return pages, (
        f"{pages * nbytes >> 20} MiB for {pages * PAGE} tokens of all conversations; one may have {tokens}, and who "
        "finds no page waits for the others"
    )


def page_count(tokens: int) -> int:
    """Pages that hold so many tokens."""
    return -(-tokens // PAGE)
