"""The web app before the real engine with the demo model, as people have it: with a key, below a proxy's prefix."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from server.web.browsing import answer_text, ask, copied, faults, open_page, shot
from server.web.proxy import proxied
from server.web.test_access import violations
from strata.checks.serving import served

pytestmark = pytest.mark.timeout(120)
KEY = "open sesame"
STORY = "Tell me a short story about a dog."


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where a browser finds the page of a server that runs the demo."""
    with proxied("/models/strata") as proxy:
        flags = ["--api-key", KEY, "--parallel", "2", "--threads", "2", "--allow-origin", proxy.origin]
        with served(None, flags, os.environ) as server:
            proxy.upstream = server.url
            yield proxy.page


@pytest.fixture(scope="module")
def page(browser: Browser, url: str) -> Iterator[Page]:
    opened = unlocked(browser, url)
    settings(opened, {"Temperature": "0", "Most tokens": "48"})
    yield opened
    assert faults(opened) == []
    opened.context.close()


def unlocked(browser: Browser, url: str, size: str = "desktop", scheme: str = "light") -> Page:
    """The page, behind its key."""
    page = open_page(browser, url, size, scheme)
    page.get_by_label("Key", exact=True).fill(KEY)
    page.keyboard.press("Enter")
    expect(page.locator(".server-state.ready")).to_be_visible()
    faults(page).clear()  # the 401 that asked for the key
    return page


def settings(page: Page, wanted: dict[str, str]) -> None:
    """Set fields in the drawer."""
    page.keyboard.press("Alt+s")
    for name, value in wanted.items():
        page.get_by_label(name, exact=True).fill(value)
    page.keyboard.press("Escape")
    expect(page.locator(".settings")).to_have_count(0)


def begin(page: Page) -> None:
    page.get_by_role("link", name="Chat", exact=True).click()
    expect(page.get_by_label("Message", exact=True)).to_be_visible()
    page.keyboard.press("Alt+n")
    expect(page.locator("li.user")).to_have_count(0)


def asked(url: str) -> httpx.Client:
    """The API below the same prefix."""
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {KEY}"}, timeout=30)


def test_an_answer_streams_and_has_its_figures(page: Page) -> None:
    begin(page)
    ask(page, STORY)
    told = answer_text(page)
    assert len(told.split()) > 10
    expect(page.locator(".figures").last).to_contain_text(re.compile(r"\d+ tokens·?[\d.]+ tok/s"))
    page.get_by_role("button", name="Retry", exact=True).click()
    expect(page.locator("li.assistant article").last).to_have_attribute("aria-busy", "false")
    assert answer_text(page) == told, "greedy is greedy"
    ask(page, "Tell me more.")
    expect(page.locator(".figures").last).to_contain_text("read before")
    shot(page, "demo-chat-desktop-light")


def test_a_stopped_answer_frees_its_slot(page: Page, url: str) -> None:
    begin(page)
    settings(page, {"Most tokens": "1500", "System prompt": "Tell a story that never ends."})
    page.get_by_label("Message", exact=True).fill(STORY)
    page.keyboard.press("Enter")
    expect(page.locator(".markdown").last).not_to_have_text("")
    page.keyboard.press("Escape")
    expect(page.locator("li.assistant article").last).to_have_attribute("aria-busy", "false")
    with asked(url) as http:
        while http.get("v1/status").json()["requests"]:
            page.wait_for_timeout(20)
    settings(page, {"Most tokens": "48", "System prompt": ""})


def test_a_changed_question_is_answered_anew_and_travels_in_the_export(page: Page) -> None:
    begin(page)
    ask(page, "What is 17 times 23?")
    page.get_by_label("Message", exact=True).press("ArrowUp")
    page.get_by_label("Your message", exact=True).fill("What is the capital of France?")
    page.keyboard.press("Control+Enter")
    expect(page.locator("li.assistant article").last).to_have_attribute("aria-busy", "false")
    said = answer_text(page)
    page.reload()
    expect(page.locator("li.user .said")).to_have_text("What is the capital of France?")
    page.get_by_role("button", name="More", exact=True).click()
    with page.expect_download() as written:
        page.get_by_role("button", name="Export as JSON", exact=True).click()
    kept = json.loads(Path(written.value.path()).read_text())
    assert [message["role"] for message in kept["messages"]] == ["user", "assistant"]
    assert said and kept["messages"][1]["content"].split() == said.split()


def test_the_monitor_shows_what_the_engine_did(page: Page, url: str) -> None:
    begin(page)
    for _ in range(3):
        ask(page, STORY)
    page.get_by_role("link", name="Monitor", exact=True).click()
    with asked(url) as http:
        map_ = http.get("v1/experts").json()
        told = http.get("v1/status").json()["engine"]["tokens"]["generated"]
    assert told > 100 and len(map_["layers"]) > 1
    label = f"Map of {len(map_['layers'])} layers by {map_['experts']} experts"
    canvas = page.get_by_role("img", name=re.compile(f"^{label}"))
    expect(canvas).to_be_visible()
    drawn = "c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size"
    assert canvas.evaluate(drawn) > 10, "experts are used more and less"
    expect(page.get_by_role("img", name=re.compile(r"^Tokens a second in the last 5 minutes: mostly"))).to_be_visible()
    expect(page.get_by_role("region", name="Table of slots", exact=True).get_by_role("row")).to_have_count(3)
    keys = page.locator("section", has_text="Memory").locator(".legend .key:not(.line)")
    shown = keys.evaluate_all("all => all.map((key) => getComputedStyle(key, '::before').backgroundColor)")
    assert len(shown) > 6 and len(set(shown)) == len(shown), "no two uses of memory look alike"
    shot(page, "demo-monitor-desktop-light")


@pytest.mark.parametrize("client", ["Python, openai", "Python, anthropic", "curl"])
def test_a_snippet_runs_as_it_was_copied(page: Page, client: str) -> None:
    page.get_by_role("link", name="About", exact=True).click()
    page.get_by_label("For", exact=True).select_option(client)
    button = page.locator("section", has_text="Clients").get_by_role("button", name="Copy", exact=True).last
    text = copied(page, button).replace("YOUR-KEY", KEY)
    command = ["sh", "-c", text] if client == "curl" else [sys.executable, "-c", text]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr[-500:]
    said = json.loads(ran.stdout)["choices"][0]["message"]["content"] if client == "curl" else ran.stdout
    assert said.strip()


def test_on_a_phone_in_the_dark(browser: Browser, url: str) -> None:
    page = unlocked(browser, url, "phone", "dark")
    settings(page, {"Most tokens": "64"})
    ask(page, STORY)
    shot(page, "demo-chat-phone-dark")
    assert violations(page) == []
    page.get_by_role("link", name="Monitor", exact=True).click()
    expect(page.get_by_role("heading", name="Experts", exact=True)).to_be_visible()
    page.wait_for_timeout(300)  # plots and the map are drawn
    shot(page, "demo-monitor-phone-dark", whole=True)
    assert violations(page) == []
    assert page.locator(".page").evaluate("p => p.scrollWidth <= p.clientWidth")
    assert faults(page) == []
    page.context.close()
