"""The monitor and the about page in a real browser, before the fake engine with a made status."""

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from server.harness import Running, ids, running
from server.web.browsing import copied, faults, open_page, shot

MIB = 1 << 20
DEPTHS = {"offered": {str(d): 20 - d for d in range(1, 10)}, "accepted": {"1": 12, "7": 3, "8": 1}}
STATUS = {
    "drafts_by_depth": DEPTHS,
    "seats": [
        {"id": 0, "state": "decoding", "request": "r7", "held": 256, "prompt": 200, "reused": 64, "generated": 56},
        {"id": 1, "state": "idle", "held": 12},
    ],
    "queue": [{"request": "r9", "prompt": 31, "waited_s": 1.5, "lacks": "no page is free"}],
    "plan": {
        "device": {"value": "cuda", "reason": "the first GPU"},
        "kv_type": {"value": "f32", "reason": "default, exact"},
        "vram_weights_mib": {"value": 512, "reason": "dense weights"},
    },
    "runner": {
        "experts": {"arena_bytes": 1024 * MIB, "vram_free_bytes": 300 * MIB},
        "device_state_bytes": 64 * MIB,
        "seconds": {"mixer": 3.0, "experts": 4.0, "wait": 0.0, "head": 1.0, "sample": 0.5, "rest": 1.5},
        "kept": {
            "pages": 100,
            "free_pages": 40,
            "promised_pages": 10,
            "prefixes": 3,
            "bytes": {"pages": 5 * MIB, "ram": 2 * MIB, "disk": 0},
            "budget": {"ram": 64 * MIB, "disk": 0},
            "hits": {"pages": 4, "none": 6},
            "hit_tokens": {"pages": 1300},
        },
        "drafts": {"drafters": {"lookup": {"offered": {"1": 8}, "accepted": {"1": 6}}}},
    },
}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(answers=[ids("word " * 40)], token_s=0.01, status=STATUS) as up:
        yield up


@pytest.fixture(scope="module")
def page(browser: Browser, server: Running) -> Iterator[Page]:
    """One for all: the page keeps nothing."""
    opened = open_page(browser, f"{server.url}/#/monitor")
    expect(opened.get_by_role("heading", name="Slots", exact=True)).to_be_visible()
    yield opened
    assert faults(opened) == []
    opened.context.close()


@pytest.fixture(autouse=True)
def at_the_monitor(page: Page) -> None:
    page.get_by_role("link", name="Monitor", exact=True).click()


def figure(page: Page, name: str) -> str:
    return page.locator(".figures-row > div", has_text=name).locator("dd").inner_text()


def test_speed_is_live(page: Page, server: Running) -> None:
    answer = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 40}
    assert server.http.post("/v1/chat/completions", json=answer).status_code == 200
    expect(page.get_by_role("img", name=re.compile("^Tokens a second in the last 5 minutes"))).to_be_visible()
    expect(page.locator(".figures-row dd").first).not_to_have_text(re.compile("^0 "))
    assert "ms" in figure(page, "First token") and figure(page, "Waiting").startswith("2 of 256")
    drawn = page.locator(".plot canvas").first.evaluate(
        "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((value) => value)"
    )
    assert drawn


def test_every_slot_and_who_waits(page: Page) -> None:
    rows = page.get_by_role("region", name="Table of slots", exact=True).get_by_role("row")
    expect(rows.nth(1)).to_contain_text("decoding")
    expect(rows.nth(1)).to_contain_text("64 reused")
    expect(rows.nth(2)).to_contain_text("idle")
    expect(page.get_by_role("img", name="Slot 0: 50% of its context held", exact=True)).to_be_visible()
    expect(page.locator(".queue li")).to_have_text("r9: 31 tokens, for 1.5 s, no page is free")


def test_memory_drafts_and_what_is_kept(page: Page) -> None:
    vram = page.get_by_role("img", name=re.compile("^VRAM:"))
    expect(vram).to_have_accessible_name("VRAM: experts 1 GiB, states 64 MiB, weights 512 MiB, free 300 MiB")
    expect(page.get_by_role("img", name="Depth 1: 63% right", exact=True)).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^over 6"))).to_have_text("over 6 11%36")
    expect(page.get_by_text("75% of 8")).to_be_visible()
    expect(page.get_by_text("13% of the prompt tokens were held already")).to_be_visible()
    expect(page.get_by_role("img", name="60% of the pages are held", exact=True)).to_be_visible()


def test_where_steps_go(page: Page) -> None:
    said = "attention 30%, experts 40%, head 10%, choosing tokens 5%, everything else 15%"
    expect(page.get_by_role("img", name=said, exact=True)).to_be_visible()
    expect(page.locator("section", has_text="Where steps go").locator("li")).to_have_count(5)


def test_the_expert_map_and_its_words(page: Page) -> None:
    canvas = page.get_by_role(
        "img", name=re.compile("^Map of 2 layers by 3 experts: 2 in VRAM, 1 in RAM, read by the GPU")
    )
    expect(canvas).to_be_visible()
    pixel = "(c, [x, y]) => [...c.getContext('2d').getImageData(x * c.width, y * c.height, 1, 1).data]"
    hot, empty = canvas.evaluate(pixel, [0.1, 0.25]), canvas.evaluate(pixel, [0.9, 0.75])
    faint = canvas.evaluate(pixel, [0.5, 0.25])
    assert hot[3] == 255 and empty[3] == 0 and 0 < faint[3] < 255, "strength is heat, and layer 2 has two experts"
    canvas.hover(position={"x": 5, "y": 3})
    expect(page.locator(".readout")).to_have_text("layer 0, expert 0: VRAM, 100% of the uses of the most used one")
    expect(page.get_by_text("60% of the uses")).to_be_visible()
    page.get_by_text("By layer").click()
    rows = page.get_by_role("region", name="Experts by layer", exact=True).get_by_role("row")
    expect(rows.nth(2)).to_have_text("210110")  # layer 2: 1 in VRAM, 0 pinned, 1 in RAM, 1 used at all, expert 0 most


def test_about_tells_addresses_reasons_and_clients(page: Page, server: Running) -> None:
    page.get_by_role("link", name="About", exact=True).click()
    expect(page.get_by_text(f"{server.url}/v1", exact=True)).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^kv type"))).to_contain_text("default, exact")
    page.get_by_label("For", exact=True).select_option("Python, openai")
    text = copied(page, page.get_by_role("button", name="Copy", exact=True).last)
    assert f'base_url="{server.url}/v1"' in text and 'model="tiny"' in text
    compile(text, "snippet", "exec")


def test_a_lost_engine_is_said(browser: Browser) -> None:
    with running(wait=False, fail_load=True) as up:
        page = open_page(browser, f"{up.url}/#/monitor")
        expect(page.get_by_role("alert")).to_contain_text("tensor x is cut short")
        page.context.close()


@pytest.mark.parametrize(("size", "scheme"), [("desktop", "dark"), ("phone", "light")])
@pytest.mark.parametrize("name", ["monitor", "about"])
def test_axe_finds_nothing_and_nothing_is_cut(
    browser: Browser, server: Running, name: str, size: str, scheme: str
) -> None:
    page = open_page(browser, f"{server.url}/#/{name}", size, scheme)
    expect(page.locator(".panel").last).to_be_visible()
    found = Axe().run(page).response["violations"]
    assert [f"{item['impact']} {item['id']}: {item['nodes'][0]['html'][:120]}" for item in found] == []
    assert page.locator(".page").evaluate("p => p.scrollWidth <= p.clientWidth")
    shot(page, f"{name}-{size}-{scheme}")
    assert faults(page) == []
    page.context.close()
