"""Runners that draft, and what is compared of them."""

import functools

import torch

from models.heads import headed, load_headed
from models.made import load, ops_of, oracle, path_of
from strata.core.limits import Limits
from strata.core.window import Window
from strata.engine.engine import Engine, EngineSettings
from strata.engine.events import Token
from strata.engine.request import Request
from strata.engine.settings import Settings
from strata.runtime.drafts import Drafting
from strata.runtime.runner import DeviceRunner
from strata.sampling.params import SamplingParams
from strata.speculate.drafter import Proposal
from strata.state.sequence import PAGE

PARAMS = {
    "greedy": SamplingParams(),
    "sampled": SamplingParams(temperature=1.5, top_k=50, seed=3),
    "penalties": SamplingParams(
        temperature=0.9, seed=4, repeat_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.3
    ),
    "bias": SamplingParams(temperature=1.1, min_p=0.01, seed=5, logit_bias=((17, 4.0), (30, -100.0)), logprobs=2),
}
LENGTH = 40


@functools.cache
def with_head(name, tokens=None):
    model, head = load_headed(headed(name, "gguf"))
    return model, head if tokens is None else head.narrowed(torch.arange(tokens))


def runner_of(name, drafting=None, slots=3, context=192, keeping=None, depth=None):
    if drafting is None:
        model, head = with_head(name)
        drafting = Drafting(head, depth)
    else:
        model = with_head(name)[0]
    return DeviceRunner(model, ops_of(), Limits(slots, context, 64), keeping=keeping, drafting=drafting)


def plain_of(name, slots=3, context=192):
    return DeviceRunner(load(path_of(name, "gguf")), ops_of(), Limits(slots, context, 64))


class Knowing:
    """A drafter that knows every answer, and is wrong at places that differ from proposal to proposal (1: at none)."""

    def __init__(self, texts, places=7):
        self.texts = [tuple(text) for text in texts]
        self.places = places
        self.told = {}
        self.turn = 0

    def begin(self, slot, tokens):
        self.told[slot] = []

    def extend(self, slot, tokens):
        self.told[slot] += tokens

    def rest(self, slot):
        self.told.pop(slot, None)

    def knows(self, slot):
        return slot in self.told

    def forget(self, slot):
        self.told.pop(slot, None)

    def propose(self, asks):
        found = {}
        for slot, ask in asks.items():
            said = (*self.told[slot], ask.pending)
            text = next(text for text in self.texts if text[: len(said)] == said)
            tokens = list(text[len(said) : len(said) + ask.depth])
            self.turn += 1
            if wrong := self.turn % self.places:
                tokens[wrong - 1 : wrong] = [(t + 1) % 199 for t in tokens[wrong - 1 : wrong]]
            found[slot] = Proposal(tuple(tokens), (0.9,) * len(tokens))
        return found

    def spent(self):
        return None

    def took(self):
        return 0.0


def requests(tag, length=LENGTH):
    ids = oracle("qwen4_exp").ids
    prompts = {"greedy": ids[:30], "sampled": ids[3:12], "penalties": ids[10:45], "bias": ids[40:42]}
    return {n: Request(f"{tag}-{n}", tuple(prompts[n]), length, PARAMS[n]) for n in PARAMS}


def answers(runner, wanted, chunk=8):
    """(name -> its tokens with log-probabilities, name -> how it finished); all at once."""
    engine = Engine(runner, EngineSettings(scheduler=Settings(chunk_tokens=chunk)))
    engine.start()
    try:
        sessions = {name: engine.submit(request) for name, request in wanted.items()}
        events = {name: list(session.events()) for name, session in sessions.items()}
    finally:
        engine.stop()
    said = {name: [e for e in found if isinstance(e, Token)] for name, found in events.items()}
    return said, {name: found[-1] for name, found in events.items()}


@functools.cache
def alone(name):
    """What every request says of a runner without drafts."""
    return answers(plain_of(name, 4), requests("alone"))[0]


@functools.cache
def texts(name):
    """Prompt and answer of every request."""
    said, asked = alone(name), requests("alone")
    return [asked[n].tokens + tuple(t.token for t in said[n]) for n in PARAMS]


def memory(runner, slot):
    """What the slot remembers; of a head's cache all but the last pair, which depends on the token after it."""
    states, length, found = runner.states, runner.states.length[slot], {}
    for name, tensor in states.recurrent():
        found[name] = tensor[slot].clone()
    held = states.pages.held[slot]
    for i, layer in enumerate(states.layers):
        count = length - (layer.carry is not None)
        for kind, plane in (("k", layer.keys), ("v", layer.values), ("raw", layer.raw_keys)):
            if plane is not None:
                entries = [plane.data[plane.at(held[p // PAGE], p % PAGE)] for p in range(count)]
                found[f"{i}.{kind}"] = torch.stack(entries) if entries else torch.empty(0)
        if layer.block_keys is not None:
            per = PAGE // layer.block_keys.page
            blocks = [
                layer.block_keys.data[layer.block_keys.at(held[b * per // PAGE], b % layer.block_keys.page)]
                for b in range(count // per)
            ]
            found[f"{i}.block"] = torch.stack(blocks) if blocks else torch.empty(0)
    return found


def differing(a, b):
    return [name for name in a if not torch.equal(a[name], b[name])]


def driven(runner, ids, slot=1):
    """The text read and decoded with drafts, right and wrong ones, always following the text."""
    runner.seat(slot, ids[:21], SamplingParams(), 150)
    runner.step([Window(slot, 0, tuple(ids[:13]), 0)])
    runner.step([Window(slot, 13, tuple(ids[13:21]), 1)])
    turn = 0
    while (at := runner.states.length[slot]) < len(ids) - 8:
        runner.seats[slot].pending = ids[at]
        if turn % 3:
            runner.draft({slot: 3})
        right = ids[at + 1 : at + 1 + turn % 4]
        forced(runner, Window(slot, at, (ids[at], *right, *[5] * (turn % 3)), 1 + len(right) + turn % 3), len(right))
        turn += 1
    return runner.states.length[slot]


def forced(runner, window, right):
    """A step in which the drafts of the text are taken for right, whatever the model says."""
    honest = runner.draw
    tokens = (*window.tokens[1 : 1 + right], window.tokens[0])

    def draw(given, outcome, first):
        drawn = honest(given, outcome, first)[0]
        return tuple(type(drawn)(token) for token in tokens)

    runner.draw = draw
    runner.step([window])
    del runner.draw


def read(runner, slot, text):
    stops = sorted({min(PAGE, len(text)), min(2 * PAGE, len(text)), len(text)})
    for stop in stops:
        start = runner.states.length[slot]
        if stop > start:
            for first in range(start, stop, 32):
                end = min(first + 32, stop)
                runner.step([Window(slot, first, tuple(text[first:end]), int(end == len(text)))])
