"""Passes of a drafting head over pairs of several slots: op by op for many rows, as a recorded program for few.

As runtime/steps.py does for the trunk; the windows' tokens are the pairs' second tokens, and they start at the
positions of their first.
"""

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from strata.core.window import Window
from strata.experts.protocol import Experts
from strata.kernels.ops import Ops
from strata.kernels.step_program import StepProgram
from strata.layers.batch import Batch
from strata.models.drafting import DraftHead
from strata.runtime.pack import StepInputs, StepShape
from strata.runtime.steps import MOST_PROGRAMS, MOST_ROWS
from strata.state.sequence import SequenceStates


class HeadShape(NamedTuple):
    """What decides which operations a pass is made of."""

    step: StepShape
    chained: bool
    """Whether it goes on from the head's own rows instead of the trunk's."""


@dataclass(frozen=True, slots=True)
class Passed:
    """What a pass leaves of its scored rows (the last one of each window that has a score), until the next pass."""

    hidden: torch.Tensor
    """[N, width]"""
    logits: torch.Tensor
    """[N, vocabulary]"""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A program with what it reads and what it leaves."""

    program: StepProgram
    inputs: StepInputs
    hidden: torch.Tensor
    passed: Passed


class HeadSteps:
    """Runs passes of one head on the states of all slots."""

    def __init__(self, head: DraftHead, experts: Experts, ops: Ops, states: SequenceStates) -> None:
        self.head = head
        self.experts = experts
        self.ops = ops
        self.states = states
        self.workspace = ops.workspace()
        """Not the trunk's, whose results are needed until the head has caught up with them."""
        self.recorded: OrderedDict[HeadShape, Recorded] = OrderedDict()
        self.seen: set[HeadShape] = set()
        """Shapes that ran op by op, where recording needs that."""
        self.replayed = False
        """Whether the last pass was a recorded one: only then its time says what the next will take."""
        self._took_s = 0.0

    def run(self, windows: Sequence[Window], hidden: torch.Tensor, chained: bool) -> Passed:
        """One pass; `hidden` [T, width] are the windows' rows in order, of the trunk or (`chained`) of the head."""
        began, shape = time.perf_counter(), HeadShape(StepShape.of(windows, False), chained)
        self.experts.begin_step(shape.step.rows)
        passed = self._run(windows, hidden, shape)
        self.experts.end_step()
        if self.replayed or shape.step.rows > MOST_ROWS:  # the first pass of a shape takes longer than all others
            self._took_s += time.perf_counter() - began
        return passed

    def took(self) -> float:
        """Seconds of all passes since this was asked last, but for those that were recorded."""
        took, self._took_s = self._took_s, 0.0
        return took

    def _run(self, windows: Sequence[Window], hidden: torch.Tensor, shape: HeadShape) -> Passed:
        known = self.recorded.get(shape)
        self.replayed = known is not None
        if known is not None:
            self.recorded.move_to_end(shape)
            known.inputs.fill(windows)
            known.hidden.copy_(hidden)
            known.program.run()
            return known.passed
        inputs = StepInputs(shape.step, self.states.memory)
        inputs.fill(windows)
        kept = hidden.clone()
        program = self._program_for(shape)
        if program is None:
            with self.workspace.step():
                return self._pass(inputs, kept, shape)
        with program.recording():
            passed = self._pass(inputs, kept, shape)
        self.recorded[shape] = Recorded(program, inputs, kept, passed)
        if len(self.recorded) > MOST_PROGRAMS:
            self.recorded.popitem(last=False)
        if not program.runs_while_recording:
            program.run()
        return passed

    def _program_for(self, shape: HeadShape) -> StepProgram | None:
        """What to record the pass with; None when it runs op by op."""
        if shape.step.rows > MOST_ROWS:
            return None
        program = self.workspace.program()
        if program is None or program.runs_while_recording or shape in self.seen:
            return program
        self.seen.add(shape)
        return None

    def _pass(self, inputs: StepInputs, hidden: torch.Tensor, shape: HeadShape) -> Passed:
        batch = Batch(inputs.tokens, inputs.rows, self.states, self.ops)
        rows = self.head.run(hidden if shape.chained else self.head.start(hidden, batch), batch)
        if not shape.step.scored:
            return Passed(rows[:0], rows[:0])
        if shape.step.scored < shape.step.rows:
            rows = self.ops.take_rows(rows, inputs.scored)
        return Passed(rows, self.head.logits(rows, batch))
