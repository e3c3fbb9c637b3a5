"""The child that tells whether grammars can be compiled."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

from server.harness import process_of
from strata.server.grammars import LARGEST, GrammarChecker

T = TypeVar("T")
SLOW = "import sys,json,time\nfor line in sys.stdin:\n g=json.loads(line)\n {}\n print(json.dumps(g), flush=True)"


def with_checker(checker: GrammarChecker, work: Callable[[GrammarChecker], Awaitable[T]]) -> T:
    async def run() -> T:
        try:
            return await work(checker)
        finally:
            await checker.close()

    process_of([])  # the child's import path
    return asyncio.run(run())


def test_complaints_of_the_compiler() -> None:
    async def work(checker: GrammarChecker) -> list[str]:
        grammars = ['start: "a"', "start: nowhere", json.dumps({"grammars": [{"json_schema": {"type": "strin"}}]})]
        return [await checker.complaint(grammar) for grammar in [*grammars, "x" * (LARGEST + 1)]]

    right, wrong, schema, large = with_checker(GrammarChecker(), work)
    assert right == "" and "nowhere" in wrong and "strin" in schema and "too large" in large


def test_one_that_hangs_or_dies_is_ended_and_the_next_is_asked_anew() -> None:
    slow = SLOW.format("time.sleep(30) if g == 'slow' else sys.exit(1) if g == 'dead' else None")

    async def work(checker: GrammarChecker) -> list[str]:
        return [await checker.complaint(grammar) for grammar in ("one", "slow", "two", "dead", "three")]

    found = with_checker(GrammarChecker((sys.executable, "-c", slow), 1.5), work)
    assert found == ["one", "it takes longer than 1.5 s to compile", "two", "its compiler gave up", "three"]


def test_questions_at_once_get_their_own_answers() -> None:
    async def work(checker: GrammarChecker) -> list[str]:
        first = asyncio.ensure_future(checker.complaint("gone"))
        await asyncio.sleep(0)
        first.cancel()
        return list(await asyncio.gather(*(checker.complaint(str(i)) for i in range(5))))

    checker = GrammarChecker((sys.executable, "-c", SLOW.format("pass")))
    assert with_checker(checker, work) == [str(i) for i in range(5)]
