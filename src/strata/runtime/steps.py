"""Windows through the model: op by op for large steps, as a recorded program for small ones.

A decode step is some hundreds of operations of a few microseconds each; Python between them would cost more than the
small ones do. So a step is recorded (kernels/step_program.py) and later ones of its shape run it again: on the CPU the
first of every shape, on a device the second. Shapes are exact: rows added to reach a round number would read experts
of their own, and recording costs no more than a step op by op. A prompt chunk is not worth it: its operations are long.
All steps share one workspace.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from strata.core.window import Window
from strata.kernels.ops import Ops
from strata.kernels.step_program import StepProgram, Timing
from strata.layers.batch import Batch, Mark, Tap
from strata.models.base import Model
from strata.runtime.pack import StepInputs, StepShape, Wish, check_tokens
from strata.state.journal import Journal
from strata.state.sequence import SequenceStates

MOST_ROWS = 32
"""Of a step that is recorded: what verify windows and batch slots have."""
MOST_PROGRAMS = 64
"""Kept at once; the one that ran longest ago goes first."""


@dataclass(frozen=True, slots=True)
class Scored:
    """What a step leaves of its scored rows, where it ran; valid until the next step."""

    logits: torch.Tensor
    """[N, vocabulary]"""
    tokens: torch.Tensor | None
    """int32 [N] as the wishes have it, -1 without a choice; None where tokens are chosen on the host."""
    rows: torch.Tensor
    """[T, ...]: the trunk's residual of all rows."""
    routed: Mapping[int, torch.Tensor]
    """By layer, int32 [T, k]: the experts that the rows chose."""
    host: npt.NDArray[np.float32] | None
    """The logits for the host, where they lie in its memory: made once for all steps of a shape."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A program with what it reads and what it leaves."""

    program: StepProgram
    inputs: StepInputs
    scored: Scored
    journal: Journal


class Steps:
    """Runs steps on one model and its states."""

    def __init__(self, model: Model, ops: Ops, states: SequenceStates, tap: Tap | None) -> None:
        self.model = model
        self.ops = ops
        self.states = states
        self.tap = tap
        self.workspace = ops.workspace()
        self.recorded: OrderedDict[StepShape, Recorded] = OrderedDict()
        self.seen: set[StepShape] = set()
        """Shapes that ran op by op, where recording needs that."""
        self.timed = False
        """Whether programs add up their time."""
        self.replayed = False
        """Whether the last step was a recorded one: only then its time says what the next will take."""

    def time(self) -> None:
        """From now on recorded steps add up their time; what was recorded before goes."""
        self.recorded.clear()
        self.timed = True

    def times(self) -> list[Timing]:
        """What the programs took since `time`, all shapes together."""
        return [timing for known in self.recorded.values() for timing in known.program.times()]

    def scored(self, windows: Sequence[Window], wishes: Sequence[Wish] = ()) -> Scored:
        """Run the windows; without `wishes` the tokens mean nothing.

        RequestError, before anything runs, when a token is outside the vocabulary.
        """
        check_tokens(windows, self.model.shape.vocabulary)
        shape = StepShape.of(windows, self.states.journaling)
        self.model.experts.begin_step(shape.rows)
        scored = self.forward(windows, wishes, shape)
        self.model.experts.end_step()
        return scored

    def forward(self, windows: Sequence[Window], wishes: Sequence[Wish], shape: StepShape) -> Scored:
        """The step, recorded or not."""
        known = self.recorded.get(shape)
        self.replayed = known is not None
        if known is None:
            return self.first(windows, wishes, shape)
        self.recorded.move_to_end(shape)
        self.fill(known.inputs, windows, wishes)
        if shape.journaling:
            self.states.journal = known.journal
        if self.timed:
            known.program.run_timed()
        else:
            known.program.run()
        return known.scored

    def first(self, windows: Sequence[Window], wishes: Sequence[Wish], shape: StepShape) -> Scored:
        """A step of a shape that is not recorded."""
        inputs = StepInputs(shape, self.states.memory)
        self.fill(inputs, windows, wishes)
        program = self.program_for(shape)
        if program is not None:
            return self.record(inputs, shape, program)
        with self.workspace.step():
            return self.run(inputs, shape)

    def fill(self, inputs: StepInputs, windows: Sequence[Window], wishes: Sequence[Wish]) -> None:
        """Everything the step reads."""
        opened = self.states.open
        inputs.fill(windows, wishes, [opened[w.slot].held for w in windows] if self.states.journaling else ())

    def program_for(self, shape: StepShape) -> StepProgram | None:
        """What to record the step with; None when it runs op by op."""
        if self.tap is not None or shape.rows > MOST_ROWS:
            return None
        program = self.workspace.program(self.timed)
        if program is None or program.runs_while_recording or shape in self.seen:
            return program
        self.seen.add(shape)
        return None

    def record(self, inputs: StepInputs, shape: StepShape, program: StepProgram) -> Scored:
        """Run the step and keep it for the next of this shape."""
        with program.recording():
            scored = self.run(inputs, shape, program.mark if self.timed else None)
        self.states.journal.lasting = shape.journaling
        self.recorded[shape] = Recorded(program, inputs, scored, self.states.journal)
        if len(self.recorded) > MOST_PROGRAMS:
            self.recorded.popitem(last=False)
        if not program.runs_while_recording:
            program.run()
        return scored

    def run(self, inputs: StepInputs, shape: StepShape, mark: Mark | None = None) -> Scored:
        """The step, operation by operation."""
        routed: dict[int, torch.Tensor] = {}
        batch = Batch(inputs.tokens, inputs.rows, self.states, self.ops, self.tap, mark, routed)
        residual = rows = self.model.trunk(batch)
        if not shape.scored:
            empty = torch.empty(0, self.model.shape.vocabulary, device=self.states.memory.device)
            return Scored(empty, None, rows, routed, in_host_memory(empty))
        if shape.scored < shape.rows:
            residual = self.ops.take_rows(residual, inputs.scored)
        logits = self.model.head(residual, batch)
        tokens = self.ops.draw(logits, inputs.draws)
        batch.close("draw")
        return Scored(logits, tokens, rows, routed, in_host_memory(logits))


def in_host_memory(logits: torch.Tensor) -> npt.NDArray[np.float32] | None:
    """The same memory, if the host can read it."""
    return logits.numpy() if logits.device.type == "cpu" else None
