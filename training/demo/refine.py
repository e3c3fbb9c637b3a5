"""Other formats for some tensors of a packed model, encoded anew from the folder with error feedback over a text.

    PYTHONPATH=../../src python refine.py FOLDER BASE.gguf OUT.gguf calibration.txt NAME=FORMAT...
    PYTHONPATH=../../src python refine.py drafts FOLDER PACKED.gguf PROMPTS        # acceptance of its drafting layer

Every other tensor is BASE's, byte for byte, so that what adapt.py has moved stays.  Matrices of the trunk are rounded for what
they read over the text, as `strata quantize --feedback` does; so are the drafting layer's experts, heard in the training code
(model.py).  Formats without a code for every value are weighed by the same columns, the drafting layer's other tensors equally.

`drafts` answers prompts of prompts.py (seed 4242) greedily with PACKED and counts how often its own first draft is the next
token, and the second draft given the first; then the same with the folder's drafting layer on PACKED's trunk.
"""
import json, os, re, sys
from pathlib import Path
import numpy as np, torch
import adapt, model as M, prompts as P
from calibrate import answers
from chatml import render
from strata.chat.tokenizer import load_tokenizer
from strata.checkpoint.gguf import open_gguf
from strata.checkpoint.locate import open_checkpoint
from strata.checkpoint.writer import TensorSource, write_gguf
from strata.convert import hessian
from strata.convert.hessian import Hearing, Moments
from strata.convert.write import read_items
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.native import Native
from strata.quant.decode import codes
from strata.quant.encode import encode
from strata.quant.feedback import factors, rounded, supported
from strata.quant.formats import FORMATS
from strata.sampling.params import SamplingParams

HERE = os.path.dirname(os.path.abspath(__file__))
LONGEST, EXPERTS, OTHERS, SEED = 960, 2, 4, 4242     # every second document for experts of the trunk, every fourth for the rest


def values(item):
    return np.concatenate([np.asarray(v, np.float32).reshape(-1, item.columns) for _, v in item.pieces()])


# --------------------------------------------------------------------------------------------------- the training code
def whole_model(folder):
    """adapt.folder_model with the drafting layer's weights."""
    from safetensors.torch import load_file
    m = adapt.folder_model(folder)
    m.load_state_dict({k: v.float() for k, v in load_file(f"{folder}/model.safetensors").items() if k.startswith("mtp.")}, strict=False)
    M.FORCE_NAIVE, M.cpu_gdn = True, adapt.delta_rule
    return m


@torch.no_grad()
def streams(m, ids):
    """(batch, the trunk's streams, the tokens after each) of one text, padded to whole chunks of the delta rule."""
    pad = -len(ids) % 64
    adapt.LENGTH = len(ids) + pad
    x, pos = torch.tensor(ids + [0] * pad), torch.arange(len(ids) + pad)
    b = m.prepare(x, pos, 1, torch.tensor([0, len(x)]), qsa=True, dtype=torch.float32)
    return b, m.trunk(b, M.new_aux(), torch.float32)[0], x.roll(-1)


@torch.no_grad()
def heard_drafting(folder, texts, experts=32):
    """Moments of the drafting layer's experts, rows times the router's weight, under GGUF's names."""
    m, router, grouped, top = whole_model(folder), M.router, M.grouped, []
    sums = {n: Moments(np.zeros((experts, n, n), np.float32), np.zeros(experts, np.int64)) for n in (m.c.hidden, m.c.expert_dim)}

    def heard_router(*args):
        found = router(*args)
        top[:] = found[:2]
        return found

    def heard(x, w, offs):
        share = top[0].flatten()[top[1].flatten().argsort(stable=True)].unsqueeze(1)
        for e, rows in enumerate((x * share).tensor_split(offs[:-1].long())):
            if len(rows): sums[w.shape[2]].add(e, rows)
        return grouped(x, w, offs)

    for text in texts:
        M.router, M.grouped = router, grouped
        b, st, following = streams(m, text)
        M.router, M.grouped = heard_router, heard
        m.draft(st, following, b, M.new_aux())
    M.router, M.grouped = router, grouped
    read, hidden = sums[m.c.hidden], sums[m.c.expert_dim]
    return {"ffn_gate_exps": read, "ffn_up_exps": read, "ffn_down_exps": hidden}


