"""A conversation of 32K tokens and a restart, on a hybrid model that is small enough to read it in seconds."""

import functools
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import Qwen3NextForCausalLM

from models.made import folder, load, ops_of
from oracles.build import config, randomise
from strata.core.limits import Limits
from strata.core.log import Log
from strata.engine.engine import Engine
from strata.engine.events import Finished, Reason, Reused, Token
from strata.engine.request import Request
from strata.runtime.keeping import Keeping, OnDisk
from strata.runtime.runner import DeviceRunner
from strata.sampling.params import SamplingParams
from strata.state.prefix import Tokens

LENGTH, CONTEXT = 32_768, 33_280
TEXT = tuple(int(token) for token in np.random.default_rng(3).integers(4, 199, LENGTH))


@functools.cache
def path() -> Path:
    """One attention layer of one narrow head beside three of the delta net, two experts of four."""
    torch.manual_seed(0)
    sizes = config("qwen3_next").to_dict()
    sizes |= {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16, "hidden_size": 32, "num_experts": 4}
    sizes |= {"num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}
    sizes |= {"linear_num_key_heads": 1, "linear_num_value_heads": 1, "max_position_embeddings": CONTEXT}
    model = Qwen3NextForCausalLM(type(config("qwen3_next"))(**sizes)).eval()
    randomise(model)
    model.save_pretrained(folder() / "long")
    return folder() / "long"


def engine_of(disk: Path) -> Engine:
    keeping = Keeping(disk=OnDisk(disk, 1 << 28, "long"), log=Log())
    ops = ops_of(2)
    engine = Engine(DeviceRunner(load(path(), ops), ops, Limits(2, CONTEXT, 1024), keeping=keeping))
    engine.start()
    return engine


def answer(engine: Engine, name: str, tokens: tuple[int, ...]) -> tuple[list[Token], Reused | None]:
    events = list(engine.submit(Request(name, tokens, 6, SamplingParams(logprobs=0))).events())
    assert isinstance(events[-1], Finished) and events[-1].reason is Reason.LENGTH, events[-1]
    reused = next((event for event in events if isinstance(event, Reused)), None)
    return [event for event in events if isinstance(event, Token)], reused


@pytest.mark.timeout(120)
def test_a_conversation_of_32k_survives_a_restart_without_being_read_again(tmp_path):
    engine = engine_of(tmp_path)
    said, reused = answer(engine, "first", TEXT)
    assert reused is None and len(said) == 6
    longer = (*TEXT, *(event.token for event in said), 7, 8, 9)
    expected, held = answer(engine, "warm", longer)
    assert held == Reused(LENGTH + 5, "pages")
    engine.stop()
    again = engine_of(tmp_path)
    assert answer(again, "again", longer) == (expected, Reused(LENGTH + 5, "disk"))
    assert again.status()["tokens"]["prompt"] == 4, "all that was read"
    again.stop()
    # Negative control: what came back is what the answer was made from.
    damaged = engine_of(tmp_path)
    states = damaged._runner.states
    begin = states.begin

    def spoiled(slot: int, tokens: Tokens, state: dict[str, torch.Tensor]) -> None:
        begin(slot, tokens, {name: part if "delta" not in name else part * 0 for name, part in state.items()})

    states.begin = spoiled
    assert answer(damaged, "damaged", longer)[0] != expected
    damaged.stop()
