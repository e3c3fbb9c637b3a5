"""The comparison with peers: commands, what is read from their output, turns, pieces, and the table."""

import json
import sys
from dataclasses import replace

import compare_peers
import pytest
from child import watched
from compare_peers import compare, counted, parsed, read_lines, table
from peers import Figure, Ik, Llama, Memory, Ours, Run, figure_of

DECODE, DEEP, PROMPT, SLOTS = Figure("decode", 0), Figure("decode", 4096), Figure("prompt", 512), Figure("slots", 4)


def run(test, repeats=2):
    return Run("m.gguf", test, 2, repeats)


@pytest.fixture
def tools(tmp_path):
    for name in ("llama-bench", "llama-batched-bench"):
        (tmp_path / name).write_text("")
    return tmp_path / "llama-bench"


def test_the_peers_are_asked_for_the_same_work(tools):
    words = {
        test: (" ".join(Llama(tools).command(run(test))), " ".join(Ik(tools).command(run(test))))
        for test in (DECODE, DEEP, PROMPT, SLOTS)
    }
    assert all("-m m.gguf -t 2" in command for pair in words.values() for command in pair)
    assert words[DECODE][0].endswith("-p 0 -n 32 -d 0") and words[DECODE][1].endswith("-p 0 -n 32")
    assert words[DEEP][0].endswith("-r 2 -o jsonl -p 0 -n 32 -d 4096")
    assert words[DEEP][1].endswith("-r 1 -o json -p 0 -n 0 -gp 4096,32")
    assert words[PROMPT][0].endswith("-p 512 -n 0") and words[PROMPT][1].endswith("-p 512 -n 0")
    assert words[SLOTS][0] == words[SLOTS][1] and words[SLOTS][0].endswith("-npp 64 -ntg 32 -npl 4")
    ours = Ours(flags=["--kv-type", "f32"])
    command = " ".join(ours.command(run(SLOTS)))
    assert "bench decode m.gguf --threads 2 --repeat 2 --drawn --json --kv-type f32" in command
    assert command.endswith("--context 64 --tokens 32 --slots 4")
    assert "bench prompt" in " ".join(ours.command(run(PROMPT)))


def test_a_peer_without_its_tool_for_slots_is_left_out(tmp_path):
    assert Llama(tmp_path / "llama-bench").command(run(SLOTS)) is None


def test_rates_are_read_from_every_form_of_output(tools):
    line = json.dumps({"avg_ts": 2.0, "samples_ts": [1.5, 2.5]})
    assert Llama(tools).rates(run(DECODE), line) == [1.5, 2.5]
    assert Ik(tools).rates(run(DECODE), f"warning: something\n[{line}]\n") == [1.5, 2.5]
    head = "|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |\n"
    one = "|    64 |     32 |    1 |     96 |    0.2 |    320.0 |    3.5 |      9.0 |    3.7 |    26.0 |\n"
    batched = f"noise\n{head}|---|---|\n{one}{one.replace('    1 |', '    4 |').replace('9.0', '21.5')}"
    assert Llama(tools).rates(run(SLOTS), batched) == Ik(tools).rates(run(SLOTS), batched) == [21.5]
    assert Ours().rates(run(DECODE), '{"runs": [3.0, 4.0]}\n') == [3.0, 4.0]
    line = '{"runs": [3.0], "bytes_per_step": 5, "state_bytes_per_step": 2, "gb_per_second": 7.5, "other": 1}'
    assert Ours().details(line) == {"bytes_per_step": 5, "state_bytes_per_step": 2, "gb_per_second": 7.5}
    with pytest.raises(ValueError, match="no samples_ts"):
        Llama(tools).rates(run(DECODE), "{}")
    with pytest.raises(ValueError, match="no line of 4 sequences"):
        Llama(tools).rates(run(SLOTS), "nothing")


@pytest.mark.parametrize("text", ["sample:4", "decode", "decode:x"])
def test_a_test_that_is_none_is_refused(text):
    with pytest.raises(ValueError):
        figure_of(text)


class Fake:
    """An engine that notes its turns; `code` is what its process does."""

    def __init__(self, name, rate, code="0"):
        self.name, self.rate, self.code = name, rate, code

    def command(self, run):
        return [sys.executable, "-c", f"{self.code}; print({self.rate})"]

    def rates(self, run, output):
        return [float(output)] * run.repeats

    def details(self, output):
        return {"gb_per_second": 20.0} if self.name == "strata" else {}


@pytest.fixture
def options(tmp_path):
    model = tmp_path / "m.gguf"
    model.write_bytes(b"123")
    words = [str(model), "--test", "decode:0", "--rounds", "2", "--company", "9", "--out", str(tmp_path / "out.jsonl")]
    return lambda *more: parsed([*words, *more])


