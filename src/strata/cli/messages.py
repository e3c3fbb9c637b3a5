"""What a person types becomes one message: when more lines belong to it, and what it says. Pure.

A line that ends with a backslash goes on with the next one. A message that begins with three quotation marks goes on to
the line that ends with three more.
"""

QUOTES = '"""'


def is_open(text: str) -> bool:
    """Whether the next line belongs to the message `text`, too."""
    if text.lstrip().startswith(QUOTES):
        return not text.lstrip().removeprefix(QUOTES).rstrip().endswith(QUOTES)
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def message(text: str) -> str:
    """What is said by `text`, without the marks that held its lines together."""
    stripped = text.strip()
    if stripped.startswith(QUOTES):
        return stripped.removeprefix(QUOTES).removesuffix(QUOTES).strip("\n")
    return stripped.replace("\\\n", "\n")
