"""triton.tools: tensor descriptors of the host."""

from __future__ import annotations

from . import tensor_descriptor
from .tensor_descriptor import TensorDescriptor

__all__ = ["TensorDescriptor", "tensor_descriptor"]
