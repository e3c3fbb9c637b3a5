"""The choice of a model on the chat page, where the server has several."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from server.harness import Running, ids, running, several
from server.web.browsing import answer_text, ask, faults, open_page, shot


@pytest.fixture
def loads(tmp_path: Path) -> Path:
    """The file whose making ends the loading of `big`."""
    return tmp_path / "loaded"


@pytest.fixture
def server(loads: Path) -> Iterator[Running]:
    scripts = {
        "small": {"answers": [ids("Small says hello.")]},
        "big": {"answers": [ids("Big says hello.")], "load_until": str(loads)},
        "broken": {"fail_load": True},
    }
    with several(scripts) as up:
        yield up


def checked(page: Page) -> None:
    assert [item["id"] for item in Axe().run(page).response["violations"]] == []


def test_the_chosen_model_answers_and_tells_how_far_it_is(browser: Browser, server: Running, loads: Path) -> None:
    page = open_page(browser, server.url)
    picker = page.get_by_label("Model", exact=True)
    standing = page.locator(".picker [role=status]")
    expect(picker).to_have_value("small")
    expect(standing).to_have_text("small is loaded")
    picker.focus()
    page.keyboard.press("b")  # as a listbox is used without a mouse
    expect(picker).to_have_value("big")
    expect(standing).to_have_text("big is unloaded")
    expect(page.get_by_role("heading", name="Ask big", exact=True)).to_be_visible()
    assert server.models.usual.name == "small", "a choice alone loads nothing"
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Load big", exact=True)).to_be_focused()
    question = page.get_by_label("Message", exact=True)
    question.fill("Hi")
    question.press("Enter")
    expect(standing).to_have_text("big is loading")
    progress = page.get_by_role("progressbar", name="Loading big", exact=True)
    expect(progress).to_have_attribute("value", "43")
    expect(page.locator(".picker .unit")).to_have_text("43%")
    expect(page.locator("li.assistant .loading")).to_contain_text("big is loading")
    checked(page)
    shot(page, "picker-loading")
    loads.touch()
    expect(page.locator("li.assistant article").last).to_have_attribute("aria-busy", "false")
    assert answer_text(page) == "Big says hello."
    expect(standing).to_have_text("big is loaded")
    picker.select_option("small")
    ask(page, "And you?")
    assert answer_text(page) == "Small says hello."
    page.get_by_role("button", name="New conversation", exact=True).click()
    expect(picker).to_have_value("small")
    assert faults(page) == []
    page.context.close()


def test_a_model_is_loaded_by_hand_and_a_failure_says_why(browser: Browser, server: Running, loads: Path) -> None:
    loads.touch()
    page = open_page(browser, server.url, "phone", "dark")
    picker = page.get_by_label("Model", exact=True)
    picker.select_option("big")
    page.get_by_role("button", name="Load big", exact=True).click()
    expect(page.locator(".picker [role=status]")).to_have_text("big is loaded")
    picker.select_option("broken")
    page.get_by_role("button", name="Load broken", exact=True).click()
    expect(page.locator(".picker .problem")).to_contain_text("tensor x is cut short")
    expect(page.get_by_role("button", name="Load broken", exact=True)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    checked(page)
    shot(page, "picker-phone")
    page.context.close()


def test_one_model_leaves_nothing_to_choose(browser: Browser) -> None:
    """And a conversation that chose a model which is gone is answered by what there is."""
    with running(answers=[ids("Only me.")]) as up:
        page = open_page(browser, up.url)
        page.evaluate("""import(new URL("chat/chats.js", document.querySelector("script[type=module]").src))
            .then(({ chats }) => chats.choose(chats.current, "gone"))""")
        ask(page, "Hi")
        assert answer_text(page) == "Only me."
        expect(page.locator(".picker")).to_have_count(0)
        assert faults(page) == []
        page.context.close()
