"""The generator's command."""

import sys

import pytest
import routing

from strata.checkpoint.demo import model_path
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


def test_a_models_routing_is_recorded(tmp_path, monkeypatch, capsys):
    out, text = tmp_path / "t.npz", tmp_path / "read.txt"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 8)
    words = ["recorded", out, "--text", text, "--model", model_path(None), "--tokens", 40]
    monkeypatch.setattr(sys, "argv", ["routing.py", *map(str, words)])
    routing.main()
    trace = load_trace(out)
    assert len(trace.ids) == 40 and trace.origin.startswith("recorded: ") and trace.origin.endswith("reading read.txt")
    assert "resident  hits" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["routing.py", "recorded", str(out)])
    with pytest.raises(SystemExit):
        routing.main()
