"""Which device a model gets, on machines with and without a GPU."""

import pytest

from strata.core.errors import UsageError
from strata.plan.wishes import Wishes
from strata.runtime import on_device
from strata.runtime.on_device import Found, find_device, no_cuda


@pytest.fixture
def with_gpu(monkeypatch):
    monkeypatch.setattr(on_device, "no_cuda", lambda: "")


@pytest.fixture
def without_gpu(monkeypatch):
    monkeypatch.setattr(on_device, "no_cuda", lambda: "torch finds none")


def test_auto_takes_a_gpu_that_is_there(with_gpu):
    assert find_device(Wishes()) == Found("cuda", "a GPU that can be used")
    assert find_device(Wishes(device="cpu")) == Found("cpu", "as asked")
    assert find_device(Wishes(device="cuda")) == Found("cuda", "as asked")


def test_auto_without_a_gpu_is_the_cpu_and_says_why(without_gpu):
    assert find_device(Wishes()) == Found("cpu", "torch finds none")
    assert find_device(Wishes(device="emulator")).device == "emulator"
    with pytest.raises(UsageError, match=r"--device cuda: torch finds none"):
        find_device(Wishes(device="cuda"))


def test_the_naive_operations_keep_to_the_cpu(with_gpu):
    assert find_device(Wishes(isa="naive")).device == "cpu"
    with pytest.raises(UsageError, match=r"--device cuda: the naive operations run on the CPU"):
        find_device(Wishes(isa="naive", device="cuda"))


def test_why_there_is_none(monkeypatch):
    cuda = on_device.torch.cuda

    def too_old():
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 11040).\nPlease update it")

    monkeypatch.setattr(on_device.torch.version, "cuda", None)
    assert no_cuda().endswith("is built without CUDA")
    monkeypatch.setattr(on_device.torch.version, "cuda", "13.0")
    monkeypatch.setattr(cuda, "init", too_old)
    assert no_cuda() == "The NVIDIA driver on your system is too old (found version 11040)."
    monkeypatch.setattr(cuda, "init", lambda: None)
    monkeypatch.setattr(on_device.importlib.util, "find_spec", lambda name: None)
    assert "cuda-bindings" in no_cuda()
    monkeypatch.setattr(on_device.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(cuda, "get_device_name", lambda: "an old card")
    monkeypatch.setattr(cuda, "get_device_capability", lambda: (6, 1))
    assert no_cuda() == "an old card has compute capability 6.1, 8.0 or more is needed"
    monkeypatch.setattr(cuda, "get_device_capability", lambda: (9, 0))
    assert no_cuda() == ""
