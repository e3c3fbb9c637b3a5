"""`check parking`: conversations leave the slots' memory for RAM and disk, and come back exactly.

Every part is a first turn of several conversations, something that happens to them, and their second turns, compared
with the same turns read whole and alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from strata.assemble import Loaded
from strata.checks.crowd import Action, Answer, Crowd, Moment, Part, Tell, difference
from strata.checks.engines import Finding, alone, next_turns, obey, running, said
from strata.checks.runners import keeping, spoil
from strata.checks.watched import Note, Seating, Watched, harmless
from strata.core.log import Log
from strata.core.order import Order
from strata.engine.request import Request
from strata.runtime.keeping import Keeping, OnDisk
from strata.runtime.runner import DeviceRunner

STREAMS = 3


class Parking:
    """Runs the parts of the check on one loaded model, with files in `folder`."""

    def __init__(self, loaded: Loaded, prompts: Sequence[Sequence[int]], disk: OnDisk, log: Log, broken: bool) -> None:
        """`broken`: the negative control; `log` gets the warnings about damaged files."""
        self.loaded = loaded
        self.disk = disk
        self.log = log
        self.harm = return_harm if broken else harmless
        self.parts = [
            Part(Request(str(i), (*prompts[i % len(prompts)], i + 1), max_new=8 + 10 * i)) for i in range(STREAMS)
        ]
        self.questions = [prompt[:5] for prompt in prompts]
        self.solo: dict[str, Answer] = {}
        self.again: list[Part] = []

    def findings(self, tell: Tell | None = None) -> Iterator[Finding]:
        """Every part's, one by one; `tell` hears of the answers that are there."""
        self.solo = alone(self.loaded, self.parts, tell)
        self.again = next_turns(self.parts, self.solo, self.questions)
        self.solo |= alone(self.loaded, self.again, tell)
        yield self.in_ram(tell)
        yield self.beside(tell)
        yield self.restarted(tell)
        yield self.damaged(tell)

    def runner(self, how: Keeping | None = None) -> Watched:
        """A fresh runner, with whatever lies on disk already."""
        how = replace(Keeping() if how is None else how, log=self.log)
        return Watched(keeping(self.loaded, STREAMS, how), self.harm, spoil)

    def in_ram(self, tell: Tell | None) -> Finding:
        """All of them go to RAM between their turns."""
        watched = self.runner()
        with running(watched) as engine:
            found = dict(Crowd(engine, self.parts, tell, watched).run())
            obey(engine, Order("park"))
            found |= Crowd(engine, self.again, tell, watched).run()
        return self.finding("parked in RAM", found, self.again, "ram")

    def beside(self, tell: Tell | None) -> Finding:
        """Those that ended are parked while another still decodes, and come back beside it."""
        watched = self.runner()
        last = self.parts[-1].request
        *early, late = self.again
        moment = Moment(last.id, said=18)
        parts = [*self.parts, *(Part(part.request, comes=moment) for part in early)]
        with running(watched) as engine:
            actions: list[Action] = [(moment, lambda: engine.order(Order("park"), lambda answer: None))]
            found = dict(Crowd(engine, parts, tell, watched, actions).run())
            found |= Crowd(engine, [late], tell, watched).run()
        return self.finding("parked beside a stream", found, early, "ram")

    def restarted(self, tell: Tell | None) -> Finding:
        """They go to disk, and another engine finds them there."""
        how = Keeping(disk=self.disk)
        watched = self.runner(how)
        with running(watched) as engine:
            found = dict(Crowd(engine, self.parts, tell, watched).run())
            obey(engine, Order("save"))
        watched = self.runner(how)
        with running(watched) as engine:
            found |= Crowd(engine, self.again, tell, watched).run()
        return self.finding("on disk, engine restarted", found, self.again, "disk")

    def damaged(self, tell: Tell | None) -> Finding:
        """One byte on disk has changed: that conversation is read again, the others come from their files."""
        watched = self.runner(Keeping(disk=self.disk))
        runner = watched.runner
        assert isinstance(runner, DeviceRunner)
        change_byte(runner, self.again[0].request.tokens)
        with running(watched) as engine:
            found = Crowd(engine, self.again, tell, watched).run()
        finding = self.finding("a damaged file", found, self.again[1:], "disk")
        if finding.failure or runner.cache.tiers.moved["unread"]:
            return finding
        return replace(finding, failure="the damaged file was taken for whole")

    def finding(self, name: str, found: Mapping[str, Answer], returned: Sequence[Part], tier: str) -> Finding:
        """All answers against those given alone; `returned` came back from `tier`."""
        parts = [part for part in (*self.parts, *self.again) if part.request.id in found]
        wrong = difference(self.solo, found, parts)
        reused = sum(found[part.request.id].reused for part in returned)
        for part in returned if not wrong else ():
            answer = found[part.request.id]
            known = len(part.request.tokens) - len(self.questions[0]) - 1  # the answer's last token never ran
            if answer.tier != tier or answer.reused < known:
                wrong = (
                    f"request {part.request.id}: {answer.reused} tokens came from {answer.tier or 'nowhere'},"
                    f" expected {known} from {tier}"
                )
        return Finding(name, len(parts), said(found), wrong, {"reused": reused, "tier": tier})


def change_byte(runner: DeviceRunner, tokens: Sequence[int]) -> None:
    """Change the last byte of the file that a prompt would go on from."""
    cache = runner.cache
    ids = np.asarray(tokens, np.int64)
    node = cache.tree.match(ids, len(ids) - 1).node
    assert cache.tiers.disk is not None and node.saved
    file = cache.tiers.disk.archive.path(node.key)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def return_harm(watched: Watched, seen: Seating | Note) -> Sequence[int]:
    """The negative control: what came back from RAM or disk is damaged."""
    if isinstance(seen, Seating) and seen.held.tokens and seen.held.tier in ("ram", "disk"):
        return [watched.latest]
    return []
