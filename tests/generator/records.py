"""The samples of operators' records (graph/ops), as generator_runner prints them: what models are drawn from."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import onnx
from onnx import helper, numpy_helper

MOST_ELEMENTS = 3000  # of one operand of a sample


@dataclass
class Sample:
    """operands: None where one is left out. attributes: as NodeProto has them."""

    operands: list[numpy.ndarray | None]
    attributes: list[onnx.AttributeProto]
    results: int
    opset: int  # 0: any


@dataclass
class Record:
    """One operator: `op` of `domain`, right in the versions [since, until] of the domain's opset."""

    op: str
    domain: str
    since: int
    until: int
    variadic: bool
    samples: list[Sample] = field(default_factory=list)


def _array(json_tensor: dict[str, Any]) -> numpy.ndarray:
    tensor = onnx.TensorProto(data_type=json_tensor["type"], dims=json_tensor["dims"])
    if "strings" in json_tensor:
        return numpy.array(json_tensor["strings"], object).reshape(json_tensor["dims"])
    tensor.raw_data = bytes.fromhex(json_tensor["data"])
    return numpy_helper.to_array(tensor)


def _attribute(name: str, kind: str, value: Any) -> onnx.AttributeProto:
    kinds = onnx.AttributeProto.AttributeType
    if kind == "tensor":
        return helper.make_attribute(name, numpy_helper.from_array(_array(value)))
    if kind in ("float", "floats"):
        value = float(value) if kind == "float" else [float(v) for v in value]
    return helper.make_attribute(name, [v.encode() for v in value] if kind == "strings" else value, attr_type=kinds.Value(kind.upper()))


def _fits(sample: dict[str, Any]) -> bool:
    """Whether the operands are small enough to be drawn."""
    return all(t is None or numpy.prod(t["dims"], dtype=int) <= MOST_ELEMENTS for t in sample["operands"])


def read(runner: str | Path) -> list[Record]:
    """All records, one for each ONNX name, in the order of the table. Operators whose results are random are left out."""
    text = subprocess.run([str(runner), "samples"], check=True, capture_output=True, text=True).stdout
    records = []
    for line in text.splitlines():
        made = json.loads(line)
        if made["random"]:
            continue
        samples = []
        for s in filter(_fits, made["samples"]):
            operands = [None if t is None else _array(t) for t in s["operands"]]
            attributes = [_attribute(name, kind, value) for name, (kind, value) in s["attributes"].items()]
            samples.append(Sample(operands, attributes, s["results"], s["opset"]))
        for n in made["names"]:
            if samples:
                records.append(Record(n["op"], n["domain"], n["since"], n["until"], made["variadic"], samples))
    return records
