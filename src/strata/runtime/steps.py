"""Windows through the model: op by op for large steps, as a recorded program for small ones.

A decode step is some hundreds of operations of a few microseconds each; Python between them would cost more than the
small ones do. So a step is recorded (kernels/step_program.py) and later ones of its shape run it again: on the CPU the
first of every shape, on a device the second. Shapes are exact: rows added to reach a round number would read experts
of their own, and recording costs no more than a step op by op. A prompt chunk is not worth it: its operations are long.
All steps share one workspace.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from strata.core.window import Window
from strata.kernels.ops import Ops
from strata.kernels.step_program import StepProgram, Timing
from strata.layers.batch import Batch, Mark, Tap
from strata.models.base import Model
from strata.runtime.pack import StepInputs, StepShape, Wish, check_tokens
from strata.runtime.stages import EVERY, EVERY_APART, EVERY_CHUNK, Alike, StageClock, by_stage
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
    """int32 [N] as the wishes have it, -1 without a choice, in the host's memory; None where the host chooses."""
    rows: torch.Tensor
    """[T, ...]: the trunk's residual of all rows."""
    routed: Mapping[int, torch.Tensor]
    """By layer, int32 [T, k]: the experts that the rows chose."""
    host: npt.NDArray[np.float32] | None
    """The logits for the host, where they lie in its memory: made once for all steps of a shape."""


@dataclass(slots=True)
class Recorded:
    """A program with what it reads and what it leaves."""

    program: StepProgram
    inputs: StepInputs
    scored: Scored
    journal: Journal
    alike: Alike
    clocked: "Recorded | None" = None
    """The same with clocks in it, where `program` has none."""
    told: Mapping[str, int] = field(default_factory=lambda: by_stage(()))
    """What the program's clocks said when they were last read."""

    def parts(self) -> dict[str, int]:
        """What they say since."""
        before, self.told = self.told, by_stage(self.program.times())
        return {stage: now - before[stage] for stage, now in self.told.items()}


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
        self.layers = [layer for layer in model.store.banks if layer < len(model.layouts)]
        """Those with experts; a draft head's are not of a step."""
        apart = states.memory.apart
        self.every = EVERY_APART if apart else EVERY
        """See Alike.every, of recorded steps."""
        self.chunks = Alike(EVERY_CHUNK, 2) if apart else Alike(1)
        self.alike = self.chunks
        """Which steps the last one is like."""

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
        if self.alike.parts is not None and self.replayed:
            self.alike.parts = self.waited(self.alike.parts)
        return scored

    def waited(self, parts: Mapping[str, int]) -> dict[str, int]:
        """`parts` of a recorded step that has ended, with the wait for experts told apart from their work."""
        wait = round(1e9 * self.model.experts.waited_s(self.layers))
        return {**parts, "experts": parts["experts"] - wait, "wait": wait}

    def forward(self, windows: Sequence[Window], wishes: Sequence[Wish], shape: StepShape) -> Scored:
        """The step, recorded or not."""
        known = self.recorded.get(shape)
        self.replayed = known is not None
        if known is None:
            return self.first(windows, wishes, shape)
        self.recorded.move_to_end(shape)
        self.alike = known.alike
        if known.alike.due() and not self.timed:
            return self.look_into(known, windows, wishes, shape)
        return self.replay(known, windows, wishes, self.timed)

    def replay(self, known: Recorded, windows: Sequence[Window], wishes: Sequence[Wish], timed: bool) -> Scored:
        """A recorded step."""
        self.fill(known.inputs, windows, wishes)
        if self.states.journaling:
            self.states.journal = known.journal
        if timed:
            known.program.run_timed()
        else:
            known.program.run()
        return known.scored

    def look_into(self, known: Recorded, windows: Sequence[Window], wishes: Sequence[Wish], shape: StepShape) -> Scored:
        """The same, timed from within. A program that was recorded without clocks gets a twin with some first."""
        if not known.program.runs_while_recording and known.clocked is None:
            program, inputs = self.workspace.program(True), StepInputs(shape, self.states.memory)
            assert program is not None, "such a step was recorded before"
            self.fill(inputs, windows, wishes)
            known.clocked = self.record(inputs, shape, program, known.alike)
            known.alike.left, self.replayed = 1, False
            return known.clocked.scored
        clocked = known.clocked or known
        scored = self.replay(clocked, windows, wishes, True)
        known.alike.parts = clocked.parts()
        return scored

    def first(self, windows: Sequence[Window], wishes: Sequence[Wish], shape: StepShape) -> Scored:
        """A step of a shape that is not recorded."""
        inputs = StepInputs(shape, self.states.memory)
        self.fill(inputs, windows, wishes)
        program = self.program_for(shape)
        if program is not None:
            # A device's program has no clocks yet, and gets them when it has run often.
            self.alike = Alike(self.every, 1 if program.runs_while_recording else self.every)
            known = self.record(inputs, shape, program, self.alike)
            self.recorded[shape] = known
            if len(self.recorded) > MOST_PROGRAMS:
                self.recorded.popitem(last=False)
            return known.scored
        # A device's first step of a shape that will be recorded is like no other.
        own = self.states.memory.apart and shape.rows <= MOST_ROWS
        self.alike = Alike(self.every, self.every) if own else self.chunks
        clock = StageClock(self.states.memory.wait) if self.alike.due() else None
        with self.workspace.step():
            scored = self.run(inputs, shape, clock)
        if clock is not None:
            self.alike.parts = clock.parts
        return scored

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

    def record(self, inputs: StepInputs, shape: StepShape, program: StepProgram, alike: Alike) -> Recorded:
        """Run the step, to be run again."""
        with program.recording():
            scored = self.run(inputs, shape, program.mark)
        self.states.journal.lasting = shape.journaling
        if not program.runs_while_recording:
            program.run()
        return Recorded(program, inputs, scored, self.states.journal, alike)

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
