"""Names from files, as error messages and tables may show them."""


def shown(name: str, width: int = 100) -> str:
    """`name` in one line of printable characters: others are escaped, and a long one is cut."""
    text = name if name.isprintable() else repr(name)
    return text if len(text) <= width else f"{text[: width - 3]}..."


def listed(names: list[str], most: int = 8) -> str:
    """The first `most` names, and how many more there are."""
    more = len(names) - most
    return ", ".join(shown(name) for name in names[:most]) + (f" and {more} more" if more > 0 else "")
