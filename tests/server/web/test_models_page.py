"""The models in a real browser: which there are, which is loaded, and changing that."""

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from server.harness import Running, several
from server.web.browsing import faults, open_page, shot


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with several({"small": {}, "big": {}, "broken": {"fail_load": True}}) as up:
        yield up


def test_a_button_loads_another_model_and_one_unloads_it(browser: Browser, server: Running) -> None:
    page = open_page(browser, f"{server.url}/#/about", "phone")
    models = page.get_by_role("region", name="Models", exact=True)
    expect(models.get_by_role("listitem")).to_have_text(
        ["small Unloadloaded", "big Loadunloaded", "broken Loadunloaded"]
    )
    models.get_by_role("button", name="Load big", exact=True).click()
    expect(models.get_by_role("listitem").nth(1)).to_have_text("big Unloadloaded")
    expect(page.locator(".server-state")).to_contain_text("big")
    models.get_by_role("button", name="Load broken", exact=True).click()
    expect(models.get_by_role("alert")).to_contain_text("tensor x is cut short")
    expect(models.get_by_role("listitem").nth(2)).to_contain_text("failed: the engine failed")
    assert page.locator(".page").evaluate("p => p.scrollWidth <= p.clientWidth")
    found = Axe().run(page).response["violations"]
    assert [item["id"] for item in found] == []
    shot(page, "models-phone")
    page.context.close()


def test_the_monitor_of_no_model_offers_to_load_one(browser: Browser, server: Running) -> None:
    server.http.post("/v1/load", json={"model": "small"}).raise_for_status()
    page = open_page(browser, f"{server.url}/#/monitor")
    page.get_by_role("button", name="Unload small", exact=True).click()
    expect(page.get_by_text("No model is loaded.")).to_be_visible()
    page.get_by_role("button", name="Load small", exact=True).click()
    expect(page.get_by_role("heading", name="Slots", exact=True)).to_be_visible()
    # A panel that asked in the very moment was told that there is no engine.
    assert [fault for fault in faults(page) if "503" not in fault] == []
    page.context.close()
