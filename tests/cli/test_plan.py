"""`strata plan` and `strata calibrate`."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from strata.assemble import load, make_ops
from strata.checkpoint.gguf import open_gguf
from strata.checks import measured
from strata.checks.facts import processor
from strata.checks.kernel_cases import random_weight
from strata.cli.main import run
from strata.convert.shapes import shape_of
from strata.convert.synth import synth
from strata.convert.types import Types
from strata.core.log import Level, Log
from strata.kernels.cpu_ops import CpuOps
from strata.plan.wishes import Wishes
from strata.quant.formats import FORMATS


def known(folder: Path, gbs: float = 10.0) -> None:
    """Rates as a measurement would leave them."""
    rates = {f"{name}, 1 row": gbs for name in FORMATS} | {f"{name}, rows": 100.0 for name in FORMATS}
    here = {"read": gbs, "call": 0.0, **rates}
    kept = {"version": measured.VERSION, "cpu": processor(), "rates": {"2 threads, portable": here}}
    (folder / "rates.json").write_text(json.dumps(kept))


def planned(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    flags = ["--cache-dir", str(folder), "--threads", "2", "--isa", "portable", "--json"]
    assert run(["plan", *words, *flags], {}) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_the_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known(tmp_path)
    found = planned(tmp_path, capsys)
    assert found["architecture"] == "qwen4exp"
    sizes, rates = found["bytes"], found["tokens_per_second"]
    assert isinstance(sizes, dict) and isinstance(rates, dict)
    assert 45e6 < sum(sizes.values()) < 55e6
    assert rates["decode"] > rates["decode deep"] > 0
    known(tmp_path, gbs=20.0)
    faster = planned(tmp_path, capsys)["tokens_per_second"]
    assert isinstance(faster, dict)
    assert faster["decode"] > 1.5 * rates["decode"]  # made from the rates that are known


def test_more_bytes_than_memory_have_no_forecast_but_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known(tmp_path)
    monkeypatch.setattr("strata.assemble.available_memory", lambda: 40 << 20)
    found = planned(tmp_path, capsys, "--ctx-size", "256", "--parallel", "1")
    assert found["tokens_per_second"] == {}
    advice = found["advice"]
    assert isinstance(advice, list)
    assert "of RAM are free" in advice[0]


def test_what_the_emulated_gpu_would_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known(tmp_path)
    found = planned(tmp_path, capsys, "--device", "emulator", "--ctx-size", "256")
    places = found["places"]
    assert isinstance(places, list)
    assert places[0]["where"].startswith("VRAM: 100% of them")


def test_tables_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known(tmp_path)
    assert run(["plan", "--cache-dir", str(tmp_path), "--threads", "2", "--isa", "portable"], {}) == 0
    said = capsys.readouterr().out
    assert "routed experts" in said and "decode, one stream" in said and "as asked" in said


def test_calibrating_measures_and_keeps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "MEGABYTES", 1)
    environ = {"STRATA_CACHE_DIR": str(tmp_path), "STRATA_THREADS": "2", "STRATA_ISA": "portable"}
    assert run(["calibrate", "--format", "Q8_0", "--json"], environ) == 0
    rates = json.loads(capsys.readouterr().out)["rates"]
    assert set(rates) == {"read", "call", "Q8_0, 1 row", "Q8_0, rows"} and min(rates.values()) > 0
    kept = json.loads((tmp_path / "rates.json").read_text())["rates"]["2 threads, portable"]
    assert kept == rates
    assert run(["calibrate", "--format", "Q8_0"], environ) == 0
    assert "%)" in capsys.readouterr().out  # beside what was known before
    assert run(["calibrate", "--format", "Q9"], environ) == 2


def test_rates_of_another_processor_are_dropped(tmp_path: Path) -> None:
    known(tmp_path)
    text = (tmp_path / "rates.json").read_text()
    assert measured.Measured(tmp_path, 2, "portable").here["read"] == 10.0
    (tmp_path / "rates.json").write_text(text.replace(processor(), "another"))
    assert measured.Measured(tmp_path, 2, "portable").here == {}
    (tmp_path / "rates.json").write_text("{")
    assert measured.Measured(tmp_path, 2, "portable").here == {}


@pytest.mark.parametrize(("limit", "kept"), [(-1.0, False), (2.0, True)])
def test_what_was_measured_in_company_serves_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: float, kept: bool
) -> None:
    monkeypatch.setattr(measured, "DISTURBED", limit)
    monkeypatch.setattr(measured, "MEGABYTES", 1)
    ops, machine = make_ops(Wishes(threads=2))
    assert isinstance(ops, CpuOps)
    rates = measured.Measured(tmp_path, 2, machine.isa).need(["Q8_0"], ops, lambda *_: None)
    assert min(rates.product_gbs["Q8_0"], rates.read_gbs, rates.call_us) > 0
    later = measured.Measured(tmp_path, 2, machine.isa)
    assert set(later.here) == ({"read", "call", "Q8_0, 1 row", "Q8_0, rows"} if kept else set())
    later.need(["Q8_0"], ops, lambda *_: None, again=True)
    assert len(measured.Measured(tmp_path, 2, machine.isa).here) == 4, "who asks for it gets it kept"


def test_small_pages_hold_the_same_weight() -> None:
    weight = random_weight("Q4_K", 8, 256, np.random.default_rng(0))
    copy = measured.in_small_pages(weight)
    assert torch.equal(copy.planes[0], weight.planes[0])
    assert copy.planes[0].data_ptr() % 4096 == 0 and copy.planes[0].data_ptr() != weight.planes[0].data_ptr()


def headers_only(model: Path, target: Path) -> Path:
    """A copy whose weights are holes of a sparse file: whatever reads them finds zeros."""
    with open_gguf(model) as file:
        start = min(ref.offset for ref in file.tensors.values())
    with model.open("rb") as source, target.open("wb") as copy:
        copy.write(source.read(start))
        copy.truncate(model.stat().st_size)
    return target


def test_a_plan_needs_headers_only_and_is_the_one_of_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """O-106: what does not fit is known after the weights were loaded only."""
    known(tmp_path)
    model = tmp_path / "m.gguf"
    synth(model, shape_of("qwen3next", "tiny", None, 300), Types("Q4_K"), 3, 0.0, lambda *_: None)
    hollow = headers_only(model, tmp_path / "hollow.gguf")
    assert hollow.read_bytes() != model.read_bytes()
    flags = [
        "--device",
        "emulator",
        "--ctx-size",
        "256",
        "--parallel",
        "2",
        "--state-ram-gib",
        "0.1",
        "--vram-gib",
        "0.0001",
    ]
    found = planned(tmp_path, capsys, str(hollow), *flags)
    whole = planned(tmp_path, capsys, str(model), *flags)
    assert found["places"] == whole["places"] and found["bytes"] == whole["bytes"]
    settings = found["settings"]
    assert isinstance(settings, dict)
    budget = Wishes(ctx_size=256, parallel=2, state_ram_gib=0.1, vram_gib=0.0001)
    wishes = replace(budget, device="emulator", threads=2, isa="portable", cache_dir=str(tmp_path))
    started = {choice.name: choice.value for choice in load(str(model), wishes, Log(Level.ERROR)).plan.choices}
    same = started.keys() & settings.keys()
    assert {"context", "slots", "pages", "vram_mib"} & same
    assert {name: settings[name]["value"] for name in same} == {name: started[name] for name in same}
    flags[-1] = "0"
    assert planned(tmp_path, capsys, str(hollow), *flags)["places"] != found["places"]
