"""A folder of safetensors files with config.json.

A file is a 64-bit little-endian header length, a JSON object (name -> dtype, shape, data_offsets), then the data;
offsets count from the end of the header. Tensors lie one after another and fill the file exactly.
"""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NoReturn

from strata.checkpoint.config import read_config
from strata.checkpoint.files import MappedFiles
from strata.checkpoint.jsonfile import parse_object, read_object
from strata.checkpoint.mapped import MappedFile
from strata.checkpoint.tensor import TensorRef
from strata.checkpoint.text import listed, shown
from strata.core.errors import CheckpointError
from strata.quant.format import QuantFormat
from strata.quant.formats import FORMATS

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
HEADER_BYTES = 100_000_000
"""Longest header, the limit of the format's own library."""
_MOST_DIMS = 8
_DAMAGED = "the file is cut off or damaged: download it again"


def _plain(name: str, number: int, nbytes: int, kind: Literal["float", "data"]) -> QuantFormat:
    return QuantFormat(name, -100 - number, 1, nbytes, 0, kind)


DTYPES: dict[str, QuantFormat] = {
    "F64": FORMATS["F64"],
    "F32": FORMATS["F32"],
    "F16": FORMATS["F16"],
    "BF16": FORMATS["BF16"],
    "F8_E4M3": FORMATS["FP8"],
    "I64": FORMATS["I64"],
    "I32": FORMATS["I32"],
    "I16": FORMATS["I16"],
    "I8": FORMATS["I8"],
    # forms that only this container has: packed codes, scales and masks; loaders combine or refuse them
    "U8": _plain("U8", 0, 1, "data"),
    "BOOL": _plain("BOOL", 1, 1, "data"),
    "U16": _plain("U16", 2, 2, "data"),
    "U32": _plain("U32", 3, 4, "data"),
    "U64": _plain("U64", 4, 8, "data"),
    "F8_E5M2": _plain("F8_E5M2", 5, 1, "float"),
    "F8_E8M0": _plain("F8_E8M0", 6, 1, "float"),
}
"""Formats by the name that safetensors headers give them."""


class SafetensorsCheckpoint(MappedFiles):
    """Headers and mapped bytes of a folder; close it (or use `with`) to give the files back.

    `tensors` has the language model's names: `language_model.` is stripped and `model.visual.*` left out. Each
    TensorRef keeps the name that its file uses.
    """

    kind: Literal["safetensors"] = "safetensors"

    def __init__(self, path: Path, files: list[MappedFile], tensors: dict[str, TensorRef], notes: list[str]) -> None:
        super().__init__(files)
        self.path = path
        self.metadata = read_config(path)
        self.tensors: Mapping[str, TensorRef] = _language_model(tensors)
        self.notes = tuple(notes)
        """What is unusual in the folder, but harmless."""


def open_folder(path: Path) -> SafetensorsCheckpoint:
    """Open a folder with model.safetensors, or with an index and its files, and config.json."""
    files: list[MappedFile] = []
    try:
        notes: list[str] = []
        if (path / SINGLE).is_file():
            files.append(MappedFile(path / SINGLE))
            tensors = read_header(files[0])
            if (path / INDEX).exists():
                notes.append(f"{INDEX} is not used: {SINGLE} holds the whole model")
        else:
            places = _read_index(path)
            files.extend(MappedFile(path / name) for name in sorted(set(places.values())))
            tensors = _merge(path, places, [read_header(file) for file in files])
        used = {file.path.name for file in files}
        stray = sorted(p.name for p in path.glob("*.safetensors") if p.name not in used)
        notes.extend(f"{name} is not used: the model does not name it" for name in stray)
        return SafetensorsCheckpoint(path, files, tensors, notes)
    except BaseException:
        # also for an interrupt: nobody else knows these files yet
        for file in files:
            file.close()
        raise


def _read_index(folder: Path) -> dict[str, str]:
    """Tensor name -> file name, all of them files of `folder`."""
    path = folder / INDEX
    weight_map = read_object(path, HEADER_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{path}: key weight_map: expected an object of tensor names, found {weight_map!r:.80}")
    for name, file in weight_map.items():
        # a bare name: an index must not lead out of its folder
        plain = isinstance(file, str) and file.isprintable() and not set(file) & set("/\\:") and file[:1] != "."
        if not plain or not file.endswith(".safetensors"):
            raise CheckpointError(
                f"{path}: tensor {shown(name)}: expected the name of a .safetensors file in this folder, "
                f"found {file!r:.80}"
            )
    names = sorted(set(weight_map.values()))
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{path}: expected {len(names)} files, found {len(names) - len(missing)}; missing: {listed(missing)}",
            hint="download the missing files into the same folder",
        )
    return weight_map


