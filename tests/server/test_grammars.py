"""The child that tells whether grammars can be compiled."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from server.harness import process_of
from strata.chat.shapes import constraint, of_schema
from strata.sampling.constraint import Constraint
from strata.server.grammars import LARGEST, Checked, GrammarChecker

T = TypeVar("T")
SLOW = (
    "import sys,json,time\nfrom strata.sampling.constraint import read_constraint\nfor line in sys.stdin:\n"
    " g=read_constraint(json.loads(line)).grammar\n {}\n print(json.dumps([g, None]), flush=True)"
)


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
        asked = [Constraint(grammar) for grammar in [*grammars, "x" * (LARGEST + 1)]]
        return [(await checker.check(each)).complaint for each in asked]

    right, wrong, schema, large = with_checker(GrammarChecker(), work)
    assert right == "" and "nowhere" in wrong and "strin" in schema and "too large" in large


def test_one_that_hangs_or_dies_is_ended_and_the_next_is_asked_anew() -> None:
    slow = SLOW.format("time.sleep(30) if g == 'slow' else sys.exit(1) if g == 'dead' else None")

    async def work(checker: GrammarChecker) -> list[str]:
        words = ("one", "slow", "two", "dead", "three")
        return [(await checker.check(Constraint(word))).complaint for word in words]

    found = with_checker(GrammarChecker((sys.executable, "-c", slow), 1.5), work)
    assert found == ["one", "it takes longer than 1.5 s to compile", "two", "its compiler gave up", "three"]


def test_questions_at_once_get_their_own_answers() -> None:
    async def work(checker: GrammarChecker) -> list[str]:
        first = asyncio.ensure_future(checker.check(Constraint("gone")))
        await asyncio.sleep(0)
        first.cancel()
        found = await asyncio.gather(*(checker.check(Constraint(str(i))) for i in range(5)))
        return [each.complaint for each in found]

    checker = GrammarChecker((sys.executable, "-c", SLOW.format("pass")))
    assert with_checker(checker, work) == [str(i) for i in range(5)]


def test_a_short_answer_is_found_where_there_has_to_be_an_end() -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 100}}, "required": ["age"]}

    async def work(checker: GrammarChecker) -> list[Checked]:
        asked = constraint(of_schema(schema, strict=True), "no", None, 50)
        assert asked is not None
        return [await checker.check(replace(asked, most=most)) for most in (50, 7, None)]

    one, other, free = with_checker(GrammarChecker(), work)
    assert json.loads(one.short or "") == {"age": 100} and other is one, "once for every length"
    assert free == Checked("")
