"""The matrices that a model is made of."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from strata.kernels.views import Weight
from strata.models.base import Model
from strata.models.drafting import DraftHead
from strata.store.rows import RowTable


def dense_weights(model: Model, head: DraftHead | None = None) -> list[Weight]:
    """Every matrix but those of routed experts, each once, in the order in which a step reads them; then a drafting
    head's own."""
    return list({id(weight): weight for part in (model, head) for weight in found(part)}.values())


def row_tables(model: Model) -> list[Weight]:
    """Those of them of which a step reads a few rows: embeddings, unless they are the output's matrix too."""
    tables = {id(shard): shard for shard in shards(model)}
    embedding, output = getattr(model, "embedding", None), getattr(model, "output", None)
    if isinstance(embedding, Weight) and embedding is not output:
        tables[id(embedding)] = embedding
    return list(tables.values())


def shards(part: object) -> Iterator[Weight]:
    """Weights of the row tables among the fields of `part`."""
    if isinstance(part, RowTable):
        yield from part.shards
    elif isinstance(part, tuple):
        for item in part:
            yield from shards(item)
    elif is_dataclass(part):
        for field in fields(part):
            yield from shards(getattr(part, field.name))


def found(part: object) -> Iterator[Weight]:
    """Weights among the fields of `part`; experts are no part of the dataclasses that layers are."""
    if isinstance(part, Weight):
        yield part
    elif isinstance(part, RowTable):
        yield from part.shards
    elif isinstance(part, tuple):
        for item in part:
            yield from found(item)
    elif is_dataclass(part):
        for field in fields(part):
            yield from found(getattr(part, field.name))


def weight_bytes(weight: Weight) -> int:
    """Of all planes."""
    return sum(plane.nbytes for plane in weight.planes)


def row_bytes(model: Model) -> int:
    """What a row of a step works in on a device, about: results of its experts, and some vectors of the residual."""
    shape, streams = model.shape, int(getattr(model, "streams", 1))
    width = next(iter(model.store.banks.values())).gate[0].rows if model.store.banks else 0
    return 4 * (shape.top_k * (shape.hidden + 3 * width) + 8 * (streams + 1) * shape.hidden)


def dense_bytes(model: Model, head: DraftHead | None = None) -> int:
    """Of all matrices that a step, and a drafting head, reads whole: neither experts nor tables of rows."""
    tables = {id(table) for table in row_tables(model)}
    return sum(weight_bytes(weight) for weight in dense_weights(model, head) if id(weight) not in tables)
