"""The browser."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from server.web.browsing import NOT_FOUND, chromium, launch


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Of one module: while it lives, asyncio believes that this thread runs a loop."""
    path = chromium()
    if path is None:
        pytest.skip(NOT_FOUND)
    expect.set_options(timeout=20_000)  # a machine that does other things too is slow, and no failure
    with sync_playwright() as playwright:
        started = launch(playwright, path)
        yield started
        started.close()
