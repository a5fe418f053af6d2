"""triton.tools.tensor_descriptor: tensor descriptors of the host."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass
class TensorDescriptor:
    """A tensor whose blocks a kernel loads and stores. strides: in elements, the last one 1."""

    base: Any
    shape: list[int]
    strides: list[int]
    block_shape: list[int]
    padding: str = "zero"

    def __post_init__(self) -> None:
        if not len(self.shape) == len(self.strides) == len(self.block_shape) >= 1:
            raise ValueError(f"shape {self.shape}, strides {self.strides} and block_shape {self.block_shape} differ in length")
        if self.strides[-1] != 1:
            raise ValueError(f"the last stride is 1, not {self.strides[-1]}")

    @staticmethod
    def from_tensor(tensor: Any, block_shape: list[int], padding: str = "zero") -> TensorDescriptor:
        """The descriptor of a whole tensor."""
        strides = tensor.stride() if callable(getattr(tensor, "stride", None)) else [s // tensor.itemsize for s in tensor.strides]
        return TensorDescriptor(tensor, list(tensor.shape), list(strides), list(block_shape), padding)


__all__ = ["TensorDescriptor"]
