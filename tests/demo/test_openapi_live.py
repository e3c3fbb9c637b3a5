"""The described API against the one that is there: schemathesis makes right and wrong requests of the document."""

import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.core.failures import FailureGroup
from schemathesis.generation.modes import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from server.harness import QUICK, Running, process_of, serving
from strata.chat.conversation import load_conversation
from strata.checkpoint.demo import model_path
from strata.checkpoint.locate import open_checkpoint
from strata.core.log import Log
from strata.sampling.params import SamplingParams
from strata.server.openapi import PATHS, Path, document
from strata.server.served import ServedModel

pytestmark = pytest.mark.timeout(120)
STATEFUL = frozenset(("/v1/load", "/v1/unload"))
"""What takes the model from under the other requests has tests of its own."""
EXAMPLES = 4


@pytest.fixture(scope="module")
def up() -> Iterator[Running]:
    flags = ["--parallel", "4", "--ctx-size", "512", "--warm", "no", "--log-level", "warning"]
    command = [sys.executable, "-m", "strata", "engine", *flags]
    with open_checkpoint(model_path(None)) as checkpoint:
        conversation = load_conversation(checkpoint, Log())
        model = ServedModel("demo", conversation, SamplingParams(), created=1, max_tokens=2)
        with serving(process_of(command, QUICK), model=model) as server:
            yield server


def hold(schema: Any, path: Path, url: str) -> None:
    """AssertionError where an answer is none of the described ones."""
    operation = schema[path.path][path.method]
    modes = [operation.as_strategy(generation_mode=mode) for mode in GenerationMode]
    quick = settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )

    @quick
    @given(case=st.one_of(modes))
    def answers(case: Any) -> None:
        # What a type cannot say, such as a model's name, is refused though it is of the right one.
        case.call_and_validate(base_url=url, excluded_checks=[positive_data_acceptance], timeout=30)

    answers()


@pytest.mark.parametrize("path", [path for path in PATHS if path.path not in STATEFUL], ids=lambda path: path.path)
def test_answers_are_those_that_the_document_describes(up: Running, path: Path) -> None:
    hold(schemathesis.openapi.from_url(f"{up.url}/openapi.json"), path, up.url)


def test_an_answer_that_is_not_described_is_found(up: Running) -> None:
    """The check is not blind."""
    wrong = document((Path("/v1/models", "get", "x", form="array"),))
    with pytest.raises(FailureGroup) as caught:
        hold(schemathesis.openapi.from_dict(wrong), Path("/v1/models", "get", "x"), up.url)
    assert [type(each).__name__ for each in caught.value.exceptions] == ["JsonSchemaError"]
    assert httpx.get(f"{up.url}/health").status_code == 200
