"""Where kept prefixes lie: pool of pages, RAM, disk. Decides by budgets and least recent use; torch is not needed.

A prefix goes down when a tier is full: pages are copied into RAM, what is in RAM is dropped when it is on disk too,
else it is gone; files are deleted. Nothing that a slot or a writer needs moves (`Node.users`).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from strata.core.log import Log
from strata.state.archive import Archive, ArchiveError
from strata.state.lock import FolderLock
from strata.state.pages import PageTable
from strata.state.prefix import Blob, Node, PrefixTree, oldest
from strata.state.writer import Job, Writer, Written


class Contents(Protocol):
    """The tensors behind pages and slots."""

    @property
    def page_bytes(self) -> int:
        """Of one page, in all layers."""
        ...

    @property
    def state_bytes(self) -> int:
        """Of one recurrent state; 0: the model has none."""
        ...

    def gather(self, pages: Sequence[int]) -> Blob:
        """Copy the pages' contents to the host; from any thread."""
        ...

    def scatter(self, pages: Sequence[int], blob: Blob) -> None:
        """The way back."""
        ...

    def state_of(self, slot: int) -> Blob:
        """Copy the slot's recurrent state to the host."""
        ...


@dataclass(frozen=True, slots=True)
class Disk:
    """Files and the thread that writes them."""

    archive: Archive
    writer: Writer
    budget: int
    """Bytes."""
    lock: FolderLock | None = None
    """Keeps other processes out of the folder; None: nobody else knows it."""


