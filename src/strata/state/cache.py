"""Prefix cache: sequences go on from what any earlier one left behind, also while that one is still running.

One is asked when a slot gets a sequence (`seat`), told of every committed length (`committed`) and of the end
(`release`, `fail`). What is kept is never changed: a slot that goes on from it copies the page it writes to.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import numpy as np

from strata.core.errors import CapacityError, UnsupportedError
from strata.core.held import Held
from strata.core.order import Order
from strata.core.sharing import SHARED, Sharing
from strata.state.archive import ArchiveError, key_of
from strata.state.prefix import Blob, Match, Node, PrefixTree, Tokens
from strata.state.promises import Need, safe
from strata.state.stops import Spacing
from strata.state.tiers import Tiers


class PrefixCache:
    """Everything but the tensors; `Tiers.contents` has those."""

    def __init__(self, tiers: Tiers, spacing: Spacing, ahead: int = 8) -> None:
        """A sequence is promised `ahead` pages behind its prompt, and as many again when it has filled them."""
        self.tiers = tiers
        self.tree: PrefixTree = tiers.tree
        self.pages = tiers.pages
        self.spacing = spacing
        self.ahead = ahead
        self.stops: dict[int, frozenset[int]] = {}
        self.paths: dict[int, Node] = {}
        """What a slot's sequence goes on from, or has left behind; pinned."""
        self.made: dict[int, list[Node]] = {}
        """What its present sequence has left behind."""
        self.waiting: frozenset[int] = frozenset()
        """Slots that sit the step out, for there is no page that they could write to."""
        self.hits: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self._status: dict[str, object] | None = None
        if tiers.disk is not None:
            self.find_files()

    def find_files(self) -> None:
        """Put what lies on disk into the tree; what cannot be used gets a warning and counts for nothing."""
        disk = self.tiers.disk
        assert disk is not None
        nodes = {self.tree.root.key: self.tree.root}
        entries = disk.archive.scan(
            lambda error: self.tiers.log.warning("file ignored", file=error.file, reason=error.reason)
        )
        for entry in entries:
            parent = nodes.get(entry.parent)
            if parent is None or entry.start > parent.end:
                with suppress(OSError):
                    disk.archive.delete(entry.key)  # what it goes on from is gone
                continue
            node = self.tree.add(entry.key, Match(parent, entry.start), entry.tokens)
            node.saved, node.saved_state = entry.nbytes, entry.state
            nodes[entry.key] = node
        for entry in sorted(entries, key=lambda entry: entry.used):
            if entry.key in nodes:
                self.tree.touch(nodes[entry.key])
        self.tiers.make_disk(0)

    # --- a slot's sequence -----------------------------------------------------------------------------------

    def known(self, tokens: Sequence[int]) -> int:
        """How many leading tokens need no reading."""
        ids = np.asarray(tokens, np.int64)
        return self.tree.match(ids, len(ids) - 1).length

    def seat(self, slot: int, tokens: Sequence[int], most: int, sharing: Sharing = SHARED) -> tuple[Held, Blob]:
        """Give the empty `slot` what is kept of `tokens` -> (what it holds, the recurrent state to begin with).

        Its prompt and some tokens more have their pages for certain, for the others up to `most` it may have to wait.
        CapacityError, with the slot untouched, when such a sequence finds no room beside the others.
        """
        self.tiers.poll()
        self._status = None
        ids, most = np.asarray(tokens, np.int64), max(most, len(tokens))
        first = min(most, len(ids) + self.ahead * self.pages.page)
        if self.waiting:
            raise CapacityError(f"{len(self.waiting)} conversations that are under way wait for pages", param="tokens")
        if not any(self.pages.claims):
            self.tiers.settle()  # what is on its way to disk could not give way, and nobody else would make room
        if not sharing.cached:
            self._with_room(ids, 0, first, most)
            self.pages.claim(slot, 0, first, most)
            self.hits["private"] += 1
            return Held(0), {}
        match, tier, state, match_s = self._bring(ids, len(ids) - 1, first, most)
        self.pages.adopt(slot, self.tree.places(match))
        self.pages.claim(slot, match.length, first, most)
        self.paths[slot], self.made[slot] = match.node, []
        stops = self._stops(ids, match.length, sharing.marks)
        self.stops[slot] = frozenset(stops) if self.tree.recurrent else frozenset((len(ids),))
        self.tree.touch(match.node)
        self.hits[tier if match.length else "none"] += 1
        self.tokens[tier] += match.length
        return Held(match.length, tier, stops, match_s), state

    def _stops(self, ids: Tokens, held: int, marks: Iterable[int]) -> tuple[int, ...]:
        """Where windows of a prompt end; without recurrent states any length will do, so none is cut for it."""
        if not self.tree.recurrent:
            return tuple(self.spacing.regular(held, len(ids)))
        return self.spacing.stops(held, len(ids), marks, self.tree.parted(ids))

    def _bring(self, ids: Tokens, limit: int, first: int, most: int) -> tuple[Match, str, Blob, float]:
        """The longest prefix that can be had, pinned and in the pool; where it was; its state; seconds of finding."""
        match_s = 0.0
        while True:
            began_s = time.perf_counter()
            match = self._with_room(ids, limit, first, most)
            match_s += time.perf_counter() - began_s
            self.tree.pin(match.node, 1)
            try:
                return (match, *self._load(match), match_s)
            except ArchiveError:  # the next longest, then
                self.tree.pin(match.node, -1)
            except BaseException:
                self.tree.pin(match.node, -1)
                raise

    def _with_room(self, ids: Tokens, limit: int, first: int, most: int) -> Match:
        """The longest match that leaves room for `first` tokens now and `most` later; at last none, so that all else
        can give way.
        """
        later = self.pages.count(most) - self.pages.count(first)
        needs = self.needs()
        for match in self.tree.shorter(self.tree.match(ids, limit)):
            path = match.node.path()
            loads = sum(self.tiers.span(node) for node in path if node.pages is None)
            needed = loads + self.pages.count(first) - self.pages.first_written(match.length)
            unused = self.tiers.reclaimable(but=path)
            spare = self.pages.room + unused - needed
            if spare >= 0 and safe(spare, [*needs, Need(later, needed)]):
                return match
        free, room = len(self.pages.free), self.pages.room
        raise CapacityError(
            f"{most} tokens need {needed + later} pages of {self.pages.page} ({needed} at once), "
            f"{max(0, room + unused)} of {self.pages.pages} can be had: {free} are free, {unused} hold prefixes that "
            f"nobody uses, {free - room} are promised, others may need {sum(need.lacks for need in needs)} more",
            param="tokens",
        )

    # --- pages for those that grow ---------------------------------------------------------------------------

    def needs(self) -> list[Need]:
        """Of all seated sequences."""
        used = {}
        for slot, held in enumerate(self.pages.held):
            if held or self.pages.claims[slot]:
                path = self.paths[slot].path() if slot in self.paths else []
                used[slot] = set(held).union(*(node.pages or () for node in path))
        users = Counter(page for pages in used.values() for page in pages)
        return [
            Need(
                max(0, self.pages.most[slot] - max(self.pages.claims[slot], len(self.pages.held[slot]))),
                self.pages.owed(slot) + sum(users[page] == 1 for page in pages),
            )
            for slot, pages in used.items()
        ]

    def short(self, lengths: Mapping[int, int]) -> frozenset[int]:
        """Which of the slots find no page for the length that they are to have now; the others were promised theirs.

        They are asked in order. Not all that are seated are short, once nothing is on its way to disk.
        """
        before, self.waiting = self.waiting, frozenset(slot for slot in lengths if not self._grown(slot, lengths[slot]))
        for slot in sorted(self.waiting - before):
            self._status = None
            self.tiers.log.info("waits for pages", slot=slot, tokens=lengths[slot], pages=self.pages.pages)
        return self.waiting

    def _grown(self, slot: int, length: int) -> bool:
        count, claims = self.pages.count(length), self.pages.claims
        before = claims[slot]
        if count <= before:
            return True
        self.tiers.poll()
        for pages in (min(count + self.ahead, self.pages.most[slot]), count):
            claims[slot] = max(pages, count)
            if safe(self.pages.room + self.tiers.reclaimable(), self.needs()):
                return True
        claims[slot] = before
        return False

    def _load(self, match: Match) -> tuple[str, Blob]:
        tier, node = self.tiers.load(match.node), match.node
        if not self.tree.recurrent or not match.length:
            return tier, {}
        if node.state is not None:
            return tier, node.state
        state = self.tiers.read(node, "state")
        if self.tiers.make_ram(self.tiers.contents.state_bytes):
            node.state = state
        return "disk", state

    def committed(self, slot: int, tokens: Tokens, opens: bool = False) -> None:
        """The slot's sequence is `tokens` now; kept when it has a length that is, or when what follows `opens`."""
        length = len(tokens)
        if self.keeps(slot, length, opens):
            # Without recurrent states its full pages are kept: what is written next lies on none of them.
            kept = length if self.tree.recurrent else length // self.pages.page * self.pages.page
            self._keep(slot, tokens[:kept], length)

    def keeps(self, slot: int, length: int, opens: bool = False) -> bool:
        """Whether the slot's sequence is kept at this length; its memory must be whole then."""
        return slot in self.paths and (opens or length in self.stops[slot] or length % self.spacing.every == 0)

    def release(self, slot: int, tokens: Tokens) -> None:
        """The slot's sequence is over, and whole; the slot's pages are to be emptied by the caller afterwards."""
        if slot not in self.paths:
            return
        self.tiers.poll()
        if len(tokens):
            self._keep(slot, tokens)
        path = self.paths[slot].path()
        self.forget(slot)
        for node in path:
            self.tiers.save(node)

    def fail(self, slot: int) -> None:
        """What the slot's sequence left behind cannot be trusted."""
        made = self.made.get(slot, [])
        self.forget(slot)
        for node in made:
            if not node.gone and not node.users:
                self.tiers.drop(node)

    def forget(self, slot: int) -> None:
        """The slot holds no sequence any more."""
        self._status = None
        self.waiting -= {slot}
        node = self.paths.pop(slot, None)
        if node is not None:
            self.tree.pin(node, -1)
            del self.stops[slot], self.made[slot]

    def _keep(self, slot: int, tokens: Tokens, goes_on: int | None = None) -> None:
        """Put `tokens` of the slot's sequence, which `goes_on` from that length, into the tree if there is room."""
        self._status = None
        base = self.tree.base(tokens)
        node, new = base.node, base.length < len(tokens)
        if goes_on is not None:
            # What it writes next may lie on a page that is shared from now on; the path cannot give way any more.
            copies = max(0, self.pages.count(len(tokens)) - self.pages.first_written(goes_on)) if new else 0
            spare = self.pages.room + self.tiers.reclaimable(but=node.path()) - copies
            if not safe(spare, self.needs()) or not (new or self.tree.recurrent):
                return
        if new or (self.tree.recurrent and node.state is None and not node.saved_state):
            self.tree.pin(node, 1)
            fits = self.tiers.make_ram(self.tiers.contents.state_bytes)
            self.tree.pin(node, -1)
            if not fits or node.gone:
                return
            if new:
                run = tokens[base.length :].copy()
                node = self.tree.add(key_of(base.node.key, base.length, run), base, run)
                node.pages = self.pages.held[slot][self.pages.first_written(node.start) : self.pages.count(node.end)]
                self.pages.retain(node.pages)
                if goes_on is not None:
                    self.pages.share(slot, goes_on)
                self.made[slot].append(node)
            node.state = self.tiers.contents.state_of(slot)
        self.tree.pin(node, 1)
        self.tree.pin(self.paths[slot], -1)
        self.paths[slot] = node
        self.tree.touch(node)

    # --- orders and counts -----------------------------------------------------------------------------------

    def order(self, order: Order) -> Mapping[str, int]:
        """See `Runner.order`."""
        self.tiers.poll()
        self._status = None
        if order.verb == "park":
            idle = [node for node in self.tree.nodes() if node.pages is not None and not node.users]
            for node in reversed(idle):
                if not node.gone:
                    self.tiers.park(node)
            return {"parked": sum(not node.gone for node in idle), "dropped": sum(node.gone for node in idle)}
        if order.verb == "save":
            return self._save_all()
        if order.verb == "clear":
            return self._clear()
        ids = np.asarray(order.tokens, np.int64)
        match, *_ = self._bring(ids, len(ids), len(ids), len(ids))
        self.tree.pin(match.node, -1)
        self.tree.touch(match.node)
        return {"tokens": match.length}

    def _save_all(self) -> Mapping[str, int]:
        if self.tiers.disk is None:
            raise UnsupportedError("no disk was given for conversations", "start with --state-disk-gib")
        unsaved = [node for node in self.tree.nodes() if not node.saved and not node.writing]
        # Pages on the way to disk cannot be freed, so they must not be ones that were promised.
        writing = 0
        for node in unsaved:
            spare = self.pages.room + self.tiers.reclaimable() - len(node.pages or ())
            writing += safe(spare, self.needs()) and self.tiers.save(node)
        return {"writing": writing, "left": len(unsaved) - writing}

    def _clear(self) -> Mapping[str, int]:
        """Keep nothing but what slots and the writer use; files go too."""
        nodes = self.tree.nodes()
        for node in nodes:
            if not (node.users or node.gone):
                self.tiers.drop(node)
        left = sum(not node.gone for node in nodes)
        return {"cleared": len(nodes) - left, "left": left}

    def status(self) -> Mapping[str, object]:
        """Plain values; what nothing changed is not counted again."""
        if self._status is None:
            nodes = self.tree.nodes()
            held = sum(len(node.pages) for node in nodes if node.pages is not None)
            disk = self.tiers.disk
            self._status = {
                "prefixes": len(nodes),
                "kept_pages": held,
                "bytes": {
                    "pages": held * self.tiers.contents.page_bytes,
                    "ram": self.tiers.ram(),
                    "disk": self.tiers.saved(),
                },
                "budget": {"ram": self.tiers.ram_budget, "disk": disk.budget if disk is not None else 0},
                "shared_pages": sum(holders > 1 for holders in self.pages.holders),
                "hits": dict(self.hits),
                "hit_tokens": dict(self.tokens),
                "moved": dict(self.tiers.moved),
            }
        return {
            "pages": self.pages.pages,
            "free_pages": len(self.pages.free),
            "promised_pages": len(self.pages.free) - self.pages.room,
            "waiting_slots": sorted(self.waiting),
            **self._status,
        }

    def close(self) -> None:
        """Write what waits to be written; then another process may have the folder."""
        if self.tiers.disk is not None:
            self.tiers.disk.writer.close()
            self.tiers.poll()
            if self.tiers.disk.lock is not None:
                self.tiers.disk.lock.release()

    def check(self) -> None:
        """Raise AssertionError when pages, pins or budgets do not add up."""
        nodes = self.tree.nodes()
        self.pages.check(page for node in nodes for page in node.pages or ())
        pinned = Counter(id(each) for node in self.paths.values() for each in node.path())
        pinned += Counter(id(each) for node in nodes if node.writing for each in node.path())
        assert all(node.users == pinned[id(node)] for node in nodes), "a path is pinned too often, or not at all"
        assert all(node.pages is not None or node.parked is not None or node.saved for node in nodes), "nowhere"
        assert all(node.pages is None or node.parked is None for node in nodes), "in the pool and in RAM"
        assert all(child.used <= node.used for node in nodes for child in node.children), "older than what is below"
        assert self.tiers.ram() <= self.tiers.ram_budget, "more in RAM than its budget"
        spare = self.pages.room + self.tiers.reclaimable()
        assert spare >= 0, "more was promised than can be had"
        paths = {each for node in self.paths.values() for each in node.path()}
        in_time = self.pages.room + self.tiers.freed_by(node for node in nodes if node not in paths)
        assert safe(in_time, self.needs()), "not everybody could grow to its most, one after the other"
