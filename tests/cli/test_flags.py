"""Where a setting's value comes from, and how it is written."""

from pathlib import Path

import pytest

from strata.cli.flags import Given, known_names, read_file, to_flags, unknown_variables
from strata.core.errors import UsageError
from strata.plan.setting import settings_of
from strata.plan.wishes import Wishes
from strata.server.settings import ServerSettings


def given(
    flags: dict[str, str | bool | None] | None = None,
    environ: dict[str, str] | None = None,
    file: dict[str, object] | None = None,
) -> Given:
    return Given(environ or {}, flags or {}, file or {}, "x.toml")


def test_flag_beats_environment_beats_file_beats_default() -> None:
    flags: dict[str, str | bool | None] = {"ctx_size": "100", "threads": None}
    environ = {"STRATA_CTX_SIZE": "200", "STRATA_THREADS": "2", "PATH": "x"}
    file: dict[str, object] = {"ctx_size": 300, "threads": 3, "top_k": 5}
    wishes = given(flags, environ, file).resolve(Wishes)
    assert (wishes.ctx_size, wishes.threads, wishes.top_k, wishes.top_p) == (100, 2, 5, None)
    assert given({}, environ, file).resolve(Wishes).ctx_size == 200
    assert given({}, {}, file).resolve(Wishes).ctx_size == 300
    assert given().resolve(Wishes) == Wishes()


def test_words_stand_for_nothing_asked() -> None:
    environ = {"STRATA_CTX_SIZE": "200", "STRATA_PARALLEL": "3", "STRATA_RAM_GIB": "2.5"}
    flags: dict[str, str | bool | None] = {"ctx_size": "auto", "parallel": "auto", "ram_gib": "mapped"}
    assert given(environ=environ).resolve(Wishes).ram_gib == 2.5
    assert given(flags, environ).resolve(Wishes) == Wishes()


def test_another_name_of_a_setting() -> None:
    assert given(environ={"STRATA_SLOTS": "3"}).resolve(Wishes).parallel == 3
    assert given(file={"slots": 3}).resolve(Wishes).parallel == 3
    with pytest.raises(UsageError, match="the same setting"):
        given(file={"slots": 3, "parallel": 2}).resolve(Wishes)


def test_switches() -> None:
    assert given({"insecure": True}).resolve(ServerSettings).insecure
    assert not given({"insecure": False}, {"STRATA_INSECURE": "1"}).resolve(ServerSettings).insecure
    assert given(environ={"STRATA_INSECURE": "yes"}).resolve(ServerSettings).insecure
    assert given(file={"insecure": True}).resolve(ServerSettings).insecure


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ctx_size", "many", "--ctx-size: expected a whole number from 16 to 16777216, or auto, found 'many'"),
        ("ctx_size", "3", "--ctx-size: expected .* found 3"),
        ("isa", "sse9", "--isa: expected one of auto, portable, avx2, avx512, naive, found 'sse9'"),
        ("kv_type", "k8v4", "--kv-type: 'k8v4' is not built yet"),
        ("device", "tpu", "--device: expected one of auto, cpu, cuda, emulator, found 'tpu'"),
        ("vram_gib", "-1", "--vram-gib: expected a number of 0 or more, or auto"),
        ("temp", "nan", "--temp: expected a number"),
        ("top_p", "1.5", "--top-p: expected a number from 0 to 1, or model"),
        ("parallel", "0", "--parallel"),
        ("log_level", "loud", "--log-level"),
        ("presence_penalty", "model", "--presence-penalty: expected a number"),
    ],
)
def test_bad_values_name_their_source(name: str, value: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        given({name: value}).resolve(Wishes)
    with pytest.raises(UsageError, match=f"STRATA_{name.upper()}"):
        given(environ={f"STRATA_{name.upper()}": value}).resolve(Wishes)


@pytest.mark.parametrize(
    ("name", "value"), [("ctx_size", True), ("ctx_size", 2.5), ("temp", [1]), ("isa", 5), ("ctx_size", {"a": 1})]
)
def test_file_values_have_their_type(name: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"x.toml: {name}: expected"):
        given(file={name: value}).resolve(Wishes)


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "strata.toml"
    file.write_text('ctx-size = 512\nhost = "127.0.0.1"\ntemp = 1\n')
    assert read_file(file) == {"ctx_size": 512, "host": "127.0.0.1", "temp": 1}
    for content, said in (
        ("colour = 1", "unknown key 'colour'"),
        ("ctx-size = 1\nctx_size = 2", "given twice"),
        ("nonsense", "not TOML"),
    ):
        file.write_text(content)
        with pytest.raises(UsageError, match=said):
            read_file(file)
    with pytest.raises(UsageError, match="cannot be read"):
        read_file(tmp_path / "missing")


def test_settings_written_as_flags_read_back() -> None:
    many = Wishes(ctx_size=99, parallel=2, temp=0.5, isa="naive", seed=2**64 - 1, adapt_async=False)
    for wishes in (Wishes(), many):
        words = to_flags(wishes)
        assert ("--adapt-async" in words) == wishes.adapt_async != ("--no-adapt-async" in words)
        switch = words.index("--adapt-async" if wishes.adapt_async else "--no-adapt-async")
        words[switch : switch + 1] = ["--adapt-async", str(wishes.adapt_async).lower()]
        flags: dict[str, str | bool | None] = {
            name.removeprefix("--").replace("-", "_"): value
            for name, value in zip(words[::2], words[1::2], strict=True)
        }
        # Every setting is written, so the environment of the child cannot change one.
        assert set(flags) == set(settings_of(Wishes))
        assert given(flags, {"STRATA_CTX_SIZE": "7", "STRATA_TEMP": "2"}).resolve(Wishes) == wishes


def test_misspelled_variables_are_found() -> None:
    environ = {"STRATA_CTXSIZE": "1", "STRATA_CTX_SIZE": "1", "STRATA_CONFIG": "x", "STRATA_SLOTS": "1", "HOME": "x"}
    assert unknown_variables(environ) == ["STRATA_CTXSIZE"]


def test_every_setting_has_help() -> None:
    assert all(rule.help for rule in known_names().values())