class Tiers:
    """Moves nodes between tiers; every byte is counted."""

    def __init__(
        self, tree: PrefixTree, pages: PageTable, contents: Contents, ram_budget: int, disk: Disk | None, log: Log
    ) -> None:
        self.tree = tree
        self.pages = pages
        self.contents = contents
        self.ram_budget = ram_budget
        self.disk = disk
        self.log = log
        self.unwritten = ""
        """Why the last file could not be written; empty when it could."""
        self.moved: Counter[str] = Counter()
        """What had to give way: parked, dropped, deleted, and files that could not be written or read."""

    # --- counts ----------------------------------------------------------------------------------------------

    def ram_of(self, node: Node) -> int:
        """Bytes in RAM."""
        parked = 0 if node.parked is None else self.span(node) * self.contents.page_bytes
        return parked + (0 if node.state is None else self.contents.state_bytes)

    def span(self, node: Node) -> int:
        """Pages of the node's run."""
        return self.pages.count(node.end) - self.pages.first_written(node.start)

    def ram(self) -> int:
        """Bytes in RAM, of all."""
        return sum(self.ram_of(node) for node in self.tree.nodes())

    def saved(self) -> int:
        """Bytes on disk, and on the way there."""
        return sum(self.size(node) if node.writing else node.saved for node in self.tree.nodes())

    def size(self, node: Node) -> int:
        """Bytes of its file."""
        pages = self.span(node) * self.contents.page_bytes
        return 0 if self.disk is None else self.disk.archive.size(len(node.tokens), pages + self.contents.state_bytes)

    def reclaimable(self, but: Iterable[Node] = ()) -> int:
        """Pages that can be freed without taking any from who needs them, or from `but`."""
        spared = set(but)
        return self.freed_by(node for node in self.tree.nodes() if not node.users and node not in spared)

    def freed_by(self, idle: Iterable[Node]) -> int:
        """Pages that only these nodes hold."""
        held = Counter(page for node in idle for page in node.pages or ())
        return sum(self.pages.holders[page] == count for page, count in held.items())

    # --- the pool of pages -----------------------------------------------------------------------------------

    def reclaim(self, count: int) -> None:
        """Free pages until `count` are free, or nothing is left that may give way."""
        self.poll()
        before = Counter(self.moved)
        while len(self.pages.free) < count:
            node = oldest([n for n in self.tree.nodes() if n.pages is not None and not n.users])
            if node is None:
                break
            self.park(node)
        if moved := self.moved - before:
            self.log.info("kept conversations gave way", **moved)

    def park(self, node: Node) -> None:
        """Out of the pool: into RAM where older prefixes make room, else it is left to the disk, or gone."""
        assert node.pages is not None and not node.users
        self.tree.pin(node, 1)
        fits = self.make_ram(len(node.pages) * self.contents.page_bytes, older_than=node.used)
        self.tree.pin(node, -1)
        if not (fits or node.saved):
            self.moved["dropped"] += 1
            self.drop(node)
            return
        node.parked = self.contents.gather(node.pages) if fits else None
        self.pages.drop(node.pages)
        node.pages = None
        self.moved["parked"] += 1

    def load(self, node: Node) -> str:
        """Bring a path's pages into the pool -> the slowest tier that any came from.

        The path has to be pinned, and the pages to be had. ArchiveError, with the damaged node dropped, when a file
        cannot be read.
        """
        tier = "pages"
        for each in node.path():
            if each.pages is None:
                tier = "disk" if each.parked is None else tier if tier == "disk" else "ram"
                parked = self.read(each, "pages") if each.parked is None else each.parked
                self.reclaim(self.span(each))
                pages = self.pages.take(self.span(each))
                self.contents.scatter(pages, parked)
                each.pages, each.parked = pages, None
            if each.saved and self.disk is not None:
                self.disk.archive.use(each.key)
        return tier

    # --- RAM -------------------------------------------------------------------------------------------------

    def make_ram(self, count: int, older_than: int | None = None) -> bool:
        """Make room for `count` bytes; False when what may give way is not enough.

        After prefixes that nobody needs, states on the paths of running sequences go: the first of a path first, for
        a sequence that goes on from there has become unlikely.
        """
        used = self.ram()
        while used + count > self.ram_budget:
            idle = oldest([n for n in self.tree.nodes() if not n.users and self.ram_of(n)])
            inner = [n for n in self.tree.nodes() if n.users and n.children and n.state is not None]
            if idle is not None and (older_than is None or idle.used < older_than):
                self.shed(idle)
            elif older_than is None and inner and self.contents.state_bytes and count <= self.ram_budget:
                min(inner, key=lambda n: (n.used, n.end)).state = None
            else:
                return False
            self.moved["dropped"] += 1
            used = self.ram()
        return True

    def shed(self, node: Node) -> None:
        """Out of RAM: left to the disk when it is there, else gone."""
        if node.saved_state or (node.saved and node.children):
            node.parked = node.state = None
        else:
            self.drop(node)

    def drop(self, node: Node) -> None:
        """A prefix, and all that go on from it, is kept no more."""
        self.tree.remove(node)
        for each in node.below():
            if not each.writing:
                self.free(each)

    def free(self, node: Node) -> None:
        """Give back all that a node out of the tree has."""
        if node.pages is not None:
            self.pages.drop(node.pages)
        node.pages = node.parked = node.state = None
        self.delete(node)

    # --- disk ------------------------------------------------------------------------------------------------

    def read(self, node: Node, part: str) -> Blob:
        """Its "pages" or its "state" from disk; ArchiveError, with the node dropped, when that fails."""
        assert self.disk is not None
        try:
            return self.disk.archive.read(node.key, part)
        except ArchiveError as error:
            self.log.warning("kept conversation lost", file=error.file, reason=error.reason)
            self.moved["unread"] += 1
            node.saved, node.saved_state = 0, False  # what is not understood stays where it is
            self.drop(node)
            raise

    def save(self, node: Node) -> bool:
        """Hand a node to the writer; False when it cannot be written now."""
        if self.disk is None or node.saved or node.writing or (node.pages is None and node.parked is None):
            return False
        above = node.parent
        if above is None or not (above is self.tree.root or above.saved or above.writing):
            return False
        self.tree.pin(node, 1)
        job = Job(node, node.pages, node.parked, node.state)
        written = self.make_disk(self.size(node)) and self.disk.writer.offer(job)
        node.writing = written
        if not written:
            self.tree.pin(node, -1)
        return written

    def make_disk(self, count: int) -> bool:
        """Delete files until `count` bytes more fit the budget."""
        assert self.disk is not None
        while self.saved() + count > self.disk.budget:
            node = oldest([n for n in self.tree.nodes() if n.saved and not n.users])
            if node is None:
                return False
            self.delete(node)
            self.moved["deleted"] += 1
            if node.pages is None and node.parked is None:
                self.drop(node)
        return True

    def delete(self, node: Node) -> None:
        """Its file, if it has one."""
        if node.saved and self.disk is not None:
            try:
                self.disk.archive.delete(node.key)
            except OSError as error:
                self.moved["undeleted"] += 1
                self.log.warning("file not deleted", file=self.disk.archive.path(node.key), reason=error.strerror)
        node.saved, node.saved_state = 0, False

    def settle(self) -> None:
        """Wait until everything that is on its way to disk is there."""
        if self.disk is not None:
            self.disk.writer.wait()
            self.poll()

    def poll(self) -> None:
        """Take note of what the writer has done."""
        for node, result in self.disk.writer.done() if self.disk is not None else ():
            node.writing = False
            self.tree.pin(node, -1)
            if isinstance(result, Written):
                node.saved, node.saved_state = result.nbytes, result.state
                self.unwritten = ""
            else:
                self.moved["unwritten"] += 1
                if result != self.unwritten:  # a full disk is one warning, not one per conversation
                    self.log.warning("conversation not saved", reason=result)
                self.unwritten = result
            if node.gone:
                self.free(node)
