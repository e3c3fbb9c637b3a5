"""What the user asked for, before a plan turns every "auto" into a value with a reason. Pure."""

from dataclasses import dataclass
from typing import Literal

from strata.plan.setting import flag_of, setting, settings_of


@dataclass(frozen=True, slots=True)
class Wishes:
    """Settings of the engine and the defaults of its requests. None stands for the word in the setting's help."""

    ctx_size: int | None = setting(
        None,
        "Tokens one conversation can hold; auto = what the model was made for, as far as it fits.",
        kind="integer",
        absent="auto",
        low=16,
        high=1 << 24,
    )
    parallel: int | Literal["auto"] = setting(
        "auto",
        "Conversations served at once; auto = what the plan recommends.",
        kind="integer",
        word="auto",
        low=1,
        high=64,
        aliases=("slots",),
    )
    threads: int | Literal["auto"] = setting(
        "auto", "CPU threads; auto = one per physical core.", kind="integer", word="auto", low=1, high=1024
    )
    isa: Literal["auto", "portable", "avx2", "avx512", "naive"] = setting(
        "auto",
        "CPU instructions; every choice gives the same bits.",
        choices=("auto", "portable", "avx2", "avx512", "naive"),
    )
    prompt_chunk: int | Literal["auto"] = setting(
        "auto", "Prompt tokens read per step.", kind="integer", word="auto", low=1, high=65536
    )
    max_gap_ms: int = setting(
        250,
        "Longest wait of a running stream for its next token while prompts are read, in ms (three decode steps, if "
        "that is longer).",
        kind="integer",
        low=0,
        high=60_000,
    )
    max_wait_s: float = setting(
        30.0,
        "Seconds after which a waiting prompt is overtaken by shorter ones no more.",
        kind="number",
        low=0.0,
        high=86_400.0,
    )
    queue_limit: int = setting(
        256, "Requests that may wait for a slot; more are told to come again later.", kind="integer", low=0, high=65536
    )
    stall_s: float = setting(
        600.0,
        "Seconds after which a step that does not return ends the engine process; the server starts it again.",
        kind="number",
        low=1.0,
        high=86_400.0,
    )
    kv_type: Literal["f32", "bf16", "int8"] = setting(
        "f32",
        "How attention keys and values are kept; bf16 halves their memory and the reading at long contexts, int8 takes "
        "28%; both round what is written.",
        choices=("f32", "bf16", "int8"),
        unbuilt=("f16", "k8v4"),
    )
    kv_gib: float | None = setting(
        None,
        "Memory for the pages that all conversations share in GiB; auto = what the room for states holds.",
        kind="number",
        absent="auto",
        low=0.0,
        high=65536.0,
    )
    ram_gib: float | None = setting(
        None,
        "RAM for the model's weights in GiB, with a GPU what may be pinned of them; mapped = the operating system's "
        "page cache decides.",
        kind="number",
        absent="mapped",
        low=0.0,
    )
    state_ram_gib: float | Literal["auto"] = setting(
        "auto",
        "RAM for kept conversations beside the pages in GiB; auto = a tenth of what is free.",
        kind="number",
        word="auto",
        low=0.0,
        high=65536.0,
    )
    state_disk_gib: float = setting(
        0.0,
        "Disk for the conversations of one model in GiB, which a restart finds again; 0 = none.",
        kind="number",
        low=0.0,
        high=1048576.0,
    )
    state_dir: str = setting("~/.cache/strata/conversations", "Folder of those conversations.")
    warm: Literal["auto", "no"] = setting(
        "auto",
        "Read the model's file into memory before the first request; auto = if it fits there.",
        choices=("auto", "no"),
    )
    device: Literal["auto", "cpu", "cuda", "emulator"] = setting(
        "auto",
        "Where the model runs; auto = an NVIDIA GPU when there is one that can be used. Every choice gives the same "
        "tokens. emulator runs the GPU's kernels on the CPU, for tests, very slowly.",
        choices=("auto", "cpu", "cuda", "emulator"),
    )
    cache_dir: str = setting("~/.cache/strata", "Folder of compiled GPU kernels and of what was learned about experts.")
    vram_gib: float | None = setting(
        None,
        "VRAM for experts in GiB; auto = what is left behind weights, states and the reserve.",
        kind="number",
        absent="auto",
        low=0.0,
    )
    vram_reserve_mib: int | None = setting(
        None, "VRAM left free in MiB; auto = 1024.", kind="integer", absent="auto", low=0, high=1 << 24
    )
    pcie_share: float | None = setting(
        None,
        "Share, 0 to 1, of the missing experts that the GPU reads over PCIe, the CPU computes the others; auto = "
        "measured.",
        kind="number",
        absent="auto",
        low=0.0,
        high=1.0,
    )
    adapt_every: int = setting(
        16, "Steps between two rounds of moving experts into VRAM, 0 = never.", kind="integer", low=0, high=1 << 20
    )
    adapt_swaps: int = setting(32, "Experts that a round moves at most.", kind="integer", low=0, high=4096)
    adapt_decay: float = setting(
        0.8, "What a count of uses keeps from one round to the next.", kind="number", low=0.0, high=1.0
    )
    adapt_min_gain: float = setting(
        0.3,
        "How much more than the expert that leaves VRAM the one that comes must have been used.",
        kind="number",
        low=0.0,
        high=100.0,
    )
    adapt_async: bool = setting(True, "Move experts beside the steps.", kind="switch")
    draft: str = setting(
        "auto",
        "Tokens drafted ahead for every stream and checked in one step: auto = as many as pay, off, or a number. The "
        "answer does not depend on it.",
    )
    mtp: str | None = setting(
        None, "File with the model's drafting head (mtp-*.gguf), where its own file has none.", absent="model"
    )
    draft_vocab: str = setting(
        "auto",
        "Tokens that the drafting head proposes: auto = as the file says, else the most frequent quarter; full, N, or "
        "a file of ids (strata vocab).",
    )
    price: float = setting(
        0.0,
        "Microseconds that each distinct expert of a step is taken to cost, beside what steps are measured to take; "
        "for tests of drafts.",
        kind="number",
        low=0.0,
        high=1e9,
    )
    routing_trace: str | None = setting(
        None,
        "File with the experts that tokens visit, in place of the router's choice; for measurements.",
        absent="router",
    )
    temp: float | None = setting(
        None,
        "Sampling temperature, 0 = greedy; model = what the model's files recommend, else 0.",
        kind="number",
        absent="model",
        low=0.0,
        high=100.0,
    )
    top_k: int | None = setting(
        None, "Draw among the K likeliest tokens, 0 = all.", kind="integer", absent="model", low=0, high=(1 << 31) - 1
    )
    top_p: float | None = setting(
        None, "Draw among the likeliest tokens that sum to P.", kind="number", absent="model", low=0.0, high=1.0
    )
    min_p: float | None = setting(
        None, "Drop tokens below P times the likeliest.", kind="number", absent="model", low=0.0, high=1.0
    )
    repeat_penalty: float | None = setting(
        None, "Weakens tokens seen before, 1 = off.", kind="number", absent="model", low=0.01, high=100.0
    )
    presence_penalty: float = setting(
        0.0, "Subtracted once from tokens of the answer.", kind="number", low=-100.0, high=100.0
    )
    frequency_penalty: float = setting(0.0, "Subtracted per use in the answer.", kind="number", low=-100.0, high=100.0)
    seed: int | None = setting(
        None,
        "Seed of the draws; random = new per answer.",
        kind="integer",
        absent="random",
        low=0,
        high=2**64 - 1,
    )
    max_tokens: int | None = setting(
        None, "Answer tokens at most; context = up to the end of it.", kind="integer", absent="context", low=1
    )
    log_level: str = setting("info", "Least severity of log lines.", choices=("debug", "info", "warning", "error"))
    log_format: Literal["text", "json"] = setting(
        "text", "Form of log lines; json = one object a line, for programs that gather them.", choices=("text", "json")
    )

    def __post_init__(self) -> None:
        for name, rule in settings_of(type(self)).items():
            rule.check(getattr(self, name), flag_of(name))
