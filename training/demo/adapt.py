"""Fit a packed model to the folder that it was made from, end to end, by distillation.

    PYTHONPATH=../../src python adapt.py plan FOLDER START.gguf PLAN.npz
    PYTHONPATH=../../src python adapt.py run FOLDER START.gguf PLAN.npz OUT.gguf SECONDS TEXT.npz...    # a GPU

START.gguf comes from `strata quantize FOLDER` or from an earlier run, the texts from fresh.py.  Formats, names and keys stay;
what changes are codes (straight-through: each by at most one level from the nearest to the folder's weight or from START's),
the blocks' own fp16 scales, norms, and routers where ROUTER_RATE is set; routers start from the folder's.  The teacher is
the folder; the loss is KL(teacher || student), averaged over all tokens, plus a part of the same for every router.  A
quarter of the rows are earlier ones in which the teacher has drawn some of the tokens anew.  Every fortieth document is held
out, and the figures over them decide what is kept; WATCH names one more file of texts, whose figures are only printed.  The
drafting layer is left alone.  The plan says which rows and columns of the packed tensors are which of the folder's.

Rates are per step, in levels for codes (RATE), relative for scales (SCALE_RATE).  Codes want 0.003 to 0.004: at 0.0055
and above their flips are noise.  Routers' values are small: 1e-4 a step is too much for them.
"""
import os, queue, sys, threading, time
from pathlib import Path
import numpy as np, torch
import torch.nn.functional as F
import model as M
from safetensors.torch import load_file
from strata.checkpoint.gguf import open_gguf
from strata.quant.decode import codes
from strata.quant.repack import LAYOUTS, repack

CUDA = torch.cuda.is_available()
setting = lambda name, value: float(os.environ.get(name, value))
ROWS, LENGTH = int(setting("ROWS", 32 if CUDA else 4)), int(setting("LENGTH", 1024))
RATE, SCALE_RATE, SMALL_RATE, TABLE = setting("RATE", 0.003), setting("SCALE_RATE", 5e-5), setting("SMALL_RATE", 1e-5), setting("TABLE", 0.5)
ROUTER_RATE, ROUTERS, REACH, SEED, CHUNK = setting("ROUTER_RATE", 0), setting("ROUTERS", 0.3), 1.0, int(setting("SEED", 5)), 8192
HALVES = {"Q6_K": (208,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q4_1": (0, 2), "Q5_1": (0, 2)}     # fp16 scales in a block; others: one at 0


def folder_model(folder):
    sd = load_file(f"{folder}/model.safetensors")
    for name in [n for n in sd if n.endswith("shard_0.weight")]:
        base = name[: -len("shard_0.weight")]
        parts = [n for n in sd if n.startswith(base + "shard_")]
        sd[base + "weight"] = torch.cat([sd.pop(f"{base}shard_{i}.weight") for i in range(len(parts))])
    m = M.Model(M.Cfg(vocab=sd["model.embed_tokens.weight"].shape[0])).float()
    missing = m.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in sd.items()}, strict=False)
    assert not missing.unexpected_keys and all(k.startswith("mtp.") for k in missing.missing_keys), missing
    return m.eval()


# ----------------------------------------------------------------------------------------------------- what is trained
class Rounded(torch.autograd.Function):
    """The levels nearest to u times their scales; the gradient passes as if u were not rounded."""
    @staticmethod
    def forward(ctx, u, q):
        ctx.scale = q.scale
        level = u.round().clamp_(q.levels[0], q.levels[-1]) if q.uniform else q.levels[torch.bucketize(u, q.borders)]
        return level.mul_(q.scale)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.scale, None


