# ruff: noqa: E501 (templates read better on one line)
"""Chat templates: Hugging Face's meaning, and attacks."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from strata.chat.sandbox import RenderLimits
from strata.chat.template import CHATML, ChatTemplate
from strata.core.errors import CheckpointError, RequestError, StrataError

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi <b>&'\"  "},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello", "reasoning_content": "hm"},
    {"role": "user", "content": "名前は? 😀"},
]


def render(source: str, options: Mapping[str, Any] | None = None, limits: RenderLimits | None = None) -> str:
    return ChatTemplate(source, "test template", {"bos_token": "<s>"}, limits).render(CHAT, True, options or {})


SAME = [
    CHATML,
    "{%- for m in messages -%}\n  {%- if loop.first -%}{{ bos_token }}{%- endif -%}\n  {{ m['role'] | upper }}\n{% endfor %}",
    "{% set ns = namespace(last=-1, text='') %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% set ns.text = ns.text ~ m.role ~ '/' %}{% endfor %}{{ ns.last }} {{ ns.text }}",
    "{% for m in messages %}{% if m.role == 'assistant' %}{% continue %}{% endif %}{{ m.content | trim }}|{% endfor %}",
    "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}{{ loop.last }}{{ loop.length }}{% endfor %}",
    "{{ messages[3:] | tojson }}{{ messages[0] | tojson(indent=2) }}{{ {'a': [1, 2.5, none, true]} | tojson }}",
    "{% macro show(m, n=2) %}[{{ m.role }}{{ n }}]{% endmacro %}{% for m in messages %}{{ show(m) }}{{ show(m, n=3) }}{% endfor %}",
    "{{ messages[2].content.split('</think>')[-1].lstrip('\\n') }}{{ messages[::-1] | map(attribute='role') | join(',') }}",
    "{{ 'x' is string }}{{ tools is none }}{{ nothing is defined }}{{ enable_thinking is true }}{{ messages is iterable }}",
    "{% for m in messages %}{% if m.content.startswith('Hi') and m.content is not none %}{{ m.content[:2] + '!' }}{% endif %}{% endfor %}",
    "{% generation %}{{ messages | length }}{% endgeneration %}{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for m in messages | selectattr('role', 'equalto', 'user') | list %}{{ m.content | replace('Hi', 'Ho') }}{% endfor %}",
    "{% set x %}{{ messages[0].content }}{% endset %}{{ x | length }}{% for i in range(3) %}{{ i * 2 }}{% endfor %}{{ 7 // 2 + 2 ** 3 }}",
    "{%- set c = dict(a=1) -%}{{ c.a }}{{ ['a', 'b'] + ['c'] }}{{ ('a', messages | length) }}{{ 'ab' * 2 }}",
    "{% for g in messages recursive %}{{ g.role }}{{ loop.depth }}{% if loop.depth < 2 %}{{ loop(messages[:1]) }}{% endif %}{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ loop.previtem is defined }}{% else %}none{% endfor %}",
]


@pytest.mark.parametrize("source", SAME)
def test_renders_as_transformers(source: str) -> None:
    expected, _ = render_jinja_template(
        [CHAT], chat_template=source, add_generation_prompt=True, bos_token="<s>", enable_thinking=True
    )
    assert render(source, {"enable_thinking": True}) == expected[0]


ATTACKS = [
    "{{ ''.__class__ }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ''['__class__'] }}",
    "{{ '' | attr('__class__') }}",
    "{{ messages | map(attribute='__class__') | list }}",
    "{{ (messages | first).__init__.__globals__ }}",
    "{{ raise_exception.__globals__ }}",
    "{{ namespace.__init__ }}",
    "{{ cycler.__init__.__globals__.os.system('touch MARK') }}",
    "{{ lipsum.__globals__ }}",
    "{{ self.__init__ }}",
    "{{ '{0.__class__}'.format(1) }}",
    "{{ '{0.__class__}'.format_map({'0': 1}) }}",
    "{{ '%s' % messages }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update({'role': 'x'}) }}",
    "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "{{ (1).to_bytes(4, 'big') }}",
    "{% include 'x' %}",
    "{% import '/etc/passwd' as x %}",
    "{% extends 'x' %}",
]


@pytest.mark.parametrize("source", ATTACKS)
def test_attribute_walks_and_files_are_refused(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StrataError):
        render(source)
    assert list(tmp_path.iterdir()) == []


SMALL = RenderLimits(steps=20_000, text=1 << 20, output=1 << 18, nodes=5_000, seconds=3.0)

BOMBS = [
    "{% for i in range(10**9) %}{% endfor %}",
    "{% for i in range(4000) %}{% for j in range(4000) %}{% endfor %}{% endfor %}",
    "{% for i in range(4000) %}{% for j in range(4000) %}{% for k in range(4000) %}x{% endfor %}{% endfor %}{% endfor %}",
    "{{ 'a' * 10**9 }}",
    "{{ 10 ** (10 ** 10) }}",
    "{% set ns = namespace(n=3) %}{% for i in range(4000) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
    "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set x %}{{ ns.s }}{{ ns.s }}{% endset %}"
    "{% set ns.s = x %}{% endfor %}",
    "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] | join %}{% endfor %}",
    "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = 'x'.join([ns.s, ns.s]) %}{% endfor %}",
    "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = ns.s.replace('a', 'aa') %}{% endfor %}",
    "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = ns.s | replace('a', 'aa') %}{% endfor %}",
    "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
    "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | tojson }}",
    "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = {'a': ns.l, 'b': ns.l} %}{% endfor %}{{ ns.l }}",
    "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = dict(a=ns.l, b=ns.l) %}{% endfor %}{{ ns.l }}",
    "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ ns.l }}",
    "{{ [[1]] * 10**9 }}",
    "{{ 'x'.ljust(10**9) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ 'x' | indent(10**9, true) }}",
    "{{ [1] | tojson(indent=10**9) }}",
    "{{ [1] | batch(10**9, 'x') | list }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% for x in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
    "{{ [[1], [2]] | sum(start=[]) }}",
    "{{ range(10**12) | list }}",
]


@pytest.mark.parametrize("source", BOMBS)
def test_rendering_is_bounded(source: str) -> None:
    with pytest.raises(StrataError):
        render(source, limits=SMALL)


def test_the_clock_alone_stops_a_loop() -> None:
    source = "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"
    with pytest.raises(RequestError, match=r"more than 0\.05 s"):
        render(source, limits=RenderLimits(steps=1 << 60, seconds=0.05))


def test_default_limits_leave_room_for_long_chats() -> None:
    chat = [{"role": "user", "content": "x" * 2000}] * 2000
    template = ChatTemplate(CHATML, "test")
    assert len(template.render(chat, True, {})) > 4_000_000
    assert len(template.render(chat, True, {})) > 4_000_000  # the meter starts anew


def test_syntax_error_names_the_line() -> None:
    with pytest.raises(CheckpointError, match=r"test template, line 3: .*endfor"):
        render("a\nb\n{% endfor %}")


def test_unknown_filter_is_a_compile_error() -> None:
    with pytest.raises(CheckpointError, match="line 1: No filter named 'center'"):
        render("{{ 'x' | center(10) }}")


def test_runtime_error_names_the_line() -> None:
    with pytest.raises(RequestError, match=r"test template, line 2: failed: .*nothing"):
        render("a\n{{ nothing.at.all }}")


def test_the_templates_own_refusal_is_passed_on() -> None:
    with pytest.raises(RequestError, match="refuses: roles must alternate") as caught:
        render("{{ raise_exception('roles must alternate') }}")
    assert caught.value.param == "messages"


def test_time_is_available() -> None:
    assert len(render("{{ strftime_now('%Y-%m-%d') }}")) == 10


def test_the_stock_sandbox_would_not_have_stopped_a_doubling_string() -> None:
    # Negative control: without the meter the same kind of template runs to its end.
    source = BOMBS[6].replace("60", "16")
    assert render(source.replace("{% endfor %}", "{% endfor %}{{ ns.s | length }}")) == str(2 << 16)
    stock = jinja2.sandbox.ImmutableSandboxedEnvironment().from_string(source)
    assert stock.render(messages=json.loads(json.dumps(CHAT))) == ""
