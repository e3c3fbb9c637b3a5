"""The chat page in a real browser, before the fake engine."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from server.harness import Running, ids, running
from server.web.browsing import answer_text, ask, copied, faults, open_page, shot

CODE = "Here:\n\n```python\nprint(1 < 2)\n```\n\n| a | b |\n|--:|---|\n| 1 | 2 |\n\n3. Done."
HOSTILE = (
    "<img src=x onerror=alert(1)> <script>alert(2)</script> [x](javascript:alert(3)) "
    "![pixel](https://evil.example/p.png) <b onclick=alert(4)>bold</b>\n\n<form action=https://evil.example><input></form>"
)
MATH = (
    "So $a_1 * b_1 * c_1$ and \\(x_i^2\\) cost $5 or $6 *at most*.\n\n"
    "$$\n\\sum_{i=1}^n x_i * y_i\n$$\n\n\\[ E = m * c^2 * 1 \\]\n\nEnd."
)
ANSWERS = {
    "plain": "Hello **world**, 1 < 2.",
    "code": CODE,
    "hostile": HOSTILE,
    "thought": "<think>\nLet me see.\n</think>\n\nIt is 4.",
    "long": "word " * 400,
    "math": MATH,
}
SEED = {name: str(number) for number, name in enumerate(ANSWERS)}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(answers=[ids(text) for text in ANSWERS.values()], token_s=0.002, context=8192) as up:
        yield up


@pytest.fixture(scope="module")
def shared(browser: Browser, server: Running) -> Iterator[Page]:
    opened = open_page(browser, server.url)
    yield opened
    opened.context.close()


@pytest.fixture
def page(shared: Page) -> Iterator[Page]:
    """The same page, with a new conversation that has no settings."""
    shared.keyboard.press("Alt+n")
    shared.keyboard.press("Alt+s")
    shared.get_by_role("button", name="Clear all", exact=True).click()
    shared.keyboard.press("Escape")
    expect(shared.locator(".settings")).to_have_count(0)
    yield shared
    assert faults(shared) == []


def choose(page: Page, name: str) -> None:
    """Have the next answers be this one."""
    page.get_by_role("button", name=re.compile("^Settings")).click()
    page.get_by_label("Seed", exact=True).fill(SEED[name])
    page.keyboard.press("Escape")
    expect(page.locator(".settings")).to_have_count(0)


def test_an_answer_streams_in_and_tells_its_figures(page: Page) -> None:
    choose(page, "plain")
    ask(page, "Hi")
    assert answer_text(page) == "Hello world, 1 < 2."
    expect(page.locator(".markdown strong")).to_have_text("world")
    expect(page.locator("li.assistant .figures")).to_contain_text("tokens")
    expect(page.get_by_label("Title of the conversation", exact=True)).to_have_value("Hi")
    expect(page.locator("[role=status]").last).to_have_text("Hello **world**, 1 < 2.")


def test_code_is_copied_and_tables_are_tables(page: Page) -> None:
    choose(page, "code")
    ask(page, "Code")
    assert copied(page, page.locator(".code-copy")) == "print(1 < 2)"
    expect(page.locator(".markdown td").first).to_have_text("1")
    expect(page.locator(".markdown td").first).to_have_attribute("align", "right")
    expect(page.locator(".markdown ol")).to_have_attribute("start", "3")
    for region in ("python code", "table"):
        expect(page.get_by_role("region", name=region, exact=True)).to_have_attribute("tabindex", "0")
    assert copied(page, page.locator("li.assistant").get_by_role("button", name="Copy", exact=True).last) == CODE


def test_formulas_stay_as_they_were_written(page: Page) -> None:
    choose(page, "math")
    ask(page, "Math")
    shown = page.locator(".markdown").last
    assert shown.locator("span.formula").all_inner_texts() == ["$a_1 * b_1 * c_1$", r"\(x_i^2\)"]
    assert shown.locator("div.formula").all_inner_texts() == [
        "$$\n\\sum_{i=1}^n x_i * y_i\n$$",
        r"\[ E = m * c^2 * 1 \]",
    ]
    expect(shown.locator("em")).to_have_text("at most")


def test_what_a_model_writes_cannot_act(page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    choose(page, "hostile")
    ask(page, "Do something bad")
    assert not [url for url in asked if "evil.example" in url or url.endswith("/x")]
    shown = page.locator(".markdown").last
    assert shown.locator("img, script, form, input, [onclick], [onerror], [href^=javascript]").count() == 0
    assert "<script>alert(2)</script>" in shown.inner_text()
    expect(shown.get_by_role("link", name="pixel", exact=True)).to_have_attribute("rel", "noopener noreferrer nofollow")


def test_thinking_is_folded(page: Page) -> None:
    choose(page, "thought")
    ask(page, "2 + 2?")
    assert answer_text(page) == "It is 4."
    thought = page.get_by_text("Let me see.")
    expect(thought).to_be_hidden()
    page.locator("summary").click()
    expect(thought).to_be_visible()


def test_escape_stops_and_the_engine_is_free_again(page: Page, server: Running) -> None:
    choose(page, "long")
    page.get_by_label("Message", exact=True).fill("Go on")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    expect(page.locator(".markdown").last).to_contain_text("word")
    page.keyboard.press("Escape")
    expect(page.locator(".figures").last).to_contain_text("stopped")
    assert 0 < len(answer_text(page)) < len(ANSWERS["long"].strip())
    while server.http.get("/v1/status").json()["concurrency"]["running"]:
        page.wait_for_timeout(20)


def test_retry_and_edit(page: Page) -> None:
    choose(page, "plain")
    ask(page, "First")
    ask(page, "Second")
    choose(page, "thought")
    page.get_by_role("button", name="Retry", exact=True).click()
    expect(page.locator(".markdown").last).to_have_text("It is 4.")
    expect(page.locator("li.assistant")).to_have_count(2)
    page.get_by_label("Message", exact=True).press("ArrowUp")
    page.get_by_label("Your message", exact=True).fill("Third")
    page.keyboard.press("Control+Enter")
    expect(page.locator("li.user .said").last).to_have_text("Third")
    expect(page.locator("li.assistant article").last).to_have_attribute("aria-busy", "false")
    expect(page.locator(".messages > ol > li")).to_have_count(4)


def test_the_request_carries_what_the_drawer_says(page: Page) -> None:
    bodies: list[dict[str, object]] = []
    page.on("request", lambda r: bodies.append(json.loads(r.post_data or "{}")) if r.method == "POST" else None)
    page.keyboard.press("Alt+s")
    page.get_by_label("System prompt", exact=True).fill("Be brief.")
    page.get_by_label("Temperature", exact=True).fill("0.5")
    page.get_by_label("Most tokens", exact=True).fill("3")
    page.get_by_label("Stop texts, one a line", exact=True).fill("END\n\\n\\n")
    page.get_by_label("Thinking", exact=True).select_option("none")
    page.keyboard.press("Alt+s")
    ask(page, "Hi")
    expect(page.locator(".figures").last).to_contain_text("cut at the limit of tokens")
    assert bodies[0]["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert (bodies[0]["temperature"], bodies[0]["max_tokens"]) == (0.5, 3)
    assert (bodies[0]["stop"], bodies[0]["reasoning_effort"]) == (["END", "\n\n"], "none")
    assert "top_p" not in bodies[0] and "seed" not in bodies[0]


def test_an_error_is_shown_and_can_be_tried_again(page: Page) -> None:
    page.keyboard.press("Alt+s")
    page.get_by_label("Top p", exact=True).fill("7")
    page.keyboard.press("Escape")
    page.get_by_label("Message", exact=True).fill("Hi")
    page.keyboard.press("Enter")
    expect(page.locator("li.assistant [role=alert]")).to_contain_text("top_p")
    faults(page).clear()  # the browser reports the 400
    page.keyboard.press("Alt+s")
    page.get_by_role("button", name="Clear all", exact=True).click()
    page.get_by_label("Seed", exact=True).fill(SEED["plain"])
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Retry", exact=True).click()
    expect(page.locator(".markdown").last).to_have_text("Hello world, 1 < 2.")


def test_a_slash_comes_to_the_message_and_shift_enter_breaks_its_line(page: Page) -> None:
    question = page.get_by_label("Message", exact=True)
    page.get_by_role("button", name="New conversation", exact=True).focus()
    page.keyboard.press("/")
    expect(question).to_be_focused()
    page.keyboard.type("a/b")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("c")
    expect(question).to_have_value("a/b\nc")
    question.fill("")


def test_a_full_queue_is_said_with_what_to_do(browser: Browser) -> None:
    with running(busy=True) as up:
        page = open_page(browser, up.url)
        page.get_by_label("Message", exact=True).fill("Hi")
        page.keyboard.press("Enter")
        failure = page.locator("li.assistant [role=alert]")
        expect(failure).to_contain_text("64 requests wait already")
        expect(failure.locator(".hint")).to_have_text("Everybody is waiting. Try again in a moment.")
        shot(page, "chat-refused-desktop-light")
        page.context.close()


@pytest.mark.parametrize(("size", "scheme"), [("desktop", "dark"), ("phone", "light")])
def test_a_message_waits_for_the_model_that_loads(browser: Browser, tmp_path: Path, size: str, scheme: str) -> None:
    loaded = tmp_path / "loaded"
    with running(wait=False, load_until=str(loaded), answers=[ids("Hello.")]) as up:
        page = open_page(browser, up.url, size, scheme)
        expect(page.locator(".start .loading")).to_contain_text("tiny is loading 43%")
        expect(page.locator(".start").get_by_role("progressbar", name="Loading", exact=True)).to_have_js_property(
            "value", 43
        )
        expect(page.locator(".start .loading .hint")).to_have_text("reading the model's file")
        expect(page.locator(".server-state")).to_contain_text("loading 43%")
        shot(page, f"loading-{size}-{scheme}")
        page.get_by_label("Message", exact=True).fill("Hi")
        page.get_by_role("button", name="Send", exact=True).click()
        expect(page.locator("li.assistant").get_by_text("tiny is loading")).to_be_visible()
        loaded.touch()
        expect(page.locator("li.assistant .markdown")).to_have_text("Hello.")
        assert faults(page) == []
        page.context.close()


def test_history_stays_in_the_browser_and_travels_as_a_file(browser: Browser, server: Running, tmp_path: Path) -> None:
    page = open_page(browser, server.url)
    choose(page, "plain")
    ask(page, "Remember this")
    page.reload()
    expect(page.locator("li.user .said")).to_have_text("Remember this")
    page.get_by_role("button", name="More", exact=True).click()
    with page.expect_download() as written:
        page.get_by_role("button", name="Export as Markdown", exact=True).click()
    assert written.value.suggested_filename == "remember-this.md"
    assert Path(written.value.path()).read_text() == (
        "# Remember this\n\n## You\n\nRemember this\n\n## Assistant\n\nHello **world**, 1 < 2.\n"
    )
    page.get_by_role("button", name="More", exact=True).click()
    with page.expect_download() as written:
        page.get_by_role("button", name="Export as JSON", exact=True).click()
    file = tmp_path / "saved.json"
    written.value.save_as(file)
    page.get_by_role("button", name="More", exact=True).click()
    page.get_by_role("button", name="Delete …", exact=True).click()
    page.get_by_role("button", name="Delete for good", exact=True).click()
    expect(page.locator("li.user")).to_have_count(0)
    page.reload()
    expect(page.get_by_text("Conversations stay in this browser.")).to_be_visible()
    page.locator("input[type=file]").set_input_files(file)
    expect(page.locator("li.user .said")).to_have_text("Remember this")
    page.locator("input[type=file]").set_input_files({"name": "x.json", "mimeType": "x", "buffer": b"{}"})
    expect(page.get_by_role("alert")).to_contain_text("not a conversation")
    assert faults(page) == []
    page.context.close()


def test_conversations_are_apart(page: Page) -> None:
    choose(page, "plain")
    ask(page, "One")
    page.keyboard.press("Alt+n")
    ask(page, "Two")
    page.locator(".conversations").get_by_role("button", name=re.compile("^One")).click()
    expect(page.locator("li.user .said")).to_have_text("One")
    page.get_by_label("Title of the conversation", exact=True).fill("First of all")
    page.keyboard.press("Enter")
    expect(page.locator(".conversations .name").first).to_have_text("First of all")
