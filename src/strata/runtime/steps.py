"""Windows through the model: op by op for large steps, as a recorded program for small ones.

A decode step is some hundreds of operations of a few microseconds each; Python between them would cost more than the
small ones do. So the first step of every shape is recorded (kernels/program.py) and later ones run it again. A prompt
chunk is not worth it: its operations are long, and its intermediate results would be kept.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from strata.core.window import Window
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.ops import Ops
from strata.kernels.program import Program
from strata.layers.batch import Batch, Tap
from strata.models.base import Model
from strata.runtime.pack import StepInputs, StepShape, check_tokens
from strata.state.journal import LayerJournal
from strata.state.sequence import SequenceStates

MOST_ROWS = 32
"""Of a step that is recorded: what verify windows and batch slots have."""
MOST_PROGRAMS = 64
"""Kept at once; the one that ran longest ago goes first."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A program with what it reads and what it leaves."""

    program: Program
    inputs: StepInputs
    logits: torch.Tensor
    journal: list[LayerJournal]


class Steps:
    """Runs steps on one model and its states."""

    def __init__(self, model: Model, ops: Ops, states: SequenceStates, tap: Tap | None) -> None:
        self.model = model
        self.ops = ops
        self.states = states
        self.tap = tap
        self.recorded: OrderedDict[StepShape, Recorded] = OrderedDict()

    def logits(self, windows: Sequence[Window]) -> torch.Tensor:
        """Logits [N, vocabulary] of the scored rows; valid until the next step of the same shape.

        RequestError, before anything runs, when a token is outside the vocabulary.
        """
        check_tokens(windows, self.model.shape.vocabulary)
        shape = StepShape.of(windows, self.states.journaling)
        if self.tap is not None or not isinstance(self.ops, CpuOps) or shape.rows > MOST_ROWS:
            inputs = StepInputs(shape, self.states.memory)
            inputs.fill(windows)
            return self.run(inputs, shape)
        known = self.recorded.get(shape)
        if known is None:
            return self.record(windows, shape, Program(self.ops.native))
        self.recorded.move_to_end(shape)
        known.inputs.fill(windows)
        if shape.journaling:
            self.states.journal = known.journal
        known.program.run()
        return known.logits

    def record(self, windows: Sequence[Window], shape: StepShape, program: Program) -> torch.Tensor:
        """Run the step and keep it for the next of this shape."""
        inputs = StepInputs(shape, self.states.memory)
        inputs.fill(windows)
        with program.recording():
            logits = self.run(inputs, shape)
        self.recorded[shape] = Recorded(program, inputs, logits, self.states.journal)
        if len(self.recorded) > MOST_PROGRAMS:
            self.recorded.popitem(last=False)
        return logits

    def run(self, inputs: StepInputs, shape: StepShape) -> torch.Tensor:
        """The step, operation by operation."""
        batch = Batch(inputs.tokens, inputs.rows, self.states, self.ops, self.tap)
        residual = self.model.trunk(batch)
        if not shape.scored:
            return torch.empty(0, self.model.shape.vocabulary, device=self.states.memory.device)
        if shape.scored < shape.rows:
            residual = self.ops.take_rows(residual, inputs.scored)
        return self.model.head(residual, batch)
