"""How settings are grouped where flags are listed, and a value that one could give to each."""

from collections.abc import Mapping

PANELS: Mapping[str, Mapping[str, str]] = {
    "Server": {
        "host": "0.0.0.0",
        "port": "9000",
        "api_key": "secret",
        "insecure": "",
        "allow_origin": "https://chat.example.org",
        "alias": "assistant",
        "body_mib": "64",
        "keep_alive_s": "15",
        "idle_unload": "600",
        "drain_seconds": "60",
    },
    "Conversations": {
        "ctx_size": "32768",
        "parallel": "8",
        "kv_type": "bf16",
        "kv_gib": "4",
        "state_ram_gib": "8",
        "state_disk_gib": "50",
        "state_dir": "/var/lib/strata",
    },
    "Answers": {
        "max_tokens": "1024",
        "temp": "0.7",
        "top_k": "40",
        "top_p": "0.95",
        "min_p": "0.05",
        "repeat_penalty": "1.1",
        "presence_penalty": "0.5",
        "frequency_penalty": "0.5",
        "seed": "7",
    },
    "Who runs next": {
        "max_gap_ms": "100",
        "max_wait_s": "60",
        "queue_limit": "32",
        "prompt_chunk": "512",
        "stall_s": "120",
    },
    "Machine": {
        "device": "cpu",
        "threads": "8",
        "isa": "avx2",
        "ram_gib": "48",
        "warm": "no",
        "cache_dir": "/var/cache/strata",
    },
    "GPU": {
        "vram_gib": "12",
        "vram_reserve_mib": "2048",
        "pcie_share": "0.5",
        "adapt_every": "64",
        "adapt_swaps": "8",
        "adapt_decay": "0.9",
        "adapt_min_gain": "0.5",
        "adapt_async": "",
    },
    "Drafts": {
        "draft": "off",
        "mtp": "mtp-model.gguf",
        "draft_vocab": "ids.txt",
        "price": "50",
    },
    "Other": {
        "config": "strata.toml",
        "log_level": "warning",
        "log_format": "json",
        "routing_trace": "trace.bin",
    },
}
"""Panel -> setting -> example; a switch has none."""

OTHER = "Other"
"""The panel of a setting that the table does not have yet."""


def panel_of(name: str) -> str:
    """The panel of a setting."""
    return next((panel for panel, names in PANELS.items() if name in names), OTHER)


def example_of(name: str) -> str:
    """A value for it; "" for a switch."""
    return next((names[name] for names in PANELS.values() if name in names), "")
