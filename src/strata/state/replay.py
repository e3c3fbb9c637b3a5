"""Runs the rows of held windows that came to count into the recurrent states: op by op, or as a recorded program."""

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple, TypeVar

import torch

from strata.core.errors import EngineError
from strata.kernels.ops import Ops
from strata.kernels.step_program import StepProgram, Workspace
from strata.kernels.views import Rows
from strata.state.journal import Journal, Replay
from strata.state.layout import DeltaLayout
from strata.state.memory import Memory, Mirror

T = TypeVar("T")

Run = tuple[int, int, int]
"""(slot, first row of the step, number of rows)"""
FIRST_ROW = itemgetter(1)


class Delta(NamedTuple):
    """The delta net of one layer."""

    layer: int
    conv: torch.Tensor
    state: torch.Tensor
    layout: DeltaLayout


class Ngram(NamedTuple):
    """The n-gram embedding of one layer."""

    layer: int
    history: torch.Tensor


class Recurrences:
    """All recurrent states of the slots."""

    def __init__(self, deltas: Sequence[Delta], ngrams: Sequence[Ngram], memory: Memory) -> None:
        self.deltas = tuple(deltas)
        self.ngrams = tuple(ngrams)
        self.memory = memory
        self.workspace: Workspace | None = None
        """Not that of the step, whose results are still to be read."""
        self.under_way: StepProgram | None = None
        """A recorded replay that may not be done: it runs beside whatever the host has to do between two steps."""

    def __del__(self) -> None:
        """Nothing that it works on may go before it is done."""
        self.finish()

    def finish(self) -> None:
        """Before anybody reads or writes the states, or what the step left: until they have gone on."""
        if self.under_way is not None:
            program, self.under_way = self.under_way, None
            program.finish()

    @property
    def host_bytes(self) -> int:
        """Bytes of the host's memory that replays work in."""
        return 0 if self.workspace is None else self.workspace.nbytes

    def advance(self, journal: Journal, runs: Sequence[Run], ops: Ops) -> None:
        """Let the states go on over these rows of the step, until `finish`.

        EngineError when a layer kept no journal of it.
        """
        self.finish()
        if not runs or not (self.deltas or self.ngrams):
            return
        count = len(runs)
        known = journal.replays.get(count)
        segments = self.memory.mirror(count, 3, dtype=torch.int32) if known is None else known.segments
        listed = segments.host.numpy() if known is None else known.listed
        for i, run in enumerate(sorted(runs, key=FIRST_ROW)):
            listed[i, 0], listed[i, 1], listed[i, 2] = run  # a list of tuples takes numpy 50 us between two steps
        segments.publish()
        if known is not None:
            self.under_way = known.program
            known.program.run_apart()
            return
        self.workspace = self.workspace or ops.workspace()
        program = self._program_for(journal, count, self.workspace)
        if program is None:
            with self.workspace.step():
                self._run(journal, segments, ops)
            return
        with program.recording():
            self._run(journal, segments, ops)
        journal.replays[count] = Replay(program, segments, listed)
        if not program.runs_while_recording:
            program.run()

    def _program_for(self, journal: Journal, count: int, workspace: Workspace) -> StepProgram | None:
        """What to record with; None when it runs op by op."""
        program = workspace.program() if journal.lasting else None
        if program is None or program.runs_while_recording or count in journal.ran:
            return program
        journal.ran.add(count)
        return None

    def _run(self, journal: Journal, segments: Mirror, ops: Ops) -> None:
        """Operations that do not depend on each other, and whose results nobody reads."""
        nowhere = torch.empty(0, dtype=torch.int32, device=self.memory.device)
        rows = Rows(nowhere, nowhere, segments.device)
        apart = []  # as long as all of them live none is written where another is
        for layer, history in self.ngrams:
            ops.carry_rows(written(journal.layers[layer].ngram, layer), history, rows)
        for layer, conv, state, layout in self.deltas:
            of = journal.layers[layer]
            ops.carry_rows(written(of.conv, layer), conv, rows)
            qkv, beta, decay = written(of.rule, layer)
            apart.append(ops.delta_rule(qkv, beta, decay, state, rows, layout.key_heads, layout.pairing, layout.eps))


def written(journal: T | None, layer: int) -> T:
    """What a layer wrote down in the step; EngineError when it did not."""
    if journal is None:
        raise EngineError(f"layer {layer} kept no journal of the step, its state cannot go on")
    return journal
