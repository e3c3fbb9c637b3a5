"""Running a model over a text to find out which columns of its matrices matter."""

from collections.abc import Callable, Sequence

from strata.checkpoint.checkpoint import Checkpoint
from strata.convert.importance import Columns, NamedSource, Recorder, by_item
from strata.convert.recording_ops import RecordingOps
from strata.convert.tensors import Item
from strata.core.limits import Limits
from strata.core.window import Window
from strata.kernels.ops import Ops
from strata.models.registry import ARCHITECTURES, architecture_of, open_source, vocabulary_size
from strata.runtime.runner import DeviceRunner

WINDOW = 512
"""Tokens read in one go, each run from an empty state (as llama.cpp's tool does)."""
SCORED = 64
"""Rows of each run whose logits are asked for, so that the vocabulary projection is fed too."""

Said = Callable[[int, int], None]
"""(tokens read, tokens in all)"""


def measure(checkpoint: Checkpoint, ops: Ops, tokens: Sequence[int], items: Sequence[Item], said: Said) -> Columns:
    """Feed `tokens` through the model; what each of `items` reads is added up."""
    name = architecture_of(checkpoint)
    source = NamedSource(open_source(checkpoint, name))
    recorder = Recorder(source)
    recording = RecordingOps(ops, recorder)
    model = ARCHITECTURES[name].build(source, checkpoint.metadata, vocabulary_size(checkpoint), recording)
    source.check_all_used()
    length = min(WINDOW, model.shape.context)
    runner = DeviceRunner(model, recording, Limits(1, length, length))
    for start in range(0, len(tokens), length):
        part = tuple(tokens[start : start + length])
        runner.states.clear(0)
        runner.forward([Window(0, 0, part, min(SCORED, len(part)))])
        said(start + len(part), len(tokens))
    return by_item(recorder.columns, items)
