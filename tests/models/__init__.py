"""Models built from tiny oracles in every container, and in variants that published files come in."""
