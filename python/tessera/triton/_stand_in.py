"""Tensors of the host where scripts say "cuda": for machines without a GPU.

A mode of PyTorch gives its functions the CPU where they are given a CUDA device, and torch.cuda answers as with one GPU. Launches compute on
the host.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

from . import _jit
from .runtime import Utils

CAPABILITY = (9, 0)  # that scripts see
class Event:
    """torch.cuda.Event: a time of the host."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        self.at = 0.0

    def record(self, stream: Any = None) -> None:
        """Takes the time."""
        import time

        self.at = time.perf_counter()

    def synchronize(self) -> None:
        """Nothing."""

    wait = query = synchronize

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds up to another event."""
        return (other.at - self.at) * 1e3


class Stream:
    """torch.cuda.Stream: the host's order."""

    cuda_stream = 0
    device = None

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def synchronize(self) -> None:
        """Nothing."""

    wait_stream = wait_event = record_event = lambda self, *a: None  # noqa: E731


def host(device: Any) -> Any:
    """A device, or the CPU in the place of a GPU."""
    torch = sys.modules["torch"]
    if isinstance(device, torch.device):
        return torch.device("cpu") if device.type == "cuda" else device
    if isinstance(device, str) and device.split(":")[0] == "cuda":
        return "cpu"
    return device


def _mode() -> Any:
    """The mode that every function of PyTorch passes: devices in its arguments become the host's."""
    import torch
    from torch.overrides import TorchFunctionMode

    here = (torch.Tensor.cuda, torch.Tensor.pin_memory)
    is_cuda = torch.Tensor.is_cuda.__get__  # type: ignore[attr-defined]

    class OnHost(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            keywords = dict(kwargs or {})
            if func in here:
                return args[0]
            if func == is_cuda:
                return True
            arguments = tuple(host(a) if isinstance(a, (str, torch.device)) else a for a in args)
            if keywords.get("device") is not None:
                keywords["device"] = host("cuda" if type(keywords["device"]) is int else keywords["device"])
            keywords.pop("pin_memory", None)
            return func(*arguments, **keywords)

    return OnHost()


def stand_in() -> None:
    """Makes PyTorch's CPU stand in for a GPU, in this thread. PyTorch is imported here, because scripts use it."""
    import torch

    if _jit._stand_in:
        return
    _jit._stand_in = True
    _mode().__enter__()

    class Generator(torch.Generator):
        """A generator of the host's random numbers."""

        def __new__(cls, device: Any = "cpu") -> Any:
            return super().__new__(cls, device=host(device))  # type: ignore[call-arg]

        def __init__(self, device: Any = "cpu") -> None:
            super().__init__()

    torch.Generator = Generator  # type: ignore[misc]
    _answer(torch.cuda)


class _Guard:
    """torch.cuda.device: nothing changes."""

    def __init__(self, *arguments: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        pass


def _answer(cuda: Any) -> None:
    """Gives torch.cuda the answers of the stand-in."""
    known = Utils.get_device_properties()
    properties = SimpleNamespace(
        name="CPU in the place of a GPU", major=CAPABILITY[0], minor=CAPABILITY[1], multi_processor_count=known["multiprocessor_count"], total_memory=1 << 36,
        warp_size=32, L2_cache_size=50 << 20, max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536, shared_memory_per_block=49152,
        shared_memory_per_block_optin=known["max_shared_mem"], shared_memory_per_multiprocessor=known["max_shared_mem"], gcnArchName="",
    )  # fmt: skip
    nothing = lambda *a, **k: None  # noqa: E731
    answers: dict[str, Any] = {
        "is_available": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0, "get_device_capability": lambda *a: CAPABILITY,
        "get_device_name": lambda *a: properties.name, "get_device_properties": lambda *a: properties, "synchronize": nothing, "set_device": nothing,
        "empty_cache": nothing, "manual_seed": nothing, "manual_seed_all": nothing, "is_initialized": lambda: True, "init": nothing, "is_bf16_supported": lambda *a, **k: True,
        "current_stream": lambda *a: Stream(), "default_stream": lambda *a: Stream(), "stream": lambda *a: Stream(), "set_stream": nothing, "Stream": Stream, "Event": Event, "device": _Guard,
        "device_of": _Guard, "reset_peak_memory_stats": nothing, "max_memory_allocated": lambda *a: 0, "memory_allocated": lambda *a: 0, "mem_get_info": lambda *a: (1 << 36, 1 << 36),
        "is_current_stream_capturing": lambda: False,
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(cuda, name, answer if isinstance(answer, type) else _alone(answer))


def _alone(answer: Any) -> Any:
    """A function of its own, because PyTorch's compiler knows functions by identity."""
    return lambda *arguments, **keywords: answer(*arguments, **keywords)
