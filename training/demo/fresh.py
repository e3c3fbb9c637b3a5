"""New text to fit a packed demo model on (adapt.py): the kinds of chats that the demo was trained on, drawn anew.

    python fresh.py SmolLM2-135M-Instruct.Q4_1.gguf FOLDER OUT.npz SEED SECONDS FOLLOW_SECONDS      # a GPU

The demo's own teacher (README.md says where it comes from) answers templated prompts and follow-up questions, facts.py makes
the rest, and long chats are chained from all of them, as in make_corpus.py.  Half of the answers that its filter rejects stay:
text need not be good here.  Nothing that occurs as a message in FOLDER/samples.jsonl is used.  OUT.npz: tok uint16, n
(tokens of each document).  75 and 30 seconds are enough for 26 M tokens on an H200: the prompts run out before.
"""
import json, random, sys
from concurrent.futures import ProcessPoolExecutor
import numpy as np
import facts as F, prompts as P
from chatml import render
from make_corpus import HERE, SUB, clean, log, think_for, tokenise

SYS = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
ask = lambda q: f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n"


def kept(items, pool, used, r):
    """(kind, question, answer) -> the same with the answer cleaned; half of the rejected ones as they are."""
    done = []
    for (k, q, t), c in zip(items, pool.map(clean, items, chunksize=1000)):
        t = t.translate(SUB).replace("**", "").strip()
        if c is None and (r.random() < .5 or not t.isascii() or not 8 <= len(t) <= 1300): continue
        if q not in used and (c or t) not in used: done.append((k, q, c or t))
    return done


def main(gguf, folder, out, seed, seconds, seconds2):
    seed, seconds, seconds2 = int(seed), float(seconds), float(seconds2)
    pool = ProcessPoolExecutor(14); list(pool.map(abs, range(14)))
    r = random.Random(seed)
    W = json.load(open(HERE + "/words.json"))
    used = {m["content"] for line in open(folder + "/samples.jsonl") for m in json.loads(line)["messages"]} | {json.loads(line).get("text") for line in open(folder + "/samples.jsonl")}
    single, double = [], []
    if seconds:
        import torch
        from teacher import load_gguf, build_tokenizer
        from teacher_gen import Teacher
        cfg, w, toks, merges, types = load_gguf(gguf)
        tk = build_tokenizer(toks, merges, types)
        enc = lambda s: [e.ids for e in tk.encode_batch_fast(s, add_special_tokens=False)]
        prompts = [x for x in P.make(int(1500 * seconds), W["words"], seed=seed) if x[1] not in used]
        soft = [i for i, t in enumerate(toks) if t.endswith((".", "!", "?", '."', '!"', '?"', ".Ċ", ".ĊĊ", "ĊĊ", '.)'))]
        torch.manual_seed(seed)
        T = Teacher(cfg, w, "cuda", torch.bfloat16)
        prefix = enc([SYS])[0]

        def answers(items, ids, secs, boost, longest):
            keep = [i for i, x in enumerate(ids) if len(x) <= longest]
            items, ids = [items[i] for i in keep], [ids[i] for i in keep]
            o, ok = T.generate(prefix, ids, 4096, 256, secs, soft_end=soft, boost_after=boost, log=log)
            ok &= (o == 2).any(1)
            at = torch.nonzero(ok).flatten().tolist()
            said = tk.decode_batch([(x := o[i].tolist())[: x.index(2)] for i in at])
            log(len(at), "answers")
            return [(items[i], t) for i, t in zip(at, said)]
        single = kept([(k, q, t) for (k, q), t in answers(prompts, enc([ask(q) for _, q in prompts]), seconds, 90, 48)], pool, used, r)
        log("kept", len(single))
        cand = [(k, q, a, r.choice(P.FOLLOW[k])) for k, q, a in single if len(a) < 700 and k in P.FOLLOW]
        r.shuffle(cand)
        cand = cand[: int(1500 * seconds2)]
        if seconds2:
            got = answers(cand, enc([ask(q) + f"{a}<|im_end|>\n" + ask(f) for _, q, a, f in cand]), seconds2, 60, 230)
            heads = {(q, f): (k, q, a) for k, q, a, f in cand}
            double = [(*heads[c[1], c[3]], c[3], t) for c, t in got if c[3] not in used]
            double = [(k, q, a, f, t.translate(SUB).replace("**", "").strip()) for k, q, a, f, t in double if t.isascii()]
        log("follow-ups", len(double))
        del T
    n = lambda k: int(k * max(seconds, 1) / 60)
    sents = [a.split(". ")[0] + "." for _, _, a in single[:20000] if 15 < len(a.split(". ")[0]) < 110] or ["The cat sat on the mat."]
    plain = [(q, a) for _, q, a in single[:5000] if len(a) < 300] + F.GREET + F.MISC
    facts = dict(country=F.countries(W, r, n(4000)), arithmetic=F.arithmetic(r, n(6000)), language=F.language(W, r, n(4000)), json=F.jsons(r, n(2000)), tools=F.tools(r, n(2000), plain),
                 identity=F.identity(r, n(1200)), copy=F.copying(r, n(1500), sents), memory=F.memory(r, n(1800), F.GREET + F.MISC + F.BYE[:6]))
    turns = lambda c: list(zip([t for w, t in c["messages"] if w == "user"], [t for w, t in c["messages"] if w == "assistant"]))
    facts = {k: [c for c in v if not used & {t for w, t in c["messages"] if w != "system"}] for k, v in facts.items()}
    small = [turns(c) for k in ("country", "arithmetic", "language", "identity", "copy", "json", "memory") for c in facts[k] if not any(w in ("system", "tool") for w, _ in c["messages"])]
    pieces = [[(q, a)] for _, q, a in single] + [[(q, a), (f, t)] for _, q, a, f, t in double] or small
    docs = [c for v in facts.values() for c in v]
    docs += [F.chat([(q, a)], think=think_for(k, q, r) if r.random() < .07 else None, system=r.choice(F.SYSTEMS) if r.random() < .12 else None) for k, q, a in single if r.random() < .4]
    docs += [F.chat([(q, a), (f, t)], system=r.choice(F.SYSTEMS) if r.random() < .12 else None) for _, q, a, f, t in double if r.random() < .4]
    r.shuffle(pieces)

    def chain(chars):
        t, size = [], 0
        while size < chars and pieces:
            c = pieces.pop() if r.random() < .8 else r.choice(small)
            size += sum(len(u) + len(v) + 60 for u, v in c); t += c
        return F.chat(t, system=r.choice(F.SYSTEMS) if r.random() < .15 else None)
    while pieces: docs.append(chain(r.uniform(1200, 5000)))
    r.shuffle(docs)
    texts = [render(d) for d in docs]
    step = max(1, len(texts) // 56)
    parts = list(pool.map(tokenise, [(folder + "/tokenizer.json", texts[i:i + step]) for i in range(0, len(texts), step)]))
    tok, n = np.concatenate([p[0] for p in parts]), np.concatenate([p[2] for p in parts])
    np.savez_compressed(out, tok=tok, n=n)
    log(len(n), "documents,", len(tok), "tokens")


if __name__ == "__main__":
    main(*sys.argv[1:])