class Some(Hearing):
    """Hears only what is to be encoded anew: the sums of the wide hyper-connections take most of the time."""
    __slots__ = ()
    wanted = frozenset()

    def product(self, weight, x): pass

    def products(self, weights, x):
        if self.wanted & {self.names.name_of(w) for w in weights}: super().products(weights, x)

    def expert(self, *args):
        if not self.wanted: super().expert(*args)


def heard_trunk(checkpoint, texts, items, wanted):
    """Moments of the trunk's experts, or, where `wanted` is not empty, of these matrices."""
    hessian.Hearing, Some.wanted = Some, frozenset(wanted)
    return hessian.measure(checkpoint, CpuOps(Native(2)), texts, items, lambda done, total: None)


# ------------------------------------------------------------------------------------------------------------- encoding
def encoded(item, fmt, moments):
    v = values(item)
    if moments is None:
        return np.asarray(encode(fmt, v, np.ones(item.columns, np.float32) if fmt.kind == "codes" else None))
    out = []
    for e, rows in enumerate(v.reshape(len(moments.sums), -1, item.columns)):
        h = moments.of(e)
        raw = np.asarray(encode(fmt, rows, np.ascontiguousarray(np.diag(h) / np.diag(h).mean(), np.float32))).reshape(len(rows), -1)
        out.append(rounded(fmt, raw, rows, factors(h)) if supported(fmt) else raw)
    return np.concatenate(out)


def refine(folder, base, out, text, *wanted):
    wanted = dict(w.split("=") for w in wanted)
    checkpoint, packed = open_checkpoint(Path(folder)), open_gguf(Path(base))
    texts = hessian.documents(open(text, encoding="utf-8").read(), load_tokenizer(checkpoint).encode)
    items = {i.name: i for i in read_items(checkpoint)[0]}
    fed = [n for n, fmt in wanted.items() if supported(FORMATS[fmt]) and ("_exps" in n or not items[n].drafting) and "conv" not in n]
    trunk, matrices = [n for n in fed if "_exps" in n and not items[n].drafting], [n.removesuffix(".weight") for n in fed if "_exps" not in n]
    moments = heard_trunk(checkpoint, texts[::EXPERTS], list(items.values()), ()) if trunk else {}
    if matrices: moments |= heard_trunk(checkpoint, texts[::OTHERS], list(items.values()), matrices)
    drafting = heard_drafting(folder, [list(t[:LONGEST]) for t in texts[::OTHERS]]) if any("_exps" in n and items[n].drafting for n in wanted) else {}
    sources = []
    for name, ref in packed.tensors.items():
        fmt, raw = ref.format, np.ascontiguousarray(packed.bytes_of(ref)).reshape(-1)
        if name in wanted:
            fmt = FORMATS[wanted.pop(name)]
            known = drafting.get(name.split(".")[2]) if items[name].drafting else moments.get(name)
            raw = encoded(items[name], fmt, known).reshape(-1)
            print(name, fmt.name, raw.nbytes, flush=True)
        sources.append(TensorSource(name, ref.shape, fmt, raw))
    assert not wanted, f"{base} has no {list(wanted)}"
    write_gguf(Path(out), {k: v for k, v in packed.types.items() if not k.startswith("split.")}, sources)
    print(Path(out).stat().st_size, "bytes")


