"""Who can use the pages: with a key, below a prefix, by keyboard alone, with a screen reader."""

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from server.harness import Running, ids, running
from server.web.browsing import SIZES, answer_text, ask, faults, open_page, shot
from server.web.proxy import proxied
from strata.server.settings import ServerSettings

LONG_LINE = "print('a line that is longer than any telephone is wide, so that it has to be scrolled', 1, 2, 3)"
CODE = "\n".join(["def story():", *(f" p({n})" for n in range(30)), f"    {LONG_LINE}"])
ANSWER = (
    "## Steps\n\n1. One, with `code` and $x_1 * y_1$\n2. Two\n\n"
    "| experts | in VRAM | in RAM, read by the GPU | computed by the CPU | used |\n|---|---|---|---|---|\n"
    "| 288 | 120 | 68 | 100 | 91% |\n| 512 | 256 | 128 | 128 | 87% |\n\n"
    "$$\n\\sum_{i=1}^{n} w_i * x_i\n$$\n\n> What was said before.\n\n- [x] done\n- [ ] open\n\n"
    f"```python\n{CODE}\n```\n"
)
SERIOUS = {"serious", "critical"}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(answers=[ids(ANSWER)], context=4096) as up:
        yield up


def violations(page: Page) -> list[str]:
    """What axe finds, as one line each: impact, rule, element."""
    found = Axe().run(page).response["violations"]
    return [f"{item['impact']} {item['id']}: {item['nodes'][0]['html'][:120]}" for item in found]


def test_a_key_is_asked_for_and_kept_where_told(browser: Browser) -> None:
    with running(ServerSettings(api_key="sécret"), answers=[ids("Hello.")]) as locked:
        page = open_page(browser, locked.url)
        key = page.get_by_label("Key", exact=True)
        expect(key).to_be_focused()
        assert violations(page) == []
        key.fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_text("The server refused this key.")).to_be_visible()
        key.fill("sécret")
        page.get_by_label("Keep it in this browser", exact=True).check()
        page.get_by_role("button", name="Open", exact=True).click()
        expect(page.locator(".server-state")).to_contain_text("tiny")
        ask(page, "Hi")
        assert answer_text(page) == "Hello."
        page.reload()
        expect(page.locator(".server-state")).to_contain_text("tiny")
        assert "sécret" not in page.content()
        page.context.close()


def test_below_a_prefix(browser: Browser) -> None:
    with (
        proxied("/models/strata") as proxy,
        running(ServerSettings(allow_origin=proxy.origin), answers=[ids("Hello.")]) as up,
    ):
        proxy.upstream = up.url
        page = open_page(browser, proxy.page)
        ask(page, "Hi")
        assert answer_text(page) == "Hello."
        loaded = page.evaluate("performance.getEntriesByType('resource').map(e => e.name)")
        assert loaded and all(url.startswith(proxy.page) for url in loaded)
        assert faults(page) == []
        page.context.close()


def test_an_origin_that_is_not_listed_is_told_what_to_do(browser: Browser, server: Running) -> None:
    with proxied("/x") as proxy:
        proxy.upstream = server.url
        page = open_page(browser, proxy.page)
        page.get_by_label("Message", exact=True).fill("Hi")
        page.keyboard.press("Enter")
        expect(page.locator("li.assistant [role=alert]")).to_contain_text("--allow-origin")
        page.context.close()


@pytest.mark.parametrize(("size", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_axe_finds_nothing(browser: Browser, server: Running, size: str, scheme: str) -> None:
    page = open_page(browser, server.url, size, scheme)
    expect(page.get_by_role("button", name="What is 17 times 23?", exact=True)).to_be_visible()
    assert violations(page) == []
    ask(page, "Show me")
    page.get_by_role("region", name="Messages", exact=True).evaluate("m => m.scrollTop = 0")
    shot(page, f"chat-{size}-{scheme}")
    pre = page.locator(".code pre")
    assert pre.evaluate("p => p.scrollHeight > p.clientHeight"), "long code is scrolled in its own frame"
    page.get_by_role("button", name="More", exact=True).click()
    page.get_by_role("button", name="Settings", exact=True).click()
    assert violations(page) == []
    shot(page, f"chat-settings-{size}-{scheme}")
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    assert faults(page) == []
    page.context.close()


def test_axe_would_find_something(browser: Browser, server: Running) -> None:
    page = open_page(browser, server.url)
    expect(page.get_by_label("Message", exact=True)).to_be_visible()
    page.evaluate("document.querySelector('#question').removeAttribute('aria-label')")
    page.evaluate("document.querySelector('#question').removeAttribute('placeholder')")
    found = violations(page)
    assert any(line.split()[0] in SERIOUS and "label" in line for line in found), found
    page.context.close()


def test_by_keyboard_alone(browser: Browser, server: Running) -> None:
    page = open_page(browser, server.url)
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    page.keyboard.type("Hello")
    page.keyboard.press("Enter")
    expect(page.locator("li.assistant article")).to_have_attribute("aria-busy", "false")
    seen = []
    page.evaluate("document.activeElement.blur()")
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("(document.activeElement.ariaLabel || document.activeElement.textContent).trim()"))
        if seen[-1] == "Message":
            break
    for name in ("Skip to the content", "Chat", "New conversation", "More", "Messages", "Copy", "Retry", "Edit"):
        assert any(text.startswith(name) for text in seen), f"{name} cannot be reached: {seen}"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Alt+s")
    expect(page.get_by_label("System prompt", exact=True)).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    page.context.close()
