"""`python rendering.py < request.json`: the token ids of a chat with tools, in a process of its own."""

import json
import sys
from collections.abc import Mapping

from chat.tiny_tokenizer import tiny
from strata.chat.template import CHATML, ChatTemplate

TEMPLATE = "{{ tools | tojson }}" + CHATML


def rendered(request: Mapping[str, list]) -> list[int]:
    """Token ids of the prompt."""
    text = ChatTemplate(TEMPLATE, "test").render(request["messages"], True, {"tools": request["tools"]})
    return tiny().encode(text)


if __name__ == "__main__":
    print(json.dumps(rendered(json.load(sys.stdin))))  # noqa: T201 - what the parent reads
