"""The performance page and its plot: made from results, complete, and as committed."""

import re
from xml.etree import ElementTree

import pytest
import report
from plot import Panel, rounded_up, svg
from sweep import BASE, POINTS

ORIGIN = {"machine": {"cpu": "Zen", "threads": 2}, "commit": "abc"}


def sweep_line(over, at, rate, rows=1.0):
    line = {"sweep": over, "at": at, "tokens_per_second": {"median": rate}, "rows_per_step": rows}
    line |= {"gb_per_second": 10.0, "read_gb_per_second": 25.0, "bytes_per_step": 3e6, "state_bytes_per_step": 1e6}
    return line | ORIGIN


def kernel_line(kernel, shape, rows, **more):
    line = {"kernel": kernel, "shape": shape, "rows": rows, "milliseconds": {"median": 1.5}, "gb_per_second": 20.0}
    return {**line, "share_of_read": 0.8, **more, **ORIGIN}


def test_the_committed_page_is_what_the_results_give():
    page, plot = report.written(report.PAGE.read_text(), report.RESULTS)
    assert page == report.PAGE.read_text() and plot == report.PLOT.read_text()


def test_a_page_whose_figures_were_changed_by_hand_is_noticed():
    page = report.PAGE.read_text()
    typed = page.replace("<!-- figures: peers -->\n", "<!-- figures: peers -->\n| we | win |\n")
    assert typed != page and report.written(typed, report.RESULTS)[0] == page


def test_sections_are_replaced_and_a_missing_place_is_an_error():
    page = "a\n<!-- figures: x -->\nold\n<!-- end -->\nb\n"
    assert report.filled(page, {"x": "new \\1\n"}) == "a\n<!-- figures: x -->\nnew \\1\n<!-- end -->\nb\n"
    with pytest.raises(ValueError, match="0 places for the figures of y"):
        report.filled(page, {"y": ""})


def test_no_results_are_said_to_be_none():
    assert (
        report.peers_section([])
        == report.slots_section([])
        == report.kernels_section([])
        == report.sweep_section([])
        == "Not measured yet.\n"
    )


def test_products_are_a_table_of_formats_by_rows():
    lines = [
        kernel_line("read", "128 MB", 1, gb_per_second=25.04),
        kernel_line("linear", "Q4_K", 1, gmac_per_second=47.2),
        kernel_line("linear", "Q4_K", 4, gmac_per_second=80.0),
        kernel_line("linear", "Q6_K", 4, gmac_per_second=60.0),
        kernel_line("attention", "32 heads", 1),
    ]
    rows = report.kernels_section(lines).splitlines()
    assert rows[0] == "Zen, 2 threads; commit abc; a plain read gives 25.0 GB/s."
    assert "| product | 1 row | 4 rows |" in rows
    assert "| Q4_K | 20.0 GB/s, 47 GMAC/s | 20.0 GB/s, 80 GMAC/s |" in rows
    assert "| Q6_K | - | 20.0 GB/s, 60 GMAC/s |" in rows
    assert rows[-1] == "| attention | 32 heads | 1 | 1.500 | 20.0 | 80% |"


def test_slots_show_the_last_line_of_each_number():
    rate = {"median": 10.0, "min": 9.0, "max": 11.0}
    line = {"model": "/m/a.gguf", "context": 64, "slots": 1, "tokens_per_second": rate, "share_of_bytes": None}
    line |= {"distinct_experts_per_step": 96.0, "bytes_per_step": 2.5e8, **ORIGIN}
    four = line | {"slots": 4, "share_of_bytes": 0.876, "bytes_per_step": 7e8}
    rows = report.slots_section([line | {"share_of_bytes": 0.1}, line, four]).splitlines()
    assert rows[-2:] == [
        "| a | 1 | 10.0 (9.0 to 11.0) | 96.0 | 250 | - |",
        "| a | 4 | 10.0 (9.0 to 11.0) | 96.0 | 700 | 88% |",
    ]


def test_a_step_of_several_rows_costs_their_time_together():
    lines = [sweep_line("rows", 4, 200.0, 4.0), sweep_line("rows", 1, 100.0)]
    (panel,) = report.panels_of(lines)
    assert panel == Panel("rows", [1, 4], [10.0, 20.0], [0.4, 0.4])
    assert "| rows | 4 | 20.00 | 4 | 10.0 | 40% |" in report.sweep_section(lines).splitlines()


def test_every_curve_has_points_and_changes_one_size_only():
    assert {point.over for point in POINTS} == set(report.PANELS)
    for point in POINTS:
        sizes = {"context": point.context, "layers": point.shape.layers, "rows": point.slots}
        sizes["experts per token"] = point.shape.top_k
        base = {"context": 0, "layers": BASE.layers, "rows": 1, "experts per token": BASE.top_k}
        assert sizes == {**base, point.over: point.at}


def test_the_plot_is_svg_with_every_point_inside_its_panel():
    panels = [Panel("context", [0, 4096], [3.0, 5.5], [0.9, 1.2]), Panel("rows & slots", [1], [2.0], [0.5])]
    root = ElementTree.fromstring(svg(panels, "a < b"))
    frames = [r for r in root if r.tag.endswith("rect") and r.get("stroke")]
    circles = [c for c in root if c.tag.endswith("circle")]
    assert len(frames) == 2 and len(circles) == 6
    top, bottom = float(frames[0].get("y")), float(frames[0].get("y")) + float(frames[0].get("height"))
    assert all(top <= float(c.get("cy")) <= bottom for c in circles)
    words = [t.text for t in root if t.tag.endswith("text")]
    assert {"context", "rows & slots", "4096", "a < b", "8", "100%"} <= set(words)
    assert not re.search("nan|inf", svg(panels, ""))


@pytest.mark.parametrize(("value", "most"), [(3.0, 4), (8.0, 8), (8.1, 10), (0.03, 0.04), (120.0, 200)])
def test_an_axis_ends_at_a_round_number(value, most):
    assert rounded_up(value) == pytest.approx(most)
