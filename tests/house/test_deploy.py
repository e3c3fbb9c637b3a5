"""What is shipped for running a server: dashboards, units and images name metrics and settings that exist."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from strata.cli.flags import known_names

ROOT = Path(__file__).resolve().parents[2]


def test_panels_do_not_cover_each_other() -> None:
    places = [panel["gridPos"] for panel in json.loads((ROOT / "deploy/grafana.json").read_text())["panels"]]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(cells) == len(set(cells))


def test_settings_of_the_unit_and_the_image_exist() -> None:
    text = (ROOT / "deploy/strata.service").read_text() + (ROOT / "deploy/Dockerfile").read_text()
    variables = set(re.findall(r"STRATA_[A-Z_]+", text))
    flags = set(re.findall(r"--(?:host|api-key|state-[a-z-]+)", text))
    names = known_names()
    assert {"STRATA_CACHE_DIR", "STRATA_STATE_DIR"} <= variables
    assert [v for v in variables if v.removeprefix("STRATA_").lower() not in names] == []
    assert [f for f in flags if f[2:].replace("-", "_") not in names] == []


def complaints(unit: str, folder: Path) -> str:
    """What systemd says about a unit; the program that it starts is another one, which exists here."""
    file = folder / "strata.service"
    file.write_text(unit.replace("/opt/strata/strata", "/bin/true"))
    command = ["systemd-analyze", "verify", "--man=no", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30).stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = (ROOT / "deploy/strata.service").read_text()
    assert complaints(unit, tmp_path) == ""
    assert "LimitMEMLOK" in complaints(unit.replace("LimitMEMLOCK", "LimitMEMLOK"), tmp_path)


def copied(text: str) -> set[str]:
    """What the image's first stage takes from the checkout."""
    lines = re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE)
    return {source for line in lines for source in line.split()[:-1]}


def test_the_image_is_made_of_files_that_its_context_has() -> None:
    text = (ROOT / "deploy/Dockerfile").read_text()
    sources = copied(text)
    assert {"src", "pyproject.toml", "requirements"} <= sources
    assert [source for source in sources if not (ROOT / source).exists()] == []
    let_in = set(re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    assert let_in == sources
    assert text.rindex("\nUSER strata") > text.rindex("RUN"), "nothing is run as root once it serves"
