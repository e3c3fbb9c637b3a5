"""Small safetensors folders of oracles in the forms that published checkpoints have, and plain formulas for them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file

from oracles.build import Oracle

State = dict[str, torch.Tensor]
Floats = npt.NDArray[np.float32]
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def per_expert(
    state: Mapping[str, torch.Tensor], leaves: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
) -> State:
    """Stacked experts as one tensor per expert and projection."""
    out: State = {}
    for name, tensor in state.items():
        base = name.rsplit(".", 1)[0]
        if name.endswith("experts.gate_up_proj"):
            for e, both in enumerate(tensor):
                half = both.shape[0] // 2
                out[f"{base}.{e}.{leaves[0]}.weight"] = both[:half].contiguous()
                out[f"{base}.{e}.{leaves[1]}.weight"] = both[half:].contiguous()
        elif name.endswith("experts.down_proj"):
            for e, down in enumerate(tensor):
                out[f"{base}.{e}.{leaves[2]}.weight"] = down.contiguous()
        else:
            out[name] = tensor
    return out


def write_folder(
    path: Path, state: Mapping[str, torch.Tensor], config: Mapping[str, Any], nested: bool = False
) -> Path:
    """`nested`: the multimodal form, names under language_model and sizes under text_config."""
    path.mkdir(parents=True)
    names = {
        n: n.replace("model.", "model.language_model.", 1) if nested and n.startswith("model.") else n for n in state
    }
    save_file({names[n]: t.contiguous() for n, t in state.items()}, path / "model.safetensors")
    outer = (
        {"model_type": config["model_type"].removesuffix("_text"), "text_config": dict(config)} if nested else config
    )
    (path / "config.json").write_text(json.dumps(outer))
    return path


def state_of(oracle: Oracle) -> State:
    """The oracle's tensors."""
    return {k: v.detach().clone().contiguous() for k, v in oracle.model.state_dict().items()}


def config_of(oracle: Oracle) -> dict[str, Any]:
    """Its config.json."""
    found: dict[str, Any] = oracle.model.config.to_dict()
    return found


def fp8_blocks(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(float8 codes, one power-of-two scale per 128 x 128, the values that they say) of the last two axes."""
    *front, rows, cols = w.shape
    high, wide = -(-rows // 128), -(-cols // 128)
    padded = torch.zeros(*front, high * 128, wide * 128)
    padded[..., :rows, :cols] = w
    tiles = padded.unflatten(-1, (wide, 128)).unflatten(-3, (high, 128))
    scale = torch.exp2(torch.ceil(torch.log2(tiles.abs().amax(dim=(-1, -3)).clamp(min=1e-9) / 448)))
    spread = scale.repeat_interleave(128, -2).repeat_interleave(128, -1)[..., :rows, :cols]
    codes = (w / spread).to(torch.float8_e4m3fn)
    return codes, scale, codes.float() * spread


def nvfp4(w: torch.Tensor, second: float = 2.0**-6) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(packed pairs, float8 scales, second scale, values) by the definition: w = e2m1 * scale * second."""
    groups = (w / second).unflatten(-1, (w.shape[-1] // 16, 16))
    scale = (groups.abs().amax(-1) / 6).clamp(min=2.0**-6).to(torch.float8_e4m3fn)
    codes = (groups / scale.float()[..., None]).unsqueeze(-1).sub(E2M1).abs().argmin(-1)
    values = (E2M1[codes] * scale.float()[..., None] * second).flatten(-2)
    flat = codes.flatten(-2).to(torch.uint8)
    return flat[..., 0::2] | flat[..., 1::2] << 4, scale, torch.tensor(second), values.reshape(w.shape)