# --------------------------------------------------------------------------------------------------------------- drafts
def decoded(packed, item):
    """A packed tensor's values, [rows, columns]."""
    ref = packed.tensors[item.name]
    raw = np.ascontiguousarray(packed.bytes_of(ref))
    if ref.format.name == "F32": return raw.view(np.float32).reshape(-1, item.columns)
    if ref.format.name == "BF16": return (raw.reshape(-1).view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(-1, item.columns)
    held = codes(ref.format, raw.reshape(-1, ref.format.row_bytes(item.columns)))
    wide = lambda a: np.repeat(a, ref.format.sub, axis=1)
    v = held.w_int * wide(held.scale)
    return v if held.min_scale is None else v - wide(held.min_scale)


@torch.no_grad()
def put(m, packed, items, wanted):
    """The packed values of matrices whose names match, in place of the parameters that have the folder's values."""
    params = {n: p.data.view(-1, p.shape[-1]) for n, p in m.named_parameters() if p.ndim >= 2 and "ngram" not in n and "conv1d" not in n}
    key = lambda a: [r.tobytes() for r in np.ascontiguousarray(a, np.float32)]
    by_row = {k: (n, i) for n, a in params.items() for i, k in enumerate(key(a.numpy()))}
    by_col = {k: (n, i) for n, a in params.items() if "out_proj" in n for i, k in enumerate(key(a.numpy().T))}
    todo = []
    for item in items:
        if not re.search(wanted, item.name) or re.search("norm|conv1d|ssm_a$|ssm_dt|^per_layer", item.name): continue
        a, v = values(item), decoded(packed, item)
        halves = np.split(np.arange(item.columns), 2) if "eh_proj" in item.name else [np.arange(item.columns)]
        for cols in halves:
            w = a[:, cols]
            whole = key(w)[0] in by_row
            at = [by_row[k] for k in key(w)] if whole else [by_col[k] for k in key(w.T)]
            (name,), place = {n for n, _ in at}, torch.tensor([i for _, i in at])
            todo.append((params[name], place, torch.from_numpy(np.ascontiguousarray(v[:, cols], np.float32)), whole))
    for p, place, v, whole in todo:
        if whole: p[place] = v
        else: p[:, place] = v
    if re.search(wanted, "per_layer_token_embd.weight"):
        item = next(i for i in items if i.name == "per_layer_token_embd.weight")
        m.model.layers[m.c.ple_layer - 1].ple.ple_embedding.ngram_embedding.weight.copy_(torch.from_numpy(np.ascontiguousarray(decoded(packed, item), np.float32)))


@torch.no_grad()
def accepted(m, read):
    """(first drafts that are the next token, second drafts given the first) over the answers."""
    n1 = k1 = n2 = k2 = 0
    for ids, start, (b, st, following) in read:
        streams2, d = m.draft(st, following, b, M.new_aux())
        first, second = m.head(d).argmax(-1).tolist(), m.head(m.draft(torch.cat([st[:1], streams2[:-1]]), following, b, M.new_aux())[1]).argmax(-1).tolist()
        for t in range(start - 1, len(ids) - 2):
            good = first[t] == ids[t + 2]
            n1 += 1; k1 += good
            if good and t + 3 < len(ids): n2 += 1; k2 += second[t + 1] == ids[t + 3]
    return f"first drafts {k1 / n1:.3f} of {n1}, second drafts {k2 / n2:.3f} of {n2}"


def drafts(folder, path, count):
    tk, items, packed = load_tokenizer(open_checkpoint(Path(folder))), read_items(open_checkpoint(Path(folder)))[0], open_gguf(Path(path))
    used = {m["content"] for line in open(folder + "/samples.jsonl") for m in json.loads(line)["messages"]}
    asked = [q for _, q in P.make(int(count), json.load(open(HERE + "/words.json"))["words"], seed=SEED) if q not in used]
    ids = [list(tk.encode(render(dict(messages=[("user", q)]), True))) for q in asked]
    said = answers(path, [(x, SamplingParams(temperature=0.0)) for x in ids])
    m = whole_model(folder)
    put(m, packed, items, "^(?!blk.8)")
    read = [(x + o, len(x), streams(m, x + o)) for x, o in zip(ids, said)]
    print("the folder's drafting layer:", accepted(m, read), flush=True)
    put(m, packed, items, "^blk.8")
    print("its own:", accepted(m, read))


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "drafts": drafts(*sys.argv[2:])
    else: refine(*sys.argv[1:])
