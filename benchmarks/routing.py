"""Generates a routing trace and prints its residency -> hit curve beside the points that it follows.

    python benchmarks/routing.py typical OUT.npz --layers 48 --experts 512 --top-k 10

`--routing-trace OUT.npz` then replays it in place of the router's choice.
"""

import argparse
import sys
from pathlib import Path

from strata.experts.traces import CURVES, RoutingTrace, generate, residency_curve

SHARES = (0.05, 0.12, 0.2, 0.3, 0.4, 0.52, 0.7)
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


def main() -> None:
    """Write the file and print the curve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("curve", choices=CURVES)
    parser.add_argument("out", type=Path)
    for name, default in (("tokens", 2000), ("layers", 48), ("experts", 512), ("top-k", 10), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--locality", type=float, default=0.3, help="share of choices that repeat a near token's")
    asked = parser.parse_args()
    curve = CURVES[asked.curve]
    shape = (asked.tokens, asked.layers, asked.top_k)
    trace = generate(curve, shape, asked.experts, asked.locality, asked.seed)
    trace.save(asked.out)
    sys.stdout.write(f"{trace.origin}\n{table(trace, curve.points)}\n")


if __name__ == "__main__":
    main()
