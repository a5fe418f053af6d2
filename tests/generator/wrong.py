"""What ONNX Runtime computes wrongly, with reasons. The generator draws no such nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx


def onnxruntime_is_wrong(node: onnx.NodeProto, operands: Sequence[Any], opset: int) -> bool:
    """`operands`: draw.Value."""
    return False
