"""A real Chromium for tests of the web app, and what they do again and again."""

import os
import shutil
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, Playwright, expect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NOT_FOUND = f"no browser: none of {', '.join(NAMES)} is on the PATH (on Debian: apt-get install chromium)"
SIZES = {"desktop": (1280, 800), "phone": (390, 844)}
SHOTS = Path(__file__).parents[3] / "build" / "screenshots"


def chromium() -> str | None:
    """The browser's path."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


def launch(playwright: Playwright, path: str) -> Browser:
    """A headless one; its sandbox cannot be had by root."""
    return playwright.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.geteuid() == 0 else [])


def open_page(browser: Browser, url: str, size: str = "desktop", scheme: str = "light") -> Page:
    """The page in a browser profile of its own; whatever a script throws or a policy forbids fails the test."""
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        has_touch=size == "phone",
        accept_downloads=True,
    )
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.set_default_timeout(20_000)
    page.on("pageerror", lambda error: faults(page).append(str(error)))
    page.on("console", lambda said: faults(page).append(said.text) if said.type == "error" else None)
    page.goto(url)
    page.wait_for_selector("#question, dialog, .page")
    page.evaluate(
        "new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn, 50)))"
    )  # keys are heard by then
    return page


_FAULTS: dict[int, list[str]] = {}


def faults(page: Page) -> list[str]:
    """What went wrong in the page so far."""
    return _FAULTS.setdefault(id(page), [])


def ask(page: Page, text: str) -> None:
    """Send a message with the keyboard and wait for the end of its answer."""
    before = page.locator("li.assistant").count()
    question = page.get_by_label("Message", exact=True)
    question.fill(text)
    question.press("Enter")
    expect(page.locator("li.assistant")).to_have_count(before + 1)
    expect(page.locator("li.assistant article").last).to_have_attribute("aria-busy", "false")


def copied(page: Page, button: Locator) -> str:
    """What a button copies; that takes a moment."""
    page.evaluate("navigator.clipboard.writeText('')")
    button.click()
    page.wait_for_function("async () => (await navigator.clipboard.readText()) !== ''")
    return str(page.evaluate("navigator.clipboard.readText()"))


def answer_text(page: Page) -> str:
    """What the last answer says."""
    return page.locator("li.assistant .markdown").last.inner_text()


def shot(page: Page, name: str, whole: bool = False) -> None:
    """Keep a picture for people, under build/screenshots; `whole`: of all that the page scrolls through."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    if whole and page.viewport_size is not None:
        height = page.locator(".page").evaluate("p => p.scrollHeight + p.getBoundingClientRect().top")
        page.set_viewport_size({"width": page.viewport_size["width"], "height": int(height)})
    page.screenshot(path=SHOTS / f"{name}.png")
