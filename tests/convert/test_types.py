"""Which tensor gets which format, and the words for it."""

import pytest

from strata.convert.names import format_named, pattern_named
from strata.convert.report import deviations, totals, whole
from strata.convert.tensors import Item
from strata.convert.types import Types, choose, choose_all
from strata.core.errors import UsageError
from strata.quant.formats import FORMATS


def item(name: str, *shape: int, drafting: bool = False) -> Item:
    return Item(name, shape, lambda: iter(()), "F32", drafting=drafting)


def got(types: Types, name: str, *shape: int, drafting: bool = False) -> tuple[str, str]:
    choice = choose(item(name, *shape, drafting=drafting), types)
    assert choice.nbytes == choice.item.count // shape[-1] * choice.format.row_bytes(shape[-1])
    return choice.format.name, choice.reason


def test_plain_wishes() -> None:
    types = Types("Q4_K", "IQ3_S", "IQ4_NL", "Q8_0", "Q5_K")
    assert got(types, "blk.0.attn_q.weight", 512, 256) == ("Q4_K", "")
    assert got(types, "blk.0.ffn_gate_exps.weight", 8, 64, 256) == ("IQ3_S", "")
    assert got(types, "blk.0.ffn_down_exps.weight", 8, 256, 96) == ("IQ4_NL", "")
    assert got(types, "token_embd.weight", 100, 256) == ("Q8_0", "")
    assert got(types, "blk.4.attn_q.weight", 512, 256, drafting=True) == ("Q5_K", "")
    assert got(Types("Q4_K", "IQ3_S"), "blk.0.ffn_down_exps.weight", 8, 256, 256) == ("IQ3_S", "")


def test_what_stays_precise() -> None:
    low, high = Types("IQ2_S"), Types("Q8_0")
    assert got(low, "blk.0.attn_norm.weight", 256) == ("F32", "vectors and convolutions stay F32")
    assert got(low, "blk.0.ssm_conv1d.weight", 512, 4)[0] == "F32"
    assert got(low, "blk.0.ffn_gate_inp.weight", 8, 256) == ("F32", "routers stay F32")
    for name in (
        "blk.0.hc_attn_down",
        "output_hc_up",
        "blk.3.indexer.k_proj",
        "blk.1.ssm_ba",
        "blk.8.nextn.hc_head_up",
    ):
        found, reason = got(low, f"{name}.weight", 64, 256)
        assert found == "BF16" and "stay BF16" in reason
        assert got(high, f"{name}.weight", 64, 256) == ("Q8_0", "")
        assert got(Types("F16"), f"{name}.weight", 64, 256) == ("F16", "")
    asked = Types("IQ2_S", patterns=[("indexer", "Q8_0")])
    assert got(asked, "blk.3.indexer.k_proj.weight", 64, 256) == ("Q8_0", "")


def test_the_vocabulary_projection() -> None:
    assert got(Types("IQ3_S"), "output.weight", 100, 256)[0] == "Q6_K"
    assert got(Types("IQ3_S", embedding="IQ3_S"), "output.weight", 100, 256) == ("IQ3_S", "")
    assert got(Types("Q8_0"), "output.weight", 100, 256) == ("Q8_0", "")
    assert got(Types("IQ2_XXS"), "token_embd.weight", 100, 256)[0] == "IQ3_S"
    tied = choose_all([item("token_embd.weight", 100, 256)], Types("Q4_K"))
    apart = choose_all([item("token_embd.weight", 100, 256), item("output.weight", 100, 256)], Types("Q4_K"))
    assert [c.format.name for c in tied + apart] == ["Q6_K", "Q4_K", "Q6_K"]


