"""Strata: runs Mixture-of-Experts language models larger than the GPU."""

__version__ = "0.1.0"
