"""The C++ extension (csrc/bind.cpp). Addresses are those of contiguous arrays; the callers in cpu.py check them."""

WeightTuple = tuple[int, int, int, int, int, float]
"""Format code, rows, cols, address of planes[0], address of planes[1] or 0, scale."""

class Native:
    def __init__(self, threads: int, isa: str) -> None: ...
    @property
    def threads(self) -> int: ...
    @property
    def asleep(self) -> int: ...
    @property
    def isa(self) -> str: ...
    @property
    def distinct_experts(self) -> int: ...
    @property
    def expert_bytes(self) -> int: ...
    @property
    def missing_bytes(self) -> int: ...
    @property
    def product_bytes(self) -> int: ...

class Program:
    def __init__(self) -> None: ...
    def begin(self, native: Native) -> None: ...
    def end(self, native: Native) -> None: ...
    def run(self, native: Native) -> None: ...
    def run_apart(self, native: Native) -> None: ...
    def finish(self, native: Native) -> None: ...
    def run_timed(self, native: Native) -> None: ...
    def times(self) -> list[tuple[str, int]]: ...
    def __len__(self) -> int: ...

class Bank:
    def __init__(self, gate: list[WeightTuple], up: list[WeightTuple], down: list[WeightTuple]) -> None: ...
    def uses(self) -> list[int]: ...

class Answerer:
    """See kernels/rendezvous/answerer.py."""

    def __init__(
        self,
        native: Native,
        banks: dict[int, Bank],
        box: int,
        ids: int,
        x: int,
        answers: int,
        most_rows: int,
        most_entries: int,
        hidden: int,
        spin_us: int,
    ) -> None: ...
    def drain(self) -> list[tuple[int, int, int, int, int]]: ...
    def failure(self) -> str: ...
    def stall(self, on: bool) -> None: ...
    def use(self, layer: int, bank: Bank) -> None: ...

mailbox_bytes: int

def experts_apart(native: Native, bank: Bank, x: int, rows: int, ids: int, top_k: int, outputs: int) -> int: ...
def exercise(native: Native, chunks: int, rounds: int, fail: int, out: int) -> None: ...
def exercise_hot(native: Native, rounds: int, pause_us: int, hot: bool) -> int: ...
def advise_huge(data: int, nbytes: int, /) -> bool: ...
def populate(data: int, nbytes: int, /) -> int: ...
def resident(data: int, nbytes: int, /) -> int: ...
def set_memory_policy(nodes: list[int], /) -> int: ...
def format_table() -> list[tuple[str, int, int, int, bool]]: ...
def linear(native: Native, x: int, rows: int, cols: int, weights: list[WeightTuple], outputs: list[int]) -> None: ...
def experts(native: Native, bank: Bank, x: int, rows: int, ids: int, factors: int, top_k: int, y: int) -> None: ...
def embed(native: Native, shards: list[WeightTuple], ids: int, count: int, y: int) -> None: ...
def probe(native: Native, kind: str, weight: WeightTuple, x: int, y: int) -> None: ...
def activate(native: Native, kind: int, x: int, divisor: float, factor: float, y: int, count: int) -> None: ...

# Layer operations (csrc/layers_bind.cpp).
# A plane is (data, table, pages, page, slots, pages per slot, heads, values per head, type, scales or 0).
Plane = tuple[int, int, int, int, int, int, int, int, int, int]

