"""What ONNX Runtime 1.32 computes wrongly, or crashes on, with reasons. The generator draws no such nodes; what is listed here was seen
on a model of one node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import onnx


@dataclass
class Wrong:
    """Of the operators `ops` ("Div", "com.microsoft.Attention"): nodes with these operands (draw.Value, by position, None where one is
    left out) and attributes."""

    ops: str
    reason: str
    when: Callable[[list[Any], dict[str, Any], int], bool] = lambda operands, attributes, opset: True


def _integers(operands: list[Any]) -> bool:
    return bool(operands[0].dtype.kind in "iu")


def _has_zero(value: Any) -> bool:
    return any(bool((a == 0).any()) for a in value.arrays)


def _computed(operands: list[Any], *which: int) -> bool:
    """Whether one of them is no weight."""
    return any(operands[i] is not None and not operands[i].constant for i in which)


WRONG = [
    Wrong("Div Mod", "integers divided by zero end the process (SIGFPE)", lambda o, a, v: _integers(o) and _has_zero(o[1])),
    Wrong("com.microsoft.QLinearWhere", "a scale or zero point that is no weight ends the process (SIGSEGV)", lambda o, a, v: _computed(o, 2, 3, 5, 6, 7, 8)),
]
_BY_OP: dict[str, list[Wrong]] = {}
for _wrong in WRONG:
    for _op in _wrong.ops.split():
        _BY_OP.setdefault(_op, []).append(_wrong)


def onnxruntime_is_wrong(node: onnx.NodeProto, operands: Sequence[Any], opset: int) -> bool:
    """`operands`: draw.Value of each name that the node reads."""
    entries = _BY_OP.get(f"{node.domain}.{node.op_type}" if node.domain else node.op_type)
    if not entries:
        return False
    named = {v.name: v for v in operands}
    inputs = [named.get(name) for name in node.input]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return any(w.when(inputs, attributes, opset) for w in entries)


__all__ = ["WRONG", "onnxruntime_is_wrong", "numpy"]
