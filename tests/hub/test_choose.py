"""Names, and which files they mean."""

from pathlib import Path

import pytest

from strata.core.errors import UsageError
from strata.hub.choose import RemoteFile, choose_files, says
from strata.hub.name import HubName, expect_name, hub_name


def files(*paths: str) -> list[RemoteFile]:
    return [RemoteFile(path, 1000 + place) for place, path in enumerate(paths)]


SEVERAL = files(
    "README.md",
    "Big-Q4_K_M.gguf",
    "Big-Q4_K_S.gguf",
    "Big-Q8_0.gguf",
    "UD/Big-UD-IQ3_XXS-00001-of-00002.gguf",
    "UD/Big-UD-IQ3_XXS-00002-of-00002.gguf",
    "mmproj-F16.gguf",
    "mtp-Big-Q8_0.gguf",
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("org/name", HubName("org/name")),
        ("org/na.me-2:Q4_K_M", HubName("org/na.me-2", "Q4_K_M")),
        ("name", None),
        ("a/b/c", None),
        ("folder/model.gguf", None),
        ("./model", None),
        ("/abs/model", None),
    ],
)
def test_names(text: str, name: HubName | None) -> None:
    assert hub_name(text) == name


def test_what_is_there_is_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert hub_name("org/name") is None
    with pytest.raises(UsageError, match="found a file or folder of that name"):
        expect_name("org/name")
    with pytest.raises(UsageError, match="found 'nothing'"):
        expect_name("nothing")


@pytest.mark.parametrize(
    ("quant", "opened"),
    [
        ("Q4_K_M", "Big-Q4_K_M.gguf"),
        ("q8_0", "Big-Q8_0.gguf"),
        ("IQ3_XXS", "UD/Big-UD-IQ3_XXS-00001-of-00002.gguf"),
        ("", "Big-Q4_K_M.gguf"),
    ],
)
def test_gguf_by_its_quantisation(quant: str, opened: str) -> None:
    chosen = choose_files(HubName("o/n", quant), SEVERAL)
    assert chosen.opened == opened
    assert len(chosen.files) == (2 if "of" in opened else 1)


def test_a_word_is_not_a_part_of_one() -> None:
    assert says("Big-Q4_K_M", "Q4_K_M")
    assert not says("Big-Q4_K_M", "Q4_K")
    assert not says("Big-IQ3_XXS", "Q3_XXS")


@pytest.mark.parametrize(
    ("quant", "paths", "words"),
    [
        (
            "Q2_K",
            ["a-Q4_0.gguf", "a-Q8_0.gguf"],
            r"no GGUF file is called Q2_K; the repository has a-Q4_0 \(0.0 GB\)",
        ),
        ("", ["a-F16.gguf", "a-Q4_0.gguf"], "which one"),
        ("Q8_0", ["a-Q8_0.gguf", "b-Q8_0.gguf"], "2 models are called Q8_0"),
        ("", ["a-00001-of-00002.gguf"], "expected 2 files of a split, found 1"),
        ("", ["README.md"], "expected a .gguf or .safetensors file, found none of 1"),
        ("Q4_0", ["model.safetensors"], "no GGUF file, so there is no Q4_0"),
    ],
)
def test_what_cannot_be_chosen(quant: str, paths: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        choose_files(HubName("o/n", quant), files(*paths))


def test_safetensors_with_what_belongs_to_them() -> None:
    paths = ["config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "x.png"]
    chosen = choose_files(HubName("o/n"), files(*paths, "tokenizer.json", "onnx/model.safetensors"))
    assert [file.path for file in chosen.files] == [*paths[:3], "tokenizer.json"]
    assert chosen.opened == ""
