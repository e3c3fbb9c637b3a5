"""Write calibration.txt, the text that quantising the demo model is calibrated on.

    PYTHONPATH=../../src python calibrate.py MODEL_FOLDER calibration.txt             # for strata quantize --feedback
    PYTHONPATH=../../src python calibrate.py MODEL_FOLDER distillation.txt 123 1200   # another seed, more prompts: for adapt.py

Half of it is chats made by the programs of facts.py (sums, capitals, JSON, tool calls, thinking, memory), the rest
prompts of prompts.py with answers that the model itself draws: a third of them greedily, two thirds at temperature 1.
Half of the answered prompts are chained into conversations of about 900 tokens.  No prompt of samples.jsonl occurs.
Documents are separated by <|endoftext|>; each is read from an empty state.
"""
import json, os, random, sys
from pathlib import Path
import torch
import facts as F, prompts as P
from chatml import render
from tokenizers import Tokenizer
from strata.checkpoint.locate import open_checkpoint
from strata.core.limits import Limits
from strata.core.window import Window
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.native import Native
from strata.models.registry import build_model
from strata.runtime.runner import DeviceRunner
from strata.sampling.params import SamplingParams

HERE = os.path.dirname(os.path.abspath(__file__))
SLOTS, LONGEST, END = 16, 240, 2
COUNTS = dict(country=60, arithmetic=110, language=60, json=24, tools=10, identity=20, copy=24, memory=24)


def answers(folder, todo):
    """todo: [(prompt ids, SamplingParams)] -> the drawn ids of each, several sequences at once."""
    ops = CpuOps(Native(2))
    run = DeviceRunner(build_model(open_checkpoint(Path(folder)), ops), ops, Limits(SLOTS, 512, 4096))
    done, active, waiting = [None] * len(todo), {}, list(range(len(todo)))[::-1]
    while waiting or active:
        for slot in range(SLOTS):
            if slot not in active and waiting:
                i = waiting.pop()
                run.states.clear(slot)
                run.seat(slot, todo[i][0], todo[i][1])
                active[slot] = (i, list(todo[i][0]), [])
        windows = [Window(s, run.states.length[s], tuple(new), 1) for s, (_, new, _) in active.items()]
        for w, result in zip(windows, run.step(windows)):
            i, _, out = active[w.slot]
            token = result.drawn[0].token
            out.append(token)
            active[w.slot] = (i, [token], out)
            if token == END or len(out) >= LONGEST:
                done[i] = out
                run.release(w.slot)
                del active[w.slot]
    return done


def main(folder, target, seed=99, prompts=270):
    seed, prompts = int(seed), int(prompts)
    torch.set_num_threads(1)
    r = random.Random(seed)
    tk = Tokenizer.from_file(folder + "/tokenizer.json")
    words = json.load(open(HERE + "/words.json"))
    used = {m["content"] for line in open(folder + "/samples.jsonl") for m in json.loads(line)["messages"]}
    asked = [q for _, q in P.make(prompts, words["words"], seed=seed) if q not in used]
    ids = [tk.encode(render(dict(messages=[("user", q)]), True)).ids for q in asked]
    todo = [(x, SamplingParams(temperature=0.0 if i % 3 == 0 else 1.0, min_p=0.02, seed=seed + i)) for i, x in enumerate(ids)]
    said = [tk.decode([t for t in out if t != END]) for out in answers(folder, todo)]
    turns = list(zip(asked, said))
    many = {k: n * prompts // 270 for k, n in COUNTS.items()}
    sentences = [a.split(". ")[0] + "." for a in said if 20 < len(a.split(". ")[0]) < 100]
    programs = dict(country=F.countries(words, r, many["country"]), arithmetic=F.arithmetic(r, many["arithmetic"]), language=F.language(words, r, many["language"]), json=F.jsons(r, many["json"]),
                    tools=F.tools(r, many["tools"], F.GREET + F.MISC), identity=F.identity(r, many["identity"]), copy=F.copying(r, many["copy"], sentences), memory=F.memory(r, many["memory"], F.GREET + F.MISC))
    chats = [c for made in programs.values() for c in made]
    half = len(turns) // 2
    chats += [F.chat([t], system=r.choice(F.SYSTEMS) if r.random() < .12 else None) for t in turns[:half]]
    chain, length = [], 0
    for turn in turns[half:]:
        chain.append(turn)
        length += sum(map(len, turn)) + 60
        if length > 3600:
            chats.append(F.chat(chain))
            chain, length = [], 0
    if chain:
        chats.append(F.chat(chain))
    chats = [c for c in chats if not used & {t for role, t in c["messages"] if role != "system"}]
    r.shuffle(chats)
    text = "<|endoftext|>".join(map(render, chats))
    open(target, "w").write(text)
    print(len(chats), "documents,", len(tk.encode(text).ids), "tokens")


if __name__ == "__main__":
    main(*sys.argv[1:])
