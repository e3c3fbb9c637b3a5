"""The section about several requests at once."""

from crowds import between, crowds_section

ORIGIN = {"model": "some/demo.gguf"}
SPREAD = {"p50": 0.01, "p95": 0.05, "max": 0.2}
JOIN = {"bench": "join", "streams": 4, "prompts": [40, 20], "longest_gap_s": 0.17, "bound_s": 0.25, **ORIGIN}
JOIN |= {"together_s": [1.9, 0.8], "alone_s": [1.3, 0.7]}
OVERTAKE = {"bench": "overtake", "long": 7500, "slots": 2, "first_s": 0.02, "share": 0.008, **ORIGIN}
TURN = {
    "bench": "turns",
    "name": "next turn",
    "prompt": 4164,
    "kept": 0.999,
    "share": 0.021,
    "first_s": 0.035,
    **ORIGIN,
}
SERVE = {
    "bench": "serve",
    "clients": 4,
    "slots": {"serving": 4},
    "rate": 99.6,
    "first_token_s": SPREAD,
    "gap_s": SPREAD,
}
SERVE |= {"streams_per_step": {"0": 9, "4": 3, "2": 1}, "model": "strata-demo"}
SOAK = {
    "bench": "soak",
    "clients": 16,
    "seconds": 600.3,
    "asked": 900,
    "left": 200,
    "compared": 500,
    "lost": 0,
    "wrong": 0,
}
SOAK |= {"leaked": {"slots": 0, "pages": 0}, "model": "strata-demo"}
SOAK |= {"memory": {"middle": {"bytes": 300 << 20}, "end": {"bytes": 301 << 20}}}


def section(*lines):
    return crowds_section(lines, lambda found: f"{len(found)} lines.\n", "nothing\n").splitlines()


def test_every_kind_has_its_table():
    slower = JOIN | {"longest_gap_s": 0.182, "together_s": [2.0, 0.8]}
    said = section(JOIN, slower, OVERTAKE, TURN, SERVE, SOAK)
    assert said[0] == "6 lines."
    assert "| demo | 4 | 40, 20 | 170 to 182 | 250 | 1.90 to 2.00, 0.80 | 1.30, 0.70 |" in said
    assert "| demo | 7500 tokens | 2 | 20 | 0.8% |" in said
    assert "| demo | next turn | 4164 | 99.9% | 35 | 2.1% |" in said
    assert "| strata-demo | 4 | 4 | 100 | 3.5 | 10 | 10 | 50 |" in said
    assert "| strata-demo | 16 | 10 | 900 | 200 | 500 | 0 | 0 | 0 | 300, 301 |" in said


def test_other_settings_are_other_rows_and_nothing_is_said_of_nothing():
    said = section(OVERTAKE, OVERTAKE | {"slots": 1})
    assert [line for line in said if "7500" in line] == [
        "| demo | 7500 tokens | 2 | 20 | 0.8% |",
        "| demo | 7500 tokens | 1 | 20 | 0.8% |",
    ]
    assert section() == ["nothing"]
    assert between([0.5, 0.2, 0.3], ".1f") == "0.2 to 0.5"