ENGINES = [Fake("strata", 12.0), Fake("llama.cpp", 8.0), Fake("ik_llama.cpp", 10.0)]


def test_engines_take_turns_and_the_table_has_ratios(options):
    lines = []
    assert compare(options(), ENGINES, lines)
    assert [x["engine"] for x in lines] == ["strata", "llama.cpp", "ik_llama.cpp"] * 2
    assert read_lines(options().out) == lines and lines[0]["model_bytes"] == 3 and len(lines[0]["rates"]) == 2
    row = table(lines).splitlines()[2]
    assert (
        row
        == "| m | decode 0 | 12.0 (12.0 to 12.0) | 8.0 (8.0 to 8.0) | 10.0 (10.0 to 10.0) | 1.50 | 1.20 | 20.0 | - |"
    )


def test_what_decoding_moves_is_a_share_of_a_plain_read_in_its_turn(options):
    command = " ".join(Memory().command(run(DECODE)))
    assert "bench kernels --only read --mb 512 --json --threads 2 --repeat 2" in command
    assert Memory().command(run(PROMPT)) is None and Memory().command(run(SLOTS)) is None
    assert Memory().rates(run(DECODE), '{"gb_per_second": 25.0, "read_gb_per_second": 25.0}') == [25.0]
    lines = []
    compare(options(), [ENGINES[0], Fake("memory", 25.0)], lines)
    assert table(lines).splitlines()[2].endswith("| 20.0 | 80% |")


def test_a_comparison_goes_on_where_it_stopped(options):
    lines = []
    compare(options(), ENGINES[:2], lines)
    again = read_lines(options().out)
    assert compare(options(), ENGINES, again)
    assert [x["engine"] for x in again[4:]] == ["ik_llama.cpp"] * 2


def test_ours_count_for_one_commit_only():
    def line(engine, commit, rate):
        return {"engine": engine, "model": "m.gguf", "test": "decode 0", "commit": commit, "rates": [rate]}

    lines = [line("strata", "old", 1.0), line("llama.cpp", None, 4.0), line("strata", "new", 8.0)]
    lines = [x | {"disturbed": False} for x in lines]
    assert [x["rates"] for x in counted(lines, "strata", "m.gguf", "decode 0", "old")] == [[1.0]]
    assert [x["rates"] for x in counted(lines, "strata", "m.gguf", "decode 0")] == [[8.0]]
    assert counted(lines, "strata", "m.gguf", "decode 0", "newest") == []
    assert table(lines).splitlines()[2].endswith("| 2.00 | - | - | - |")


def test_nothing_is_started_that_would_end_too_late(options):
    lines = []
    compare(options("--rounds", "1"), ENGINES, lines)
    for line in lines:
        line["wall_seconds"] = 100.0
    assert not compare(options("--seconds", "50"), ENGINES, lines)
    assert len(lines) == 3


def test_disturbed_runs_are_repeated_and_never_counted(options, monkeypatch):
    shares = iter([0.5, 0.0, 0.5, 0.5, 0.5, 0.01])
    monkeypatch.setattr(compare_peers, "watched", lambda *words: replace(watched(*words), company=next(shares)))
    lines = []
    compare(options("--company", "0.03", "--rounds", "1"), ENGINES, lines)
    assert [(x["engine"], x["disturbed"]) for x in lines] == [
        ("strata", True),
        ("strata", False),
        *[("llama.cpp", True)] * 3,
        ("ik_llama.cpp", False),
    ]
    assert table(lines).splitlines()[2].split(" | ")[3:5] == ["-", "10.0 (10.0 to 10.0)"]


def test_an_engine_that_fails_says_why(options):
    with pytest.raises(RuntimeError, match=r"exit code 1[\s\S]*ZeroDivisionError"):
        compare(options(), [Fake("strata", 1.0, "1/0")], [])


def test_a_process_is_started_through_another_command(options, tmp_path):
    mark = tmp_path / "mark"
    (tmp_path / "wait").write_text(f'touch {mark}; exec "$@"')
    lines = []
    assert compare(options("--through", f"sh {tmp_path / 'wait'}", "--rounds", "1"), ENGINES[:1], lines)
    assert mark.is_file() and lines[0]["rates"] == [12.0, 12.0] and lines[0]["command"][0].startswith("python")


def test_a_watched_process_tells_its_output_time_and_company():
    done = watched([sys.executable, "-c", "import sys; print(7); sys.stderr.write('x')"], [])
    assert (done.code, done.out, done.err) == (0, "7\n", "x") and done.wall_seconds > 0
    assert done.company is None or 0 <= done.company <= 1
    with pytest.raises(RuntimeError, match="exit code 3"):
        watched([sys.executable, "-c", "exit(3)"], [])
    with pytest.raises(RuntimeError, match="exit code 5"):
        watched([sys.executable, "-c", "0"], ["sh", "-c", "exit 5"])