@pytest.mark.parametrize(
    ("asked", "columns", "expected"),
    [
        ("IQ3_S", 640, "IQ4_NL"),
        ("Q4_K", 160, "Q5_0"),
        ("Q6_K", 96, "Q8_0"),
        ("NVFP4", 96, "IQ4_NL"),
        ("Q2_0", 160, "IQ4_NL"),
        ("MXFP4", 40, "F16"),
        ("Q4_K", 40, "F16"),
    ],
)
def test_rows_that_do_not_fill_blocks(asked: str, columns: int, expected: str) -> None:
    found, reason = got(Types(asked), "blk.0.attn_v.weight", 4, columns)
    assert found == expected and FORMATS[found].row_bytes(columns)
    assert reason == f"rows of {columns} do not fill {asked}'s blocks of {FORMATS[asked].block}"


def test_the_last_pattern_wins() -> None:
    types = Types("Q4_K", patterns=[("attn", "Q8_0"), (r"blk\.0\.", "F16")])
    assert got(types, "blk.0.attn_q.weight", 4, 256) == ("F16", "")
    assert got(types, "blk.1.attn_q.weight", 4, 256) == ("Q8_0", "")
    assert got(types, "blk.0.attn_norm.weight", 256)[0] == "F32"  # a vector, whatever its name


@pytest.mark.parametrize(
    ("types", "text"),
    [
        (Types("Q8_0", expert="Q4_K"), "--expert-type Q4_K: nothing to do"),
        (Types("Q8_0", down="Q4_K"), "--down-type Q4_K: nothing to do: the model has no experts"),
        (Types("Q8_0", drafting="Q4_K"), "--mtp-type Q4_K: nothing to do: the model has no drafting layer"),
        (Types("Q8_0", embedding="Q4_K"), "--embedding-type Q4_K: nothing to do"),
        (Types("Q8_0", patterns=[("attn_z", "F16")]), "--tensor-type attn_z=F16: no tensor's name matches"),
    ],
)
def test_an_option_without_effect_is_an_error(types: Types, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        choose_all([item("blk.0.attn_q.weight", 4, 256)], types)


def test_names() -> None:
    assert format_named("--type", "q4_k") == "Q4_K" and format_named("--type", "iq2-s") == "IQ2_S"
    assert pattern_named("a=b=iq4_nl") == ("a=b", "IQ4_NL")
    for text, message, hint in (
        ("Q4_K_M", "mix of formats", "--type Q4_K --down-type"),
        ("iq3_m", "mix of formats", "--type IQ3_S"),
        ("Q4_KK", "not a format", "did you mean Q4_K?"),
        ("FP8", "not a format", "GGUF has no such format"),
        ("I32", "not a format", "GGUF has no such format"),
        ("", "not a format", "one of F32, F16"),
    ):
        with pytest.raises(UsageError, match=message) as caught:
            format_named("--type", text)
        assert caught.value.hint is not None and hint in caught.value.hint
    for text in ("Q8_0", "=Q8_0", "attn"):
        with pytest.raises(UsageError, match="expected REGEX=FORMAT"):
            pattern_named(text)
    with pytest.raises(UsageError, match="no regular expression"):
        Types("Q8_0", patterns=[("(", "F16")])
    with pytest.raises(UsageError, match="not a format"):
        Types("FP8_BLOCK")


def test_report_adds_up() -> None:
    items = [
        item("token_embd.weight", 100, 256),
        item("output.weight", 100, 256),
        *(item(f"blk.{i}.attn_norm.weight", 256) for i in range(3)),
        *(item(f"blk.{i}.ffn_down_exps.weight", 4, 256, 96) for i in range(3)),
    ]
    choices = choose_all(items, Types("Q4_K"))
    rows, all_ = totals(choices), whole(choices)
    assert all_.tensors == 8 and all_.values == sum(i.count for i in items)
    assert all_.nbytes == sum(r.nbytes for r in rows) == sum(c.nbytes for c in choices)
    assert {r.name: (r.tensors, r.values) for r in rows}["Q5_0"] == (3, 3 * 4 * 256 * 96)
    assert {r.name: r.bits for r in rows}["Q4_K"] == 4.5
    found = {(d.format, d.tensors): d.names for d in deviations(choices)}
    assert found == {
        ("Q6_K", 1): ("output",),
        ("F32", 3): ("blk.*.attn_norm",),
        ("Q5_0", 3): ("blk.*.ffn_down_exps",),
    }
