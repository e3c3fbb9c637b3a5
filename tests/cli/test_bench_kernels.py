"""`strata bench kernels`, through the command line."""

import json

import pytest

from strata.cli.main import run

WORDS = ["bench", "kernels", "--format", "Q4_K", "--rows", "2", "--mb", "1", "--repeat", "2", "--only", "linear"]


def test_json_lines_carry_machine_settings_and_the_memory_beside_them(capsys):
    assert run([*WORDS, "--isa", "portable", "--threads", "1", "--json"], {}) == 0
    read, linear = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (read["kernel"], read["share_of_read"]) == ("read", 1)
    assert (linear["bench"], linear["kernel"], linear["shape"], linear["rows"]) == ("kernels", "linear", "Q4_K", 2)
    assert linear["machine"] | {"cpu": ""} == {"cpu": "", "threads": 1, "isa": "portable"}
    assert linear["settings"] == {"cols": 2048, "mb": 1, "repeat": 2} and "commit" in linear
    assert linear["read_gb_per_second"] == read["gb_per_second"]


def test_a_table_for_people(capsys):
    assert run(WORDS, {}) == 0
    head, read, linear = capsys.readouterr().out.splitlines()
    assert head.split() == ["kernel", "on", "rows", "ms", "GB/s", "of", "read", "GMAC/s"]
    assert read.startswith("read") and linear.split()[:3] == ["linear", "Q4_K", "2"]


def test_a_gpu_is_named(capsys):
    words = ["bench", "kernels", "--only", "read", "--mb", "1", "--repeat", "1", "--json", "--device"]
    for device, name in (("emulator", "host emulator"), ("cpu", "cpu")):
        assert run([*words, device], {}) == 0
        assert json.loads(capsys.readouterr().out)["device"] == name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--format", "Q9"], "--format Q9: unknown"),
        (["--only", "sampler"], "--only sampler: unknown"),
        (["--cols", "300"], "--cols 300: rows of every format need a multiple of 256"),
        (["--isa", "naive"], "--isa naive: the naive operations are not measured"),
    ],
)
def test_what_cannot_be_measured_exits_2(words, said, capsys):
    assert run(["bench", "kernels", *words], {}) == 2
    assert said in capsys.readouterr().err
