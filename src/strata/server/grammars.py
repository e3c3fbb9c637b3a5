"""Whether a grammar can be compiled, found out in a process that is killed when it takes too long."""

import asyncio
import contextlib
import json
import sys
from collections import OrderedDict
from dataclasses import dataclass, replace

from strata.sampling.constraint import Constraint

LONGEST_S = 10.0
LARGEST = 1 << 20
"""Characters of a grammar."""
KEPT = 256
COMMAND = (sys.executable, "-m", "strata.chat.grammar_child")


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found of a grammar."""

    complaint: str
    """Why it cannot be compiled; empty when it can be."""
    short: str | None = None
    """A short answer, of those that have to end in time; None: none was looked for, or found."""


class GrammarChecker:
    """Asks one child, one grammar after the other; what was found is kept. Belongs to the event loop's thread."""

    def __init__(self, command: tuple[str, ...] = COMMAND, longest_s: float = LONGEST_S) -> None:
        self._command = command
        self._longest_s = longest_s
        self._known: OrderedDict[str, Checked] = OrderedDict()
        self._child: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def check(self, asked: Constraint, short: bool = True) -> Checked:
        """Compile the grammar of `asked`, and look for a `short` answer where it has to end in time."""
        if len(asked.grammar) > LARGEST:
            return Checked(f"it is too large: {len(asked.grammar)} characters, at most {LARGEST}")
        # The same for every length and budget.
        most = None if asked.most is None or not short else 1
        word = replace(asked, budget=None, most=most).written()
        if word in self._known:
            self._known.move_to_end(word)
            return self._known[word]
        async with self._turn:
            found = self._known[word] = await self._ask(word)
        while len(self._known) > KEPT:
            self._known.popitem(last=False)
        return found

    async def _ask(self, word: str) -> Checked:
        child = self._child
        if child is None or child.returncode is not None:
            child = self._child = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=LARGEST,
                process_group=0,  # Ctrl-C in a terminal is for the server
            )
        assert child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write((json.dumps(word) + "\n").encode())
            line = await asyncio.wait_for(child.stdout.readline(), self._longest_s)
        except TimeoutError:
            await self._end()
            return Checked(f"it takes longer than {self._longest_s:g} s to compile")
        except asyncio.CancelledError:
            await self._end()  # its answer would be taken for that to the next question
            raise
        except ConnectionError:
            line = b""
        if not line:
            await self._end()
            return Checked("its compiler gave up")
        complaint, short = json.loads(line)
        return Checked(complaint, short)

    async def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        if child.stdin is not None:
            child.stdin.close()
        await child.wait()

    async def close(self) -> None:
        """End the child."""
        await self._end()
