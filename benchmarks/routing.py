"""Makes a routing trace and prints its residency -> hit curve, beside the points that a generated one follows.

    python benchmarks/routing.py typical OUT.npz --layers 48 --experts 512 --top-k 10
    python benchmarks/routing.py recorded OUT.npz --model MODEL.gguf --text FILE --tokens 2000

`--routing-trace OUT.npz` then replays it in place of the router's choice.
"""

import argparse
import sys
from pathlib import Path

from strata.assemble import load
from strata.chat.tokenizer import load_tokenizer
from strata.checks.perplexity import encode_text
from strata.core.log import Level, Log
from strata.core.window import Window
from strata.experts.traced import RoutingRecorder
from strata.experts.traces import CURVES, RoutingTrace, generate, residency_curve
from strata.plan.wishes import Wishes

SHARES = (0.05, 0.12, 0.2, 0.3, 0.4, 0.52, 0.7)
PIECE = 256
"""Tokens of a step while recording."""
LEARNED = 0.6
"""Part of the tokens that say which experts are resident; the others count hits."""


def table(trace: RoutingTrace, points: tuple[tuple[float, float], ...]) -> str:
    """The curve, one line per share of residents."""
    shares = tuple(sorted({*SHARES, *(share for share, _ in points)}))
    wanted = dict(points)
    lines = ["resident  hits  wanted"]
    for share, hits in residency_curve(trace, shares, LEARNED):
        aim = f"{100 * wanted[share]:5.0f}%" if share in wanted else ""
        lines.append(f"{100 * share:7.0f}% {100 * hits:4.0f}% {aim}".rstrip())
    return "\n".join(lines)


def record(model: Path, text: Path, tokens: int) -> RoutingTrace:
    """What the model's routers choose for the first `tokens` tokens of a text, read as one prompt."""
    recorder = RoutingRecorder()
    loaded = load(model, Wishes(parallel=1, ctx_size=tokens), Log(Level.WARNING), recorder)
    ids = encode_text(load_tokenizer(loaded.checkpoint), text.read_text(encoding="utf-8"))[:tokens]
    for start in range(0, len(ids), PIECE):
        window = Window(0, start, tuple(ids[start : start + PIECE]), 0)
        loaded.runner.forward([window])
        loaded.runner.states.commit(0, len(window.tokens), loaded.runner.ops)
    return recorder.trace(loaded.model.shape.experts, f"recorded: {model.name} reading {text.name}")


def main() -> None:
    """Write the file and print the curve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("curve", choices=(*CURVES, "recorded"))
    parser.add_argument("out", type=Path)
    for name, default in (("tokens", 2000), ("layers", 48), ("experts", 512), ("top-k", 10), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--locality", type=float, default=0.3, help="share of choices that repeat a near token's")
    for name in ("model", "text"):
        parser.add_argument(f"--{name}", type=Path, help="of a recorded trace")
    asked = parser.parse_args()
    points: tuple[tuple[float, float], ...] = ()
    if asked.curve == "recorded":
        if asked.model is None or asked.text is None:
            parser.error("a recorded trace needs --model and --text")
        trace = record(asked.model, asked.text, asked.tokens)
    else:
        shape = (asked.tokens, asked.layers, asked.top_k)
        trace = generate(CURVES[asked.curve], shape, asked.experts, asked.locality, asked.seed)
        points = CURVES[asked.curve].points
    trace.save(asked.out)
    sys.stdout.write(f"{trace.origin}\n{table(trace, points)}\n")


if __name__ == "__main__":
    main()
