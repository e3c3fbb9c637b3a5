"""Prefixes that are kept, as a tree: what may be gone on with, and from where. Pure: ids, tokens and bytes.

A node is a run of tokens that was kept when its sequence had that length, on top of its parent's path. Its pages hold
the run (the first may begin with the end of the parent's run: the parent's last page, copied before it was written
to); its state is the recurrent memory at its end. Each lies in the pool of pages, in RAM, on disk, or in several.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from strata.state.pages import first_written

Tokens: TypeAlias = npt.NDArray[np.int64]
Blob: TypeAlias = Mapping[str, npt.NDArray[np.uint8]]
"""Bytes on the host, by name."""


@dataclass(eq=False, slots=True)
class Node:
    """One kept run of tokens."""

    key: bytes
    """Names the whole prefix: what its file is called."""
    parent: "Node | None"
    start: int
    """Position of the first token; at most the parent's end."""
    tokens: Tokens
    pages: list[int] | None = None
    """In the pool: the pages from the first on that is written to behind the start. None: not there."""
    parked: Blob | None = None
    """Their contents in RAM; never beside `pages`."""
    state: Blob | None = None
    """The recurrent state at `end` in RAM; of a model without one an empty blob."""
    saved: int = 0
    """Bytes on disk; 0: not there."""
    saved_state: bool = False
    """Whether the state is among them."""
    writing: bool = False
    """Whether they are on the way there."""
    gone: bool = False
    """Whether it was taken out of the tree."""
    users: int = 0
    """Slots and writers that need this node or one below it; it stays where it is."""
    used: int = 0
    """When it was last of use; never older than those below it."""
    children: list["Node"] = field(default_factory=list)

    @property
    def end(self) -> int:
        """Length of the whole prefix."""
        return self.start + len(self.tokens)

    def path(self) -> list["Node"]:
        """From the first run to this one; without the root."""
        nodes, node = [], self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def below(self) -> Iterator["Node"]:
        """This node and all under it, parents first."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.children


@dataclass(frozen=True, slots=True)
class Match:
    """The longest kept prefix of some tokens: the first `length` tokens of `node`'s path."""

    node: Node
    length: int


class PrefixTree:
    """All nodes. With `recurrent` a prefix can be gone on with only where a state was kept, else anywhere."""

    def __init__(self, page: int, recurrent: bool, root_key: bytes, rewrites: int = 0) -> None:
        """See `PageTable` for `rewrites`."""
        self.page = page
        self.rewrites = rewrites
        self.recurrent = recurrent
        self.root = Node(root_key, None, 0, np.empty(0, np.int64))
        self.clock = 0

    def nodes(self) -> list[Node]:
        """All but the root, parents first."""
        return [node for node in self.root.below() if node is not self.root]

    def match(self, tokens: Tokens, limit: int) -> Match:
        """The longest prefix of `tokens` that can be gone on with, at most `limit` tokens long."""
        best = Match(self.root, 0)
        for node, reached in self._walk(tokens[: max(0, limit)], self.recurrent):
            if reached > best.length and (not self.recurrent or node.state is not None or node.saved_state):
                best = Match(node, reached)
        return best

    def shorter(self, match: Match) -> Iterator[Match]:
        """The match, then every shorter one on its path that can be gone on with, at last the empty one."""
        yield match
        below, node = match.node, match.node.parent
        while node is not None:
            if node is self.root or not self.recurrent or node.state is not None or node.saved_state:
                yield Match(node, below.start)
            below, node = node, node.parent

    def base(self, tokens: Tokens) -> Match:
        """The longest prefix of `tokens` that a node can be put on."""
        return max((Match(*found) for found in self._walk(tokens, self.recurrent)), key=lambda match: match.length)

    def parted(self, tokens: Tokens) -> int:
        """How many leading tokens any kept sequence shares with these, whether or not it can be gone on with there."""
        return max(reached for _, reached in self._walk(tokens, False))

    def _walk(self, tokens: Tokens, whole: bool) -> Iterator[tuple[Node, int]]:
        """(node, length of `tokens` that its path covers), parents first; perhaps `whole` nodes only."""
        open_ = [(self.root, 0)]
        while open_:
            node, reached = open_.pop()
            yield node, reached
            for child in node.children:
                if child.start <= reached and child.start < len(tokens):
                    count = common(child.tokens, tokens[child.start :])
                    if count == len(child.tokens) or (count and not whole):
                        open_.append((child, child.start + count))

    def add(self, key: bytes, base: Match, tokens: Tokens) -> Node:
        """Put `tokens` (those after the base) under it."""
        node = Node(key, base.node, base.length, tokens)
        base.node.children.append(node)
        self.touch(node)
        return node

    def remove(self, node: Node) -> None:
        """Take a node out, and with it all below."""
        assert node.parent is not None
        node.parent.children.remove(node)
        for each in node.below():
            each.gone = True

    def touch(self, node: Node) -> None:
        """The node, and so its path, is of use now."""
        self.clock += 1
        for each in node.path():
            each.used = self.clock

    def pin(self, node: Node, by: int) -> None:
        """Its path is needed by one more (or, with -1, less)."""
        for each in node.path():
            each.users += by
            assert each.users >= 0, "a path was given up twice"

    def places(self, match: Match) -> list[int]:
        """The pages that hold the match, by place; every node of its path must be in the pool."""
        found: list[int] = []
        for node in match.node.path():
            assert node.pages is not None
            found[first_written(node.start, self.page, self.rewrites) :] = node.pages
        return found[: -(-match.length // self.page)]


def oldest(nodes: Sequence[Node]) -> Node | None:
    """Who was of use longest ago; of one path the end first."""
    return min(nodes, key=lambda node: (node.used, -node.end), default=None)


def common(left: Tokens, right: Tokens) -> int:
    """How many leading tokens are equal."""
    size = min(len(left), len(right))
    if size == 0 or left[0] != right[0]:
        return 0
    differs = left[:size] != right[:size]
    first = int(differs.argmax())
    return first if differs[first] else size
