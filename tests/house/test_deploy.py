"""What is shipped for running a server: dashboards, units and images name metrics and settings that exist."""

import json
import re
from pathlib import Path

from strata.cli.flags import known_names

ROOT = Path(__file__).resolve().parents[2]
SUFFIX = re.compile(r"_(total|bucket|sum|count)$")


def sources() -> str:
    files = [ROOT / "src/strata/server/metrics.py", ROOT / "src/strata/server/engine_metrics.py"]
    return "".join(file.read_text() for file in files)


def known(metric: str, text: str) -> bool:
    """Whether the server's source names a metric, whole or as a part of a family of names."""
    name = SUFFIX.sub("", metric)
    if f'"{name}"' in text:
        return True
    middle = re.fullmatch(r"strata_(?:expert_)?(.+?)(?:_seconds)?", name)
    return middle is not None and f'"{middle[1]}"' in text


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    board = json.loads((ROOT / "deploy/grafana.json").read_text())
    asked = {
        metric
        for panel in board["panels"]
        for target in panel["targets"]
        for metric in re.findall(r"strata_[a-z_]+", target["expr"])
    }
    text = sources()
    assert len(asked) > 20
    assert [metric for metric in sorted(asked) if not known(metric, text)] == []
    assert not known("strata_no_such_thing_total", text)


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
