"""The generator's command."""

import sys

import routing

from strata.experts.traces import load_trace


def test_the_command_writes_a_trace_and_prints_its_curve(tmp_path, monkeypatch, capsys):
    out = tmp_path / "t.npz"
    options = {"tokens": 400, "layers": 2, "experts": 64, "top-k": 4, "seed": 3}
    arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    monkeypatch.setattr(sys, "argv", ["routing.py", "typical", str(out), *arguments])
    routing.main()
    assert load_trace(out).ids.shape == (400, 2, 4)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("generated: curve typical") and lines[1] == "resident  hits  wanted"
    wanted = {line.split()[0]: line.split()[1:] for line in lines[2:]}
    assert wanted["52%"][1] == "99%" and len(wanted["20%"]) == 1
