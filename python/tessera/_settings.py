"""PyTorch's settings that decide how code computes: read when a graph is compiled, and again in each call."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ._options import Options


class Settings(NamedTuple):
    """The settings that compiled code depends on besides the graph."""

    tf32: str  # "off", "conv", "matmul" or "all"
    deterministic: bool
    threads: int
    further: tuple[tuple[str, object], ...]  # Options.further


# The option's value by whether PyTorch rounds operands to TF32 in (convolutions, products).
_TF32 = {(False, False): "off", (True, False): "conv", (False, True): "matmul", (True, True): "all"}
_precision = torch._C._get_fp32_precision_getter


def _tf32() -> str:
    return _TF32[_precision("cuda", "conv") == "tf32", _precision("cuda", "matmul") == "tf32"]


def current(options: Options, cuda: bool, threads: int = 0) -> Settings:
    """`options`, where they say something, else PyTorch's settings. cuda: for a GPU. threads: in place of PyTorch's number."""
    tf32 = "off" if not cuda else _tf32() if options.tf32 == "auto" else options.tf32
    deterministic = options.deterministic or torch._C._get_deterministic_algorithms()
    return Settings(tf32, deterministic, options.threads or threads or torch.get_num_threads(), options.further)
