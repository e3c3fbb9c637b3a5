"""`strata quantize`: a model with its matrices in other formats."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from strata.chat.tokenizer import load_tokenizer
from strata.checkpoint.checkpoint import Checkpoint
from strata.checkpoint.locate import open_checkpoint
from strata.checkpoint.typed import Typed, ValueType, string, u32
from strata.cli.conversion import check_room, check_target, show
from strata.cli.progress import progress
from strata.convert import hessian, imatrix
from strata.convert.calibrate import WINDOW, measure
from strata.convert.feedback import Feedback
from strata.convert.hessian import Moments, columns_of, documents
from strata.convert.importance import Columns, importance_of, unvisited
from strata.convert.names import format_named, optional_format, pattern_named
from strata.convert.tensors import Item
from strata.convert.types import Types, choose_all
from strata.convert.write import read_items, weighed, write_model
from strata.core.errors import UsageError
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.native import Native
from strata.speculate.vocabulary import BUILT_IN, listed


def quantize(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A .gguf file or a safetensors folder.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The .gguf file to write.")],
    type_: Annotated[str, typer.Option("--type", metavar="T", help="Format of the matrices, e.g. Q4_K or iq3_s.")],
    expert_type: Annotated[str, typer.Option(metavar="T", help="Format of the experts.")] = "",
    down_type: Annotated[str, typer.Option(metavar="T", help="Format of the experts' down projections.")] = "",
    embedding_type: Annotated[str, typer.Option(metavar="T", help="Format of embeddings and vocabulary head.")] = "",
    mtp_type: Annotated[str, typer.Option(metavar="T", help="Format of the drafting layer.")] = "",
    tensor_type: Annotated[
        list[str] | None, typer.Option(metavar="REGEX=T", help="Format of tensors by name; the last match wins.")
    ] = None,
    calibrate: Annotated[
        Path | None, typer.Option(metavar="TEXT", help="Read this text with the model to find the columns that matter.")
    ] = None,
    feedback: Annotated[
        bool, typer.Option("--feedback", help="With --calibrate: round so that errors cancel over the text (GPTQ).")
    ] = False,
    imatrix_: Annotated[
        Path | None, typer.Option("--imatrix", metavar="FILE", help="Such figures from a file (llama.cpp's GGUF form).")
    ] = None,
    save_imatrix: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep what --calibrate found.")] = None,
    draft_vocab: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Ids that the drafting layer proposes (from strata vocab).")
    ] = None,
    mtp: Annotated[bool, typer.Option(help="Keep the drafting layer, where the model has one.")] = True,
    threads: Annotated[int, typer.Option("--threads", min=0, help="Threads that work; 0: all.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT when it exists.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be written.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="The result as one JSON object.")] = False,
) -> None:
    """Write a model with its matrices in other formats; what already has the asked format is copied bit for bit."""
    types = Types(
        format_named("--type", type_),
        optional_format("--expert-type", expert_type),
        optional_format("--down-type", down_type),
        optional_format("--embedding-type", embedding_type),
        optional_format("--mtp-type", mtp_type),
        [pattern_named(text) for text in tensor_type or ()],
    )
    calibration = Calibration(calibrate, imatrix_, save_imatrix, threads, feedback)
    calibration.check()
    with open_checkpoint(source) as checkpoint:
        if not dry_run:
            check_target(target, force, checkpoint.files, source if source.is_dir() else None)
        items, keys = read_items(checkpoint, mtp)
        keys |= built_in(draft_vocab, keys)
        choices = choose_all(items, types)
        if dry_run:
            shown = choices if calibration.given else weighed(choices, None)
            show(shown, str(source), target, False, json_)
            return
        check_room(target, choices)
        hessians = calibration.hessians(checkpoint, items)
        columns = columns_of(hessians) if hessians is not None else calibration.columns(checkpoint, items)
        importance = importance_of(columns, items) if columns is not None else None
        choices = weighed(choices, importance)
        with progress("quantize") as said:
            rounder = Feedback(hessians) if hessians is not None else None
            write_model(target, choices, keys | calibration.keys(columns), said, importance, threads or None, rounder)
    show(choices, str(source), target, True, json_)


def built_in(file: Path | None, keys: Mapping[str, Typed]) -> dict[str, Typed]:
    """The key that has the ids of `file`; UsageError when they are none of the tokenizer's."""
    if file is None:
        return {}
    tokens = keys.get("tokenizer.ggml.tokens")
    if tokens is None or not isinstance(tokens.value, tuple):
        raise UsageError(f"--draft-vocab {file}: the model has no tokenizer that its ids could be of", "leave it out")
    return {BUILT_IN: Typed(ValueType.UINT32, tuple(listed(file, len(tokens.value))))}


