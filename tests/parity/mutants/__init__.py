"""Plausible faults, planted in the engine one at a time, and the operation that parity must name."""
