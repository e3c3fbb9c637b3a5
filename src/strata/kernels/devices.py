"""Devices by name. A GPU's module is imported here alone and late: its bindings exist only where such a GPU is used."""

import importlib
from pathlib import Path

from strata.core.errors import UsageError
from strata.kernels.device import Device
from strata.kernels.host_device import HostDevice


def open_device(name: str, cache: Path) -> Device:
    """ "cuda", "cuda:1" or "emulator"; `cache` is the folder of compiled kernels. UsageError for any other name."""
    if name == "emulator":
        return HostDevice()
    kind, _, index = name.partition(":")
    if kind != "cuda" or not (index or "0").isdigit():
        raise UsageError(f"--device {name}: no such device", "use cuda, cuda:1 (and so on) or emulator")
    try:
        module = importlib.import_module("strata.kernels.cuda_device")
    except ImportError as error:
        raise UsageError(f"--device {name}: {error}", "install torch with CUDA, which brings cuda-bindings") from error
    device: Device = module.CudaDevice(cache, int(index or 0))
    return device