def _merge(folder: Path, places: Mapping[str, str], headers: list[dict[str, TensorRef]]) -> dict[str, TensorRef]:
    """All tensors, each in the file that the index names and in no other."""
    merged: dict[str, TensorRef] = {}
    for header in headers:
        for name, ref in header.items():
            if places.get(name) != ref.file.name:
                place = places.get(name, "no file")
                raise CheckpointError(f"{ref.file}: tensor {shown(name)}: expected in {place} by {INDEX}, found here")
            merged[name] = ref
    for name, file in places.items():
        if name not in merged:
            raise CheckpointError(f"{folder / file}: tensor {shown(name)}: expected by {INDEX}, found nothing")
    return merged


def _language_model(tensors: Mapping[str, TensorRef]) -> dict[str, TensorRef]:
    """Names without the wrapper that vision-language checkpoints put around the language model."""
    renamed: dict[str, TensorRef] = {}
    for original, ref in tensors.items():
        if original.startswith(("model.visual.", "visual.")):
            continue
        name = original
        if name.startswith("language_model."):
            name = name.removeprefix("language_model.")
        elif name.startswith("model.language_model."):
            name = "model." + name.removeprefix("model.language_model.")
        if name in renamed:
            raise CheckpointError(
                f"{ref.file}: tensor {shown(original)}: expected a name of its own, but {shown(renamed[name].name)} "
                f"is also {shown(name)}"
            )
        renamed[name] = ref
    return renamed


def read_header(file: MappedFile) -> dict[str, TensorRef]:
    """Every tensor of one file, checked: sizes match shapes, and together they fill the file without overlap."""
    if file.size < 8:
        raise CheckpointError(f"{file.path}: expected a safetensors file, found {file.size} bytes", hint=_DAMAGED)
    (length,) = struct.unpack("<Q", bytes(file.view(0, 8, "the header's length")))
    if not 2 <= length <= min(HEADER_BYTES, file.size - 8):
        first = bytes(file.view(0, min(16, file.size), "the first bytes"))
        raise CheckpointError(
            f"{file.path}: expected a header within the file's {file.size} bytes, found a length of {length} "
            f"(the file begins with {first!r})",
            hint=_DAMAGED,
        )
    entries = parse_object(bytes(file.view(8, length, "the header")), f"{file.path}: the header")
    entries.pop("__metadata__", None)
    tensors = {name: _entry(file, name, entry, 8 + length) for name, entry in entries.items()}
    end, before = 8 + length, "the header"
    for ref in sorted(tensors.values(), key=lambda r: r.offset):
        if ref.offset != end:
            raise CheckpointError(
                f"{file.path}: tensor {shown(ref.name)}: expected to begin at byte {end} (after {before}), "
                f"found {ref.offset}"
            )
        end, before = ref.offset + ref.nbytes, f"tensor {shown(ref.name)}"
    if end != file.size:
        raise CheckpointError(f"{file.path}: expected {end} bytes, found {file.size}", hint=_DAMAGED)
    return tensors


def _entry(file: MappedFile, name: str, entry: object, data_start: int) -> TensorRef:
    what = f"{file.path}: tensor {shown(name)}"

    def fail(expected: str, found: object) -> NoReturn:
        raise CheckpointError(f"{what}: expected {expected}, found {found!r:.80}")

    if not name or not name.isprintable():
        fail("a printable name", name)
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        fail("dtype, shape and data_offsets", sorted(entry) if isinstance(entry, dict) else entry)
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        fail(f"a dtype of {', '.join(DTYPES)}", dtype)
    if not _integers(shape, 1) or len(shape) > _MOST_DIMS:
        fail(f"a shape of at most {_MOST_DIMS} dimensions of at least 1", shape)
    if not _integers(offsets, 0) or len(offsets) != 2:
        fail("two data_offsets", offsets)
    nbytes = DTYPES[dtype].block_bytes
    for dim in shape:
        nbytes *= dim
    begin, end = offsets
    if end - begin != nbytes:
        fail(f"{nbytes} bytes for {dtype} {shape}", f"{end - begin} ({begin} to {end})")
    if data_start + end > file.size:
        raise CheckpointError(
            f"{what}: expected {nbytes} bytes at byte {data_start + begin}, but the file ends at byte {file.size}",
            hint=_DAMAGED,
        )
    return TensorRef(name, tuple(shape), DTYPES[dtype], file.path, data_start + begin, nbytes)


def _integers(value: object, least: int) -> bool:
    return isinstance(value, list) and all(type(v) is int and v >= least for v in value)
