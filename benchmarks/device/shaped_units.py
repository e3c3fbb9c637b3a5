"""Units whose shape is compiled in, named as a GPU is asked for them by models of the published shapes."""

from collections.abc import Iterator

from strata.convert.shapes import REAL, Shape
from strata.kernels.attention.gpu import FEW_THREADS, TYPES, shape_defines
from strata.kernels.attention.gpu_plan import TILE_FLOATS, cut_many, units_of
from strata.kernels.compiling import FOR_THE_HOST
from strata.kernels.device import GROUP
from strata.kernels.device_source import units
from strata.state.pages import PAGE

WINDOW, PROMPT = 4, 512
"""Rows of one slot: a token with three drafts, and a chunk of a prompt."""


def launched() -> tuple[str, ...]:
    """Every unit that a GPU is asked for: the listed ones but for the host's, and those of published shapes."""
    listed = [unit for unit in units() if unit not in FOR_THE_HOST]
    shaped = [unit for shape in REAL.values() for unit in shaped_units(shape)]
    return tuple(dict.fromkeys([*listed, *shaped]))


def shaped_units(shape: Shape) -> Iterator[str]:
    """Of one model: attention for every type of cache, delta nets, long norms, and what chooses and reads blocks."""
    heads = shape.heads, shape.kv_heads, shape.head_dim, False
    few = {units_of(rows, 1, *heads) for rows in (1, WINDOW)}
    many = cut_many(units_of(PROMPT, 1, *heads), TILE_FLOATS)
    for code in TYPES.values():
        plane = {"KEYS_PAGE": PAGE, "KEYS_TYPE": code, "VALUES_PAGE": PAGE, "VALUES_TYPE": code}
        for each in sorted(few, key=lambda each: each.rows):
            yield named("attention_few", "ATTENTION", shape_defines(each, FEW_THREADS) | plane)
        sizes = shape_defines(many.units, many.threads) | plane | {"QUERIES": many.each, "TILE": many.tile}
        yield named("attention_whole", "ATTENTION", sizes)
        if shape.index_budget:
            of = {"DIM": shape.head_dim, "QUERIES": shape.heads // shape.kv_heads, "TYPE": code}
            yield named("attention_list", "LIST", of)
    if shape.key_dim:
        for header in ("delta", "delta_step", "delta_prompt"):
            yield named(header, "DELTA", {"KEY_DIM": shape.key_dim, "VALUE_DIM": shape.key_dim})
    if shape.index_budget:
        yield named("select_prompt", "SELECT", {"HEADS": shape.index_heads, "DIM": shape.index_dim})
    for header in ("norm_many", *(["streams_many"] if shape.streams else [])):
        yield named(header, "NORM", {"VALUES": shape.hidden // GROUP})


def named(header: str, prefix: str, defines: dict[str, int]) -> str:
    """A unit's name."""
    return " ".join([header, *(f"{prefix}_{name}={value}" for name, value in defines.items())])
