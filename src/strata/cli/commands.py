"""The table of commands: where each lives, what it is for, and how one could ask it."""

from collections.abc import Mapping
from typing import NamedTuple


class Command(NamedTuple):
    """Where a command lives."""

    module: str
    function: str
    help: str
    examples: tuple[tuple[str, str], ...] = ()
    """(words behind `strata`, what they do)"""


_TALK = {
    "serve": Command(
        "strata.cli.serve",
        "serve",
        "Serve a model over HTTP: OpenAI's and Anthropic's APIs, and a page at /.",
        (
            ("serve", "the packaged demo at http://127.0.0.1:8080"),
            ("serve model.gguf --port 9000 --parallel 8", "a file, for eight conversations at once"),
            ("serve Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M", "a model of the hub, downloaded first"),
            ("serve model.gguf --host 0.0.0.0 --api-key secret", "for other machines, who must send the key"),
        ),
    ),
    "run": Command(
        "strata.cli.run",
        "run",
        "Answer one prompt.",
        (
            ('run -p "What is the capital of France?"', "the answer on stdout, figures on stderr"),
            (
                'run model.gguf -p "What does this do?" < main.py',
                "about a file: what stdin brings goes before the prompt",
            ),
            ("run model.gguf -p - --json < question.txt", "the prompt itself from stdin, the answer as JSON"),
        ),
    ),
    "chat": Command(
        "strata.cli.chat",
        "chat",
        "Chat in the terminal.",
        (
            ("chat", "with the demo"),
            ('chat model.gguf --system "Answer in French." --temp 0.7', "with a system message, answers drawn"),
            ("chat model.gguf < questions.txt", "every line a question of one conversation"),
        ),
    ),
    "launch": Command(
        "strata.cli.launch",
        "launch",
        "Start claude, codex or opencode on a running server.",
        (
            ("launch claude", "on http://127.0.0.1:8080"),
            ("launch codex --print", "show what would be started"),
            ("launch opencode --url http://box:8080 -- --help", "on another machine; what follows -- is the agent's"),
        ),
    ),
}
_MODELS = {
    "pull": Command(
        "strata.cli.models",
        "pull",
        "Download a model from the hub: org/name[:QUANT].",
        (("pull Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M", "one of a repository's files; again, it goes on where it broke off"),),
    ),
    "list": Command(
        "strata.cli.models",
        "list_",
        "List the models that were downloaded, or what a repository has.",
        (
            ("list", "what is here"),
            ("list Qwen/Qwen3-30B-A3B-GGUF", "what the hub offers, with sizes"),
        ),
    ),
    "rm": Command(
        "strata.cli.models",
        "rm",
        "Take a downloaded model away.",
        (("rm Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M --yes", "that file, without a question"),),
    ),
    "inspect": Command(
        "strata.cli.inspect",
        "inspect",
        "Show what is inside a model's files.",
        (
            ("inspect model.gguf --tensors all --filter exps", "all tensors whose name has exps"),
            ("inspect Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M --json", "from the headers on the hub, before a download"),
        ),
    ),
}
_MACHINE = {
    "plan": Command(
        "strata.cli.plan",
        "plan",
        "What goes where and why, and how fast it will be; before a download, too.",
        (
            ("plan model.gguf --vram-gib 12", "with 12 GiB of VRAM for experts"),
            ("plan Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M", "from the headers on the hub"),
        ),
    ),
    "calibrate": Command(
        "strata.cli.plan",
        "calibrate",
        "Measure this machine's rates, which plans are made from.",
        (("calibrate --format Q4_K --format IQ3_S", "memory, and products in two formats"),),
    ),
    "doctor": Command(
        "strata.cli.doctor",
        "doctor",
        "What this machine has, what is missing, and what to do.",
        (("doctor --json", "for a bug report"),),
    ),
}
_FILES = {
    "convert": Command(
        "strata.cli.convert",
        "convert",
        "Write a safetensors folder as one GGUF file.",
        (("convert model-folder model.gguf --type BF16", "matrices in BF16"),),
    ),
    "quantize": Command(
        "strata.cli.quantize",
        "quantize",
        "Write a model with its matrices in other formats.",
        (
            ("quantize model.gguf small.gguf --type Q4_K --down-type IQ4_NL", "another format for down projections"),
            ("quantize model.gguf small.gguf --type IQ3_S --calibrate text.txt", "weighed by what a text uses"),
        ),
    ),
    "vocab": Command(
        "strata.cli.vocab",
        "vocab",
        "Choose the tokens that drafts are made of, from texts.",
        (("vocab model.gguf chats.txt --out ids.txt", "for --draft-vocab ids.txt"),),
    ),
    "synth": Command(
        "strata.cli.synth",
        "synth",
        "Write a random model of a published shape, for benchmarks.",
        (("synth random.gguf --arch qwen3moe --type Q4_K --scale real --layers 4", "four layers of the real width"),),
    ),
}
_CHECKS = {
    "parity": Command(
        "strata.cli.parity",
        "parity",
        "Compare a model op by op with a second opinion.",
        (('parity model.gguf -p "Once upon a time"', "on a text; exit 1 names the first operation that is off"),),
    ),
    "check equalities": Command(
        "strata.cli.check",
        "equalities",
        "Slots, chunks, drafts, snapshots change no bit.",
        (("check equalities model.gguf --tiers", "with experts in VRAM, over PCIe and on the CPU, too"),),
    ),
    "check batch": Command(
        "strata.cli.check_batch",
        "batch",
        "Streams that share steps say what they say alone.",
        (("check batch model.gguf --n 8", "eight requests"),),
    ),
    "check interleave": Command(
        "strata.cli.check_crowd",
        "interleave",
        "Prompts are read beside streams, short first.",
        (("check interleave model.gguf --long 8000", "beside a prompt of 8,000 tokens"),),
    ),
    "check parking": Command(
        "strata.cli.check_crowd",
        "parking",
        "Conversations come back from RAM and disk exactly.",
        (("check parking model.gguf --state-dir /mnt/disk", "on that disk"),),
    ),
    "check early-close": Command(
        "strata.cli.check_crowd",
        "early_close",
        "Who leaves frees its slot at once.",
        (("check early-close model.gguf --break", "see the check fail"),),
    ),
    "check perplexity": Command(
        "strata.cli.check",
        "perplexity",
        "Perplexity of a text, as llama-perplexity has it.",
        (("check perplexity model.gguf --text wiki.test.raw --chunks 20", "its first 20 chunks"),),
    ),
}
_BENCHMARKS = {
    "bench decode": Command(
        "strata.cli.bench",
        "decode",
        "Tokens per second of decoding.",
        (("bench decode model.gguf --context 4096 --slots 1 --slots 4", "one stream and four, behind 4,096 tokens"),),
    ),
    "bench prompt": Command(
        "strata.cli.bench",
        "prompt",
        "Tokens per second of reading a prompt.",
        (("bench prompt model.gguf --context 512 --context 4096", "two lengths"),),
    ),
    "bench serve": Command(
        "strata.cli.bench_serve",
        "serve",
        "Clients against a server: first tokens, gaps, rates.",
        (("bench serve --url http://127.0.0.1:8080 --clients 8", "against a server that runs"),),
    ),
    "bench soak": Command(
        "strata.cli.bench_serve",
        "soak",
        "Random load for minutes: nothing lost, wrong or leaked.",
        (("bench soak model.gguf --minutes 30", "half an hour; exit 1 when anything was"),),
    ),
    "bench join": Command(
        "strata.cli.bench_join",
        "join_",
        "Gaps of streams that cold prompts join, and overtaking.",
        (("bench join model.gguf --prompt 4096 --streams 4", "a prompt of 4,096 tokens beside four streams"),),
    ),
    "bench turns": Command(
        "strata.cli.bench_join",
        "turns",
        "First tokens of next turns whose history is held.",
        (("bench turns model.gguf --history 16000", "behind 16,000 tokens"),),
    ),
    "bench ab": Command(
        "strata.cli.bench_ab",
        "ab",
        "Two settings or two builds in turn, and whether they differ.",
        (
            ('bench ab model.gguf --a "--threads 4" --b "--threads 8"', "two settings"),
            ("bench ab model.gguf --draft auto,off", "what drafts gain"),
        ),
    ),
    "bench kernels": Command(
        "strata.cli.bench_kernels",
        "kernels",
        "GB/s and GMAC/s of single kernels.",
        (("bench kernels --only experts --format Q4_K --rows 1 --rows 8", "the experts' product, one row and eight"),),
    ),
}
_PARTS = {
    "engine": Command(
        "strata.cli.engine",
        "engine",
        "The engine alone: its line protocol on stdin and stdout.",
        (('engine model.gguf <<< "STAT"', "its status; the protocol is in docs/reference/engine-protocol.md"),),
    ),
}

GROUPS: Mapping[str, Mapping[str, Command]] = {
    "Talk to a model": _TALK,
    "Models": _MODELS,
    "This machine": _MACHINE,
    "Files": _FILES,
    "Checks": _CHECKS,
    "Benchmarks": _BENCHMARKS,
    "Parts": _PARTS,
}

COMMANDS: Mapping[str, Command] = {name: command for group in GROUPS.values() for name, command in group.items()}
"""A new command is one entry above; its name is one word or two."""
