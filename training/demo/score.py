"""How well a packed demo model agrees with the folder that it was made from, both through the engine.

    PYTHONPATH=../../src python score.py FOLDER PACKED.gguf            # table of sizes, top-1, KL, facts
    PYTHONPATH=../../src python score.py FOLDER --record FILE.npz      # reference figures for the tests

Texts: prompt and answer of every line of FOLDER/samples.jsonl, every position counted.  KL is the mean over positions of
KL(reference || packed) in nats, over the whole vocabulary.  Facts are greedy answers.  Exit status 1 when a bound is
missed: top-1 96%, KL 0.03, 55,000,000 bytes, the facts.

FILE.npz: tokens (uint16, all texts in a row), lengths, prompts (tokens of each text, and of its prompt), top1 (uint16, the
reference's best id at every position), and for the texts of fewer than 300 tokens ids (uint16 [positions, 64]) and
logprobs (float16), the 64 best of every position.
"""
import argparse, json, re, sys
from collections import defaultdict
from pathlib import Path
import numpy as np, torch
from strata.checkpoint.gguf import open_gguf
from strata.checkpoint.locate import open_checkpoint
from strata.chat.tokenizer import load_tokenizer
from strata.core.limits import Limits
from strata.core.window import Window
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.native import Native
from strata.models.registry import build_model
from strata.runtime.runner import DeviceRunner
from strata.sampling.params import SamplingParams

FACTS = {"What is the capital of France?": "Paris", "What is 17 times 23?": "391", "Who are you?": "Strata Demo"}
TOP1, KL, BYTES, END, SHORT, KEPT = 0.96, 0.03, 55_000_000, 2, 300, 64


def runner(path):
    ops = CpuOps(Native(2))
    return DeviceRunner(build_model(open_checkpoint(Path(path)), ops), ops, Limits(1, 2048, 2048))


def logprobs(run, tokens):
    run.states.clear(0)
    rows = run.forward([Window(0, 0, tuple(tokens), len(tokens))]).copy()
    run.states.commit(0, len(tokens), run.ops)
    return torch.log_softmax(torch.from_numpy(rows), -1)


def greedy(run, ids, limit=200):
    run.states.clear(0)
    run.seat(0, ids, SamplingParams())
    out, new = [], list(ids)
    while len(out) < limit and (not out or out[-1] != END):
        new = [run.step([Window(0, run.states.length[0], tuple(new), 1)])[0].drawn[0].token]
        out += new
    return out


def record(texts, prompts, run, path):
    top1, ids, kept = [], [], []
    for t in texts:
        p = logprobs(run, t)
        top1.append(p.argmax(-1).numpy().astype(np.uint16))
        if len(t) < SHORT:
            best = p.topk(KEPT, -1)
            ids.append(best.indices.numpy().astype(np.uint16)); kept.append(best.values.numpy().astype(np.float16))
    np.savez_compressed(path, tokens=np.concatenate([np.array(t, np.uint16) for t in texts]), lengths=np.array([len(t) for t in texts]), prompts=np.array(prompts),
                        top1=np.concatenate(top1), ids=np.concatenate(ids), logprobs=np.concatenate(kept))


GROUPS = [("drafting layer", r"^blk\.8\."), ("gate and up experts", r"ffn_(gate|up)_exps"), ("down experts", "ffn_down_exps"), ("n-gram table", "^per_layer"), ("token embedding, head", "token_embd.weight$"),
          ("attention, delta net", r"\.(attn_(q|k|v|qkv|gate|output)|ssm_(out|alpha|beta)|indexer)"), ("shared experts", "shexp"), ("hyper-connections", "hc_"), ("n-gram matrices", "ple_"), ("rest", "")]


def sizes(path):
    held, formats = defaultdict(int), defaultdict(set)
    with open_gguf(Path(path)) as file:
        for name, ref in file.tensors.items():
            group = next(g for g, pattern in GROUPS if re.search(pattern, name))
            held[group] += len(file.bytes_of(ref).tobytes())
            if ref.format.name != "F32": formats[group].add(ref.format.name)
    for group, _ in GROUPS:
        print(f"{group:24s} {held[group] / 1e6:7.2f} MB  {' '.join(sorted(formats[group]))}")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("folder", type=Path); ap.add_argument("packed", nargs="?"); ap.add_argument("--record")
    a = ap.parse_args()
    torch.set_num_threads(1)
    samples = [json.loads(line) for line in open(a.folder / "samples.jsonl")]
    texts = [s["prompt_ids"] + s["output_ids"] for s in samples]
    reference = runner(a.folder)
    if a.record:
        record(texts, [len(s["prompt_ids"]) for s in samples], reference, a.record)
        return 0
    run, tk = runner(a.packed), load_tokenizer(open_checkpoint(a.folder))
    same, divergence, size = [], [], Path(a.packed).stat().st_size
    for t in texts:
        p, q = logprobs(reference, t), logprobs(run, t)
        same.append((p.argmax(-1) == q.argmax(-1)).float()); divergence.append((p.exp() * (p - q)).sum(-1))
    top1, kl = torch.cat(same).mean().item(), torch.cat(divergence).mean().item()
    sizes(a.packed)
    print(f"{size} bytes; {sum(map(len, texts))} positions: top-1 {top1:.4f}, KL {kl:.5f}; worst text {min(s.mean().item() for s in same):.4f} and {max(d.mean().item() for d in divergence):.5f}")
    good = top1 >= TOP1 and kl <= KL and size <= BYTES
    for question, fact in FACTS.items():
        said = tk.decode(greedy(run, tk.encode(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")))
        good &= fact in said
        print(f"{question} -> {said}")
    equal = sum(greedy(run, s["prompt_ids"], len(s["output_ids"])) == s["output_ids"] for s in samples)
    print(f"{equal} of {len(samples)} greedy answers are those of the folder")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