class Quantised:
    """One parameter of the training code: latent u, in level units, and where its parts lie in the packed file."""

    def __init__(self, name, p, device):
        self.name, self.shape, self.device = name, p.shape, device
        self.weight = p.detach().reshape(-1, p.shape[-1])
        self.u = torch.zeros_like(self.weight)
        self.scale, self.minimum = torch.zeros_like(self.weight), None
        self.parts, self.fmt = [], None

    def add(self, tensor, fmt, raw, rows, cols):
        held = codes(fmt, raw)
        wide = lambda a: torch.from_numpy(np.repeat(a, fmt.sub, axis=1))
        at = (torch.from_numpy(rows)[:, None], torch.from_numpy(cols)[None])
        self.scale[at] = wide(held.scale)
        if held.min_scale is not None:
            self.minimum = torch.zeros_like(self.weight) if self.minimum is None else self.minimum
            self.minimum[at] = wide(held.min_scale)
        self.u[at] = torch.from_numpy(held.w_int.astype(np.float32))
        assert self.fmt is None or self.fmt.name == fmt.name
        self.fmt, self.cols = fmt, cols
        self.parts.append((tensor, raw, rows, cols))

    def ready(self):
        levels = torch.from_numpy(LAYOUTS[self.fmt.name].levels)
        self.uniform = bool((levels.diff() == 1).all())
        self.gap = 1.0 if self.uniform else 16.0
        wanted = self.weight + (self.minimum if self.minimum is not None else 0)
        wanted = torch.where(self.scale != 0, wanted / self.scale, self.u)
        if self.uniform:
            below, above = self.u - .3, self.u + .3
        else:
            borders = (levels[1:] + levels[:-1]) / 2
            i = torch.searchsorted(levels, self.u)
            ends = torch.cat([levels[:1] - 8, borders, levels[-1:] + 8])
            below, above = .8 * ends[i] + .2 * self.u, .8 * ends[i + 1] + .2 * self.u
        start = torch.minimum(torch.maximum(wanted, below), above)     # START's codes, not at their edges
        put = lambda t: t.reshape(self.shape).to(self.device)
        self.low, self.high = put(torch.minimum(wanted, start) - REACH * self.gap), put(torch.maximum(wanted, start) + REACH * self.gap)
        self.scale, self.u = put(self.scale), put(start).requires_grad_()
        self.minimum = None if self.minimum is None else put(self.minimum)
        self.levels = levels.to(self.device); self.borders = ((levels[1:] + levels[:-1]) / 2).to(self.device)
        self.weight = None
        n, block = self.shape[-1], self.fmt.block
        where = np.empty(n, np.int64); where[self.cols] = np.arange(n) // block
        self.where = None if (where == np.arange(n) // block).all() else torch.from_numpy(where).to(self.device)
        self.by = torch.ones(self.u.numel() // n, n // block, device=self.device, requires_grad=True)
        self.by_minimum = torch.ones_like(self.by, requires_grad=True) if self.minimum is not None else None

    def spread(self, x, by):
        """x times the factor of each value's block."""
        if self.where is not None:
            return x * by[:, self.where].reshape(self.shape)
        return (x.reshape(*by.shape, -1) * by.unsqueeze(-1)).reshape(self.shape)

    def value(self):
        v = self.spread(Rounded.apply(self.u, self), self.by)
        return v if self.minimum is None else v - self.spread(self.minimum, self.by_minimum)

    @torch.no_grad()
    def packed(self):
        """(tensor's name, its new bytes) of every part."""
        place = torch.bucketize(self.u, self.borders) if not self.uniform else self.u.round().clamp(self.levels[0], self.levels[-1]) - self.levels[0]
        place = place.reshape(-1, self.shape[-1]).cpu().numpy().astype(np.uint8)
        found = []
        for t, raw, rows, cols in self.parts:
            new = repack(self.fmt, raw, np.ascontiguousarray(place[rows[:, None], cols[None]])).reshape(-1, self.fmt.block_bytes)
            for at, by in zip(HALVES.get(self.fmt.name, (0,)), (self.by, self.by_minimum)):
                old = np.ascontiguousarray(new[:, at:at + 2]).view(np.float16).astype(np.float32)
                new[:, at:at + 2] = (old * by[torch.from_numpy(rows)].reshape(-1, 1).cpu().numpy()).astype(np.float16).view(np.uint8)
            found.append((t, new.reshape(raw.shape)))
        return found


def plan(folder, start, out):
    """Finds every quantised tensor's rows (and columns) among the training code's parameters, by their values."""
    from strata.checkpoint.locate import open_checkpoint
    from strata.convert.write import read_items
    packed, made = open_gguf(Path(start)), {}
    params = {n: p.detach().reshape(-1, p.shape[-1]).numpy() for n, p in folder_model(folder).named_parameters() if p.ndim >= 2 and n.startswith("model.") and "ngram" not in n and "conv1d" not in n}
    key = lambda a: [r.tobytes() for r in np.ascontiguousarray(a)]
    by_row = {k: (n, i) for n, a in params.items() for i, k in enumerate(key(a))}
    by_col = {k: (n, i) for n, a in params.items() if "out_proj" in n for i, k in enumerate(key(a.T))}
    vectors = {n: p.detach().numpy() for n, p in folder_model(folder).named_parameters() if p.ndim == 1 and n.startswith("model.") and "norm" in n}
    for item in read_items(open_checkpoint(Path(folder)))[0]:
        if not item.drafting and "norm" in item.name:
            a = np.concatenate([np.asarray(v, np.float32).reshape(-1) for _, v in item.pieces()])
            (name, plus), = [(n, plus) for n, v in vectors.items() for plus in (0, 1) if v.shape == a.shape and np.array_equal(v + np.float32(plus), a)][:1]
            del vectors[name]
            made[f"{item.name}|{name}|vector"] = np.array(plus)
        if item.drafting or packed.tensors[item.name].format.name not in LAYOUTS or item.name.startswith("per_layer"):
            continue
        a = np.concatenate([np.asarray(v, np.float32).reshape(-1, item.columns) for _, v in item.pieces()])
        if all(k in by_row for k in key(a[:4])):
            at = [by_row[k] for k in key(a)]
            rows, cols = np.array([i for _, i in at]), np.arange(item.columns)
        else:
            at = [by_col[k] for k in key(a.T)]
            rows, cols = np.arange(len(a)), np.array([i for _, i in at])
        names = {n for n, _ in at}
        assert len(names) == 1 and len(set(rows.tolist())) == len(rows), item.name
        made |= {f"{item.name}|{names.pop()}|rows": rows.astype(np.uint16), f"{item.name}|cols": cols.astype(np.uint16)}
    np.savez_compressed(out, **made)
    assert not vectors, list(vectors)
    print(len(made), "entries")


def matched(model, packed, path, device):
    """The parameters that the plan names, and the n-gram table, whose rows are in the folder's order."""
    params, found, plan = dict(model.named_parameters()), {}, np.load(path)
    table = f"model.layers.{model.c.ple_layer - 1}.ple.ple_embedding.ngram_embedding.weight"
    entries = [(*k.split("|")[:2], plan[k].astype(np.int64), plan[k.split("|")[0] + "|cols"].astype(np.int64)) for k in plan.files if k.endswith("|rows")]
    entries.append(("per_layer_token_embd.weight", table, np.arange(len(params[table])), np.arange(params[table].shape[1])))
    for tensor, name, rows, cols in entries:
        ref = packed.tensors[tensor]
        raw = np.ascontiguousarray(packed.bytes_of(ref)).reshape(len(rows), -1)
        found.setdefault(name, Quantised(name, params[name], device)).add(tensor, ref.format, raw, rows, cols)
    for q in found.values():
        assert (q.scale != 0).any()
        q.ready()
        if "norm" not in q.name:
            far = (q.value().detach().cpu() - params[q.name]).norm() / params[q.name].norm()
            assert far < .2, (q.name, far)
    return list(found.values())


class Bf16(torch.autograd.Function):
    """Rounded to bfloat16, as the file holds routers."""
    @staticmethod
    def forward(ctx, x):
        return x.bfloat16().float()

    @staticmethod
    def backward(ctx, g):
        return g


# ------------------------------------------------------------------------------------- the model, fast enough in float32
class Inverse(torch.autograd.Function):
    """Of unit lower triangular matrices [..., C, C], by blocks of doubling size."""
    @staticmethod
    def forward(ctx, a):
        C = a.shape[-1]
        t, b = torch.ones(*a.shape[:-2], C, 1, 1, device=a.device), 1
        tf32, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, False
        while b < C:
            n = C // (2 * b)
            low = a.unflatten(-1, (n, 2 * b)).unflatten(-3, (n, 2 * b)).diagonal(dim1=-4, dim2=-2).movedim(-1, -3)[..., b:, :b]
            first, second = t[..., 0::2, :, :], t[..., 1::2, :, :]
            new = a.new_zeros(*a.shape[:-2], n, 2 * b, 2 * b)
            new[..., :b, :b], new[..., b:, b:], new[..., b:, :b] = first, second, -(second @ (low @ first))
            t, b = new, 2 * b
        torch.backends.cuda.matmul.allow_tf32 = tf32
        t = t.squeeze(-3)
        ctx.save_for_backward(t)
        return t

    @staticmethod
    def backward(ctx, g):
        t, = ctx.saved_tensors
        return -(t.mT @ g @ t.mT).tril(-1)


def delta_rule(q, k, v, g, beta, cu=None):
    """The gated delta rule in chunks of 64, all rows at once: q, k [1, N, Hk, D], v [1, N, H, D], g, beta [1, N, H]."""
    H, C, rows = v.shape[2], 64, v.shape[1] // LENGTH
    chunks = lambda x: x.reshape(rows, -1, C, *x.shape[2:]).transpose(2, 3) if x.ndim == 4 else x.reshape(rows, -1, C, H).transpose(2, 3)
    unit = lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)
    q, k = (chunks(unit(x).repeat_interleave(H // x.shape[2], 2)) for x in (q, k))
    v, g, beta = chunks(v), chunks(g).cumsum(-1), chunks(beta).unsqueeze(-1)
    q = q * q.shape[-1] ** -0.5                                     # [R, chunks, H, C, D]
    i = torch.arange(C, device=q.device)
    decay = (g.unsqueeze(-1) - g.unsqueeze(-2)).masked_fill(i[:, None] < i, float("-inf")).exp()
    kb = k * beta
    inverse = Inverse.apply(((kb @ k.mT) * decay).tril(-1) + torch.eye(C, device=q.device))
    u, w = (inverse @ torch.cat([v * beta, kb * g.exp().unsqueeze(-1)], -1)).split(v.shape[-1], -1)
    inside, qd, last = (q @ k.mT) * decay, q * g.exp().unsqueeze(-1), g[..., -1:]
    kd = (k * (last - g).exp().unsqueeze(-1)).mT
    last = last.exp().unsqueeze(-1)
    s, out = torch.zeros(rows, H, q.shape[-1], v.shape[-1], device=q.device), []
    for u, w, inside, qd, kd, last in zip(*(x.unbind(1) for x in (u, w, inside, qd, kd, last))):
        new = u - w @ s
        out.append(qd @ s + inside @ new)
        s = s * last + kd @ new
    return torch.stack(out, 1).transpose(2, 3).reshape(1, -1, H, v.shape[-1])


class Pad(torch.autograd.Function):
    """x [n, d] -> its rows at `at` [E, most, d]; row i of x lies at place[i] of them (the others are ignored)."""
    @staticmethod
    def forward(ctx, x, at, place):
        ctx.save_for_backward(place)
        return x[at]

    @staticmethod
    def backward(ctx, g):
        return g.flatten(0, 1)[ctx.saved_tensors[0]], None, None


class Unpad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, place):
        ctx.save_for_backward(place); ctx.shape = y.shape
        return y.flatten(0, 1)[place]

    @staticmethod
    def backward(ctx, g):
        out = g.new_zeros(ctx.shape)
        out.flatten(0, 1)[ctx.saved_tensors[0]] = g
        return out, None


def grouped(x, w, offs):
    """Rows sorted by expert times each expert's matrix, all experts in one product of padded rows; w [E, out, in]."""
    ends = offs.long(); starts = F.pad(ends[:-1], (1, 0))
    most = int((ends - starts).max())
    at = (starts.unsqueeze(1) + torch.arange(most, device=x.device)).clamp_max(len(x) - 1)
    row = torch.arange(len(x), device=x.device)
    expert = torch.searchsorted(ends, row, right=True)
    place = expert * most + row - starts[expert]
    return Unpad.apply(Pad.apply(x, at, place) @ w.mT, place)


HEARD = []


def heard_router(x, w, top_k, real):
    HEARD.append(F.linear(x, w))
    probs = HEARD[-1].softmax(-1)
    top, idx = probs.topk(top_k, -1)
    return top / top.sum(-1, keepdim=True), idx, probs.new_zeros(()), probs.mean(0)


def body(model, b):
    """(what the head reads, log-probabilities of every router)."""
    HEARD.clear()
    h = model.trunk(b, M.new_aux(), torch.float32)[1]
    return h, [x.log_softmax(-1) for x in HEARD]


class Divergence(torch.autograd.Function):
    """Mean KL of the two heads' distributions over the real rows; also (not differentiable) agreement and the first's draws."""
    @staticmethod
    def forward(ctx, hs, es, ht, et, real, draw):
        dh, de, kl, same, drawn = torch.empty_like(hs), torch.zeros_like(es), [], [], []
        n = real.sum()
        for a in range(0, len(hs), CHUNK):
            p, q = F.log_softmax(ht[a:a + CHUNK] @ et.T, -1), F.log_softmax(hs[a:a + CHUNK] @ es.T, -1)
            same.append(p.argmax(-1) == q.argmax(-1))
            pe = p.exp()
            if draw: drawn.append((pe / torch.empty_like(p).exponential_()).argmax(-1))
            kl.append((pe * p.sub_(q)).sum(-1))
            d = q.exp_().sub_(pe).mul_((real[a:a + CHUNK] / n).unsqueeze(-1))
            dh[a:a + CHUNK] = d @ es
            de.addmm_(d.T, hs[a:a + CHUNK])
        ctx.save_for_backward(dh, de)
        kl, same = torch.cat(kl), torch.cat(same)
        ctx.mark_non_differentiable(same)
        drawn = torch.cat(drawn) if draw else same
        return (kl * real).sum() / n, (same & real).sum() / n, drawn

    @staticmethod
    def backward(ctx, g, *_):
        dh, de = ctx.saved_tensors
        return dh * g, de * g, None, None, None, None


def compared(teacher, student, b, real, draw=False):
    """(mean KL over the real positions, agreement, mean KL of the routers, the teacher's draws)."""
    with torch.no_grad():
        ht, rp = body(teacher, b)
    hs, rq = body(student, b)
    kl, same, drawn = Divergence.apply(hs, student.model.embed_tokens.weight, ht, teacher.model.embed_tokens.weight, real, draw)
    routers = sum(((x.exp() * (x - y)).sum(-1) * real).sum() for x, y in zip(rp, rq)) / len(rp) / real.sum()
    return kl, same, routers, drawn


# ------------------------------------------------------------------------------------------------------------- the texts
def read(path):
    data = np.load(path)
    return np.split(data["tok"].astype(np.int64), np.cumsum(data["n"])[:-1])


def packed_rows(docs, r, count):
    """[count, LENGTH] ids, positions, real; a quarter of the rows is one document made of several."""
    rows = []
    for _ in range(count):
        one, n, parts = r.random() < .25, 0, []
        while n < LENGTH:
            d = docs[r.integers(len(docs))][: LENGTH - n]
            pad = 0 if one else -len(d) % 4
            place = np.arange(n, n + len(d)) if one else np.arange(len(d) + pad)
            parts.append((np.pad(d, (0, pad)), place, np.arange(len(d) + pad) < len(d)))
            n += len(d) + pad
        rows.append([np.concatenate(x) for x in zip(*parts)])
    return [torch.from_numpy(np.stack(x)) for x in zip(*rows)]


def feed(docs, seed, count):
    """Rows made by a thread of their own."""
    q, r = queue.Queue(8), np.random.default_rng(seed)
    def fill():
        while True: q.put([t.pin_memory() if CUDA else t for t in packed_rows(docs, r, count)])
    threading.Thread(target=fill, daemon=True).start()
    return q


def prepared(model, rows, device):
    ids, pos, real = (t.reshape(-1).to(device, non_blocking=True) for t in rows)
    return model.prepare(ids, pos, len(ids) // LENGTH, None, real=real, qsa=True, dtype=torch.float32), real


def redrawn(rows, draw, r):
    """Rows in which the teacher's own draws take the place of a tenth to a half of the tokens; chat marks stay."""
    ids, pos, real = rows
    draw = draw.view(ids.shape).roll(1, 1)
    part = torch.from_numpy(r.choice([.05, .1, .3], (len(ids), 1))).to(ids.device)
    swap = (torch.rand(ids.shape, device=ids.device) < part) & real & (pos > 0) & (ids > 8) & (draw > 8)
    return [torch.where(swap, draw, ids), pos, real]


def run(folder, start, plan, out, seconds, *texts):
    device, seconds = "cuda" if CUDA else "cpu", float(seconds)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(SEED)
    M.FORCE_NAIVE, M.grouped, M.router, M.cpu_gdn = True, grouped, heard_router, delta_rule
    teacher, student = folder_model(folder).to(device), folder_model(folder)
    for p in student.parameters(): p.requires_grad_(False)
    packed = open_gguf(Path(start))
    qs = matched(student, packed, plan, device)
    holders = []
    for q in qs:
        path, leaf = q.name.rsplit(".", 1)
        del student.get_submodule(path)._parameters[leaf]
        holders.append((student.get_submodule(path), leaf, q.value))
    routers = {}
    for i, l in enumerate(student.model.layers):
        w = l.mlp.gate._parameters.pop("weight").detach().to(device).requires_grad_()
        routers[f"blk.{i}.ffn_gate_inp.weight"] = w
        holders.append((l.mlp.gate, "weight", lambda w=w: Bf16.apply(w)))
        assert packed.tensors[f"blk.{i}.ffn_gate_inp.weight"].format.name == "BF16"
    student = student.to(device)
    norms = [(*k.split("|")[:2], int(v)) for k, v in np.load(plan).items() if k.endswith("|vector")]
    trained = {n: student.get_parameter(n).requires_grad_() for _, n, _ in norms}
    with torch.no_grad():
        for tensor, n, plus in norms:
            trained[n].copy_(torch.from_numpy(np.ascontiguousarray(packed.bytes_of(packed.tensors[tensor])).view(np.float32).copy()) - plus)
    print(device, len(norms), "norms,", sum(q.by.numel() * (1 + (q.minimum is not None)) for q in qs) / 1e6, "M scales,", len(qs), "parameters,", sum(q.u.numel() for q in qs) / 1e6, "M codes", flush=True)
    docs, held = [], []
    for t in texts:
        every = read(t)
        held += every[::40]; docs += [d for i, d in enumerate(every) if i % 40]
    long = [d for d in held if len(d) >= 350]
    print(len(docs), "documents,", sum(map(len, docs)), "tokens to learn from,", sum(map(len, held)), "held out,", len(long), "long", flush=True)
    r = np.random.default_rng(SEED)
    judges = [packed_rows(d, np.random.default_rng(1), min(ROWS, n)) for d, n in ((long, 32), (held, 32))]
    if os.environ.get("WATCH"): judges.append(packed_rows_all(read(os.environ["WATCH"])))
    judges = [prepared(teacher, rows, device) for rows in judges]
    fresh = feed(docs, SEED, ROWS - ROWS // 4)
    old = [t.to(device) for t in packed_rows(docs, r, ROWS // 4)]
    table = [q for q in qs if "ngram" in q.name]
    groups = [dict(params=[q.u], rate=RATE * q.gap * (TABLE if q in table else 1)) for q in qs if RATE]
    groups += [dict(params=[x for q in qs for x in (q.by, q.by_minimum) if x is not None], rate=SCALE_RATE), dict(params=list(trained.values()), rate=SMALL_RATE), dict(params=list(routers.values()), rate=ROUTER_RATE)]
    opt = torch.optim.Adam(groups, lr=RATE, betas=(.9, .99), eps=1e-12)
    t0, step, seen, total = time.time(), 0, [], int(setting("STEPS", 10 ** 9))

    @torch.no_grad()
    def judged():
        for mod, leaf, value in holders: setattr(mod, leaf, value())
        return " | ".join("KL %.5f top-1 %.4f routers %.5f" % tuple(float(x) for x in compared(teacher, student, b, real)[:3]) for b, real in judges)
    while True:
        done = max((time.time() - t0) / seconds, step / total)
        if step in (0, 20, 50) or step % 100 == 0 or done >= 1:
            now = torch.stack(seen[-100:]).mean(0).tolist() if seen else [0, 0, 0]
            print("%.0f s step %d learned KL %.5f top-1 %.4f routers %.5f; held out" % (time.time() - t0, step, *now), judged(), flush=True)
        if done >= 1: break
        rows = [torch.cat([a.to(device, non_blocking=True), o]) for a, o in zip(fresh.get(), old)]
        b, real = prepared(teacher, rows, device)
        for mod, leaf, value in holders: setattr(mod, leaf, value())
        kl, same, heard, draw = compared(teacher, student, b, real, True)
        (kl + ROUTERS * heard).backward()
        keep = torch.from_numpy(r.permutation(ROWS)[: ROWS // 4]).to(device)
        old = [t[keep] for t in redrawn(rows, draw, r)]
        for g in opt.param_groups: g["lr"] = g["rate"] * min(1, (step + 1) / 30) * max(0.01, 1 - done)
        opt.step(); opt.zero_grad(set_to_none=True); step += 1
        with torch.no_grad():
            for q in qs: q.u.copy_(torch.minimum(torch.maximum(q.u, q.low), q.high))
        seen.append(torch.stack([kl.detach(), same.float(), heard.detach()]))
    write(start, packed, qs, norms, trained, routers, out)
    if CUDA: print(step, "steps,", torch.cuda.max_memory_allocated() / 2 ** 30, "GiB")


def packed_rows_all(docs):
    """Every document once, a row each."""
    rows = [[np.pad(d, (0, LENGTH - len(d))), np.arange(LENGTH), np.arange(LENGTH) < len(d)] for d in docs]
    return [torch.from_numpy(np.stack(x)) for x in zip(*rows)]


def write(start, packed, qs, norms, trained, routers, out):
    data, changed, total = bytearray(open(start, "rb").read()), 0, 0
    def put(name, new, old=None):
        where = packed.tensors[name].offset
        assert packed.tensors[name].nbytes == len(new) and (old is None or data[where:where + len(new)] == old), name
        data[where:where + len(new)] = new
    for q in qs:
        if "ngram" in q.name: continue      # rows are met rarely: START's table did better on what was held out
        for (name, new), (_, raw, _, _) in zip(q.packed(), q.parts):
            put(name, new.tobytes(), raw.tobytes())
            changed += int((codes(q.fmt, new).w_int != codes(q.fmt, raw).w_int).sum()); total += len(raw) * q.shape[-1]
    for tensor, name, plus in norms:
        put(tensor, (trained[name].detach().cpu().numpy() + np.float32(plus)).astype("<f4").tobytes())
    for tensor, w in routers.items():
        put(tensor, w.detach().bfloat16().view(torch.int16).cpu().numpy().astype("<i2").tobytes())
    open(out, "wb").write(data)
    print(f"{changed} of {total} codes changed ({changed / total:.3%})")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
