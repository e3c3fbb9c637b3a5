"""Float32 arithmetic by exact rational numbers: slow, independent of numpy's rounding."""

import math
from fractions import Fraction

import numpy as np


def round32(value: Fraction) -> float:
    """The float32 nearest to `value`, ties to even, as a Python float (infinite beyond the largest)."""
    if value == 0:
        return 0.0
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    quantum = Fraction(2) ** max(exponent - 23, -149)
    rounded = round(value / quantum) * quantum
    if abs(rounded) >= Fraction(2) ** 128:
        return math.copysign(math.inf, value)
    return float(rounded)


def fma32(a: float, b: float, c: float) -> float:
    """a * b + c for finite values, rounded once (the sign of a zero result is lost)."""
    return round32(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))


def multiply32(a: float, b: float) -> float:
    """a * b, rounded once."""
    return fma32(a, b, 0.0)


def add32(a: float, b: float) -> float:
    """a + b, rounded once."""
    return fma32(a, 1.0, b)


def tree32(lanes: list[float]) -> float:
    """The lane tree over 32 values."""
    for step in (16, 8, 4, 2, 1):
        lanes = [add32(lanes[i], lanes[i + step]) for i in range(step)]
    return lanes[0]


def quantise32(x: np.ndarray) -> tuple[list[int], float]:
    """One block of finite activations -> (codes, scale)."""
    d = round32(max(Fraction(abs(float(v))) for v in x) / 127)
    if d == 0:
        return [0] * len(x), 0.0
    return [max(-127, min(127, round(Fraction(round32(Fraction(float(v)) / Fraction(d)))))) for v in x], d