def rms_norm(
    native: Native, x: int, weight: int, y: int, groups: int, group: int, weight_len: int, eps: float, /
) -> None: ...
def l2_norm(native: Native, x: int, y: int, rows: int, dim: int, eps: float, scale: float, /) -> None: ...
def row_dot(native: Native, a: int, b: int, y: int, rows: int, dim: int, /) -> None: ...
def rope(
    native: Native, x: int, cos: int, sin: int, y: int, rows: int, heads: int, dim: int, half: int, pairs: bool, /
) -> None: ...
def attention(
    native: Native,
    q: int,
    out: int,
    keys: Plane,
    values: Plane,
    slot: int,
    position: int,
    rows: int,
    heads: int,
    kv_heads: int,
    dim: int,
    scale: float,
    /,
) -> None: ...
def sparse_attention(
    native: Native,
    q: int,
    out: int,
    keys: Plane,
    values: Plane,
    slot: int,
    positions: int,
    count: int,
    list_width: int,
    rows: int,
    heads: int,
    kv_heads: int,
    dim: int,
    scale: float,
    /,
) -> None: ...
def select_blocks(
    native: Native,
    q: int,
    keys: Plane,
    slot: int,
    position: int,
    rows: int,
    heads: int,
    dim: int,
    ratio: int,
    budget: int,
    positions: int,
    count: int,
    /,
) -> None: ...
def cache_write(native: Native, plane: Plane, slots: int, entries: int, x: int, n: int, /) -> None: ...
def pool_blocks(native: Native, raw: Plane, slots: int, blocks: int, n: int, ratio: int, out: int, /) -> None: ...
def causal_conv(
    native: Native,
    x: int,
    weight: int,
    history: int,
    out: int,
    segments: int,
    held: int,
    num_segments: int,
    slots: int,
    rows: int,
    channels: int,
    taps: int,
    dilation: int,
    /,
) -> None: ...
def carry_rows(
    native: Native,
    x: int,
    history: int,
    segments: int,
    num_segments: int,
    slots: int,
    rows: int,
    channels: int,
    span: int,
    /,
) -> None: ...
def delta_rule(
    native: Native,
    qkv: int,
    beta: int,
    decay: int,
    state: int,
    out: int,
    segments: int,
    held: int,
    num_segments: int,
    slots: int,
    rows: int,
    key_heads: int,
    value_heads: int,
    key_dim: int,
    value_dim: int,
    tiled: bool,
    eps: float,
    scale: float,
    /,
) -> None: ...
def route(
    native: Native, logits: int, ids: int, weights: int, rows: int, experts: int, top_k: int, renormalise: bool, /
) -> None: ...
def stream_mix(native: Native, gate: int, x: int, y: int, rows: int, streams: int, hidden: int, /) -> None: ...
def stream_add(
    native: Native,
    residual: int,
    y: int,
    gates: int,
    divisor: float,
    factor: float,
    out: int,
    rows: int,
    streams: int,
    hidden: int,
    /,
) -> None: ...

# Elementwise arithmetic (csrc/elementwise_bind.cpp).
def add(native: Native, x: int, y: int, out: int, count: int, /) -> None: ...
def divide(native: Native, x: int, by: float, out: int, count: int, /) -> None: ...
def multiply(native: Native, x: int, by: float, out: int, count: int, /) -> None: ...
def gate(native: Native, kind: int, g: int, x: int, out: int, count: int, /) -> None: ...
def signed_root(native: Native, x: int, least: float, out: int, count: int, /) -> None: ...
def delta_rates(
    native: Native, b: int, a: int, rate: int, bias: int, beta: int, decay: int, rows: int, heads: int, /
) -> None: ...
def spread(native: Native, weights: int, x: int, out: int, rows: int, streams: int, hidden: int, /) -> None: ...

# The choice of a token (csrc/choose_bind.cpp).
def choose(
    native: Native,
    logits: int,
    count: int,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    uniform: float,
    /,
) -> int: ...

# Copies, positions and hashes (csrc/rows_bind.cpp).
# A view is (address, sizes of its last three axes, strides of all four).
View = tuple[int, list[int], list[int]]

def join(native: Native, views: list[View], out: int, rows: int, /) -> None: ...
def take_rows(native: Native, x: int, index: int, out: int, rows: int, count: int, width: int, /) -> None: ...
def rope_angles(
    native: Native, positions: int, frequencies: int, cos: int, sin: int, rows: int, half: int, /
) -> None: ...
def completed_blocks(native: Native, positions: int, blocks: int, starts: int, rows: int, ratio: int, /) -> None: ...
def ngram_rows(
    native: Native,
    tokens: int,
    slots: int,
    context: int,
    slot: int,
    position: int,
    rows: int,
    multipliers: list[int],
    sizes: list[int],
    offsets: list[int],
    end_of_text: int,
    out: int,
    /,
) -> None: ...
