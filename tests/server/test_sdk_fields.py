"""Every field that the official clients can send is honoured, refused by name, or ignored knowingly.

The clients' own types are walked through, so that a field which a new release brings cannot be dropped silently.
"""

from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Any

import msgspec
import pytest
from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_count_tokens_params as beta_count
from anthropic.types.beta import message_create_params as beta_create
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params

from server.harness import ids, running
from server.test_openai import HELLO
from strata.server import anthropic_messages, openai_chat, openai_completions, openai_responses
from strata.server.body import IGNORED

CREATE = "MessageCreateParamsBase"
COUNT = "MessageCountTokensParams"
FORMS: list[tuple[ModuleType, str, type[msgspec.Struct], Mapping[str, Any], Collection[str]]] = [
    (chat_create_params, "CompletionCreateParamsBase", openai_chat.ChatFields, openai_chat.UNBUILT,
     openai_chat.IGNORED),
    (completion_create_params, "CompletionCreateParamsBase", openai_completions.CompletionFields,
     openai_completions.UNBUILT, IGNORED),
    (response_create_params, "ResponseCreateParamsBase", openai_responses.ResponseFields,
     openai_responses.UNBUILT, openai_responses.IGNORED),
    *((module, name, form, anthropic_messages.UNBUILT, anthropic_messages.IGNORED) for module, name, form in (
        (message_create_params, CREATE, anthropic_messages.MessageFields),
        (beta_create, CREATE, anthropic_messages.MessageFields),
        (message_count_tokens_params, COUNT, anthropic_messages.CountFields),
        (beta_count, COUNT, anthropic_messages.CountFields),
    )),
]  # fmt: skip


def fields_of(module: ModuleType, name: str) -> set[str]:
    """The client's fields, those of the classes below included."""
    return set().union(*(vars(kind).get("__annotations__", {}) for kind in getattr(module, name).__mro__))


@pytest.mark.parametrize(("module", "name", "form", "unbuilt", "ignored"), FORMS)
def test_every_field_is_known(
    module: ModuleType, name: str, form: type[msgspec.Struct], unbuilt: Mapping[str, Any], ignored: Collection[str]
) -> None:
    known = {field.encode_name for field in msgspec.structs.fields(form)}
    found = fields_of(module, name)
    assert len(found) > 8, "the client's types are where they were"
    assert found - known - unbuilt.keys() - set(ignored) == set()
    assert known & (unbuilt.keys() | set(ignored)) == set(), "honoured or not, but not both"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"])
def test_one_that_is_not_known_is_refused_by_name(path: str) -> None:
    """The check above is not blind."""
    bodies: dict[str, dict[str, Any]] = {
        "chat": {"messages": HELLO},
        "completions": {"prompt": "x"},
        "responses": {"input": "x"},
        "messages": {"messages": HELLO, "max_tokens": 4},
    }
    body = bodies["chat" if "chat" in path else path.rpartition("/")[2]]
    with running(answers=[ids("x")]) as up:
        assert up.http.post(path, json=body).status_code == 200
        reply = up.http.post(path, json=body | {"field_of_tomorrow": 1})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "field_of_tomorrow")
