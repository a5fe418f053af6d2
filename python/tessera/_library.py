"""The library for PyTorch's tensors."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from . import _native
from ._settings import Settings

# Numbers of onnx.TensorProto.DataType.
DTYPES = {
    torch.float32: 1, torch.uint8: 2, torch.int8: 3, torch.uint16: 4, torch.int16: 5, torch.int32: 6, torch.int64: 7,
    torch.bool: 9, torch.float16: 10, torch.float64: 11, torch.uint32: 12, torch.uint64: 13, torch.bfloat16: 16,
    torch.float8_e4m3fn: 17, torch.float8_e4m3fnuz: 18, torch.float8_e5m2: 19, torch.float8_e5m2fnuz: 20,
}  # fmt: skip


def _weights(weights: Mapping[str, torch.Tensor]) -> dict[str, tuple[int, tuple[int, ...], int, torch.Tensor]]:
    return {k: (DTYPES[t.dtype], tuple(t.shape), t.data_ptr(), t) for k, t in weights.items()}


def open_program(name: str, json: bytes, weights: Mapping[str, torch.Tensor], device: str, settings: Settings) -> _native.Session:
    """Compiles a program. weights: contiguous tensors in host memory. Raises tessera.Error."""
    options = {"device": device, "threads": settings.threads, "tf32": settings.tf32, "deterministic": settings.deterministic, **dict(settings.further)}
    return _native.open_program(name, json, _weights(weights), True, options)


def survey_program(json: bytes, weights: Mapping[str, torch.Tensor]) -> str:
    """The nodes of a program that Tessera does not take: JSON, a list of {node, target, output, reason}. Raises tessera.Error."""
    return _native.survey_program(json, _weights(weights))


def known_sizes() -> str:
    """Dimensions that ATen operators' fast code has as constants: JSON, operator -> list of {argument, dim, differs_from}. Raises tessera.Error."""
    return _native.known_sizes()