@dataclass(frozen=True, slots=True)
class Calibration:
    """Where importance data comes from, and where it goes."""

    text: Path | None
    file: Path | None
    save: Path | None
    threads: int
    feedback: bool = False

    @property
    def given(self) -> bool:
        """Whether there is any."""
        return self.text is not None or self.file is not None

    def check(self) -> None:
        """UsageError for wishes that contradict each other."""
        if self.text is not None and self.file is not None:
            raise UsageError("--calibrate and --imatrix: expected one of them, found both")
        if self.save is not None and self.text is None:
            raise UsageError("--save-imatrix: nothing is measured without --calibrate")
        if self.feedback and self.text is None:
            raise UsageError("--feedback: needs what the model reads", "give --calibrate TEXT_FILE")
        if self.feedback and self.save is not None:
            raise UsageError("--save-imatrix: --feedback measures something else", "run --calibrate without --feedback")
        if self.save is not None:
            check_target(self.save, force=False)

    def hessians(self, checkpoint: Checkpoint, items: Sequence[Item]) -> dict[str, Moments] | None:
        """For --feedback: measured on the documents of the text."""
        if not self.feedback:
            return None
        texts = documents(self.read(), load_tokenizer(checkpoint).encode)
        if not any(len(text) > 1 for text in texts):
            raise UsageError(f"--calibrate {self.text}: expected a text, found {sum(map(len, texts))} tokens")
        ops = CpuOps(Native(self.threads or None))
        with progress("calibrate") as said:
            return hessian.measure(checkpoint, ops, texts, items, lambda done, total: said("", done, total))

    def columns(self, checkpoint: Checkpoint, items: Sequence[Item]) -> Columns | None:
        """Measured, or read from a file; None when nothing was given."""
        if self.file is not None:
            return imatrix.load(self.file)
        if self.text is None:
            return None
        tokens = self.tokens(checkpoint)
        ops = CpuOps(Native(self.threads or None))
        with progress("calibrate") as said:
            columns = measure(checkpoint, ops, tokens, items, lambda done, total: said("", done, total))
        if self.save is not None:
            imatrix.save(self.save, columns, [self.text.name], len(tokens), WINDOW)
        missed = unvisited(columns)
        if missed:
            sys.stderr.write(f"calibrate: no token went to {missed} experts; they are weighed as the others are\n")
        return columns

    def tokens(self, checkpoint: Checkpoint) -> list[int]:
        """The text's tokens."""
        tokens = load_tokenizer(checkpoint).encode(self.read())
        if len(tokens) < 2:
            raise UsageError(f"--calibrate {self.text}: expected a text, found {len(tokens)} tokens")
        return tokens

    def read(self) -> str:
        """The text."""
        assert self.text is not None
        try:
            return self.text.read_text("utf-8")
        except (OSError, ValueError) as error:
            raise UsageError(f"--calibrate {self.text}: cannot be read as text: {error}") from error

    def keys(self, columns: Columns | None) -> dict[str, Typed]:
        """llama.cpp's keys that say how a file was weighed."""
        origin = self.text or self.file
        if columns is None or origin is None:
            return {}
        name = "dataset" if self.text is not None else "file"
        return {
            f"quantize.imatrix.{name}": string(origin.name),
            "quantize.imatrix.entries_count": u32(len(columns)),
        }
