"""A model of f32 with another floating-point type in its place."""

from __future__ import annotations

import copy

import ml_dtypes
import numpy
import onnx
from case import Case
from onnx import TensorProto, numpy_helper

TYPES = {"f16": (TensorProto.FLOAT16, numpy.dtype(numpy.float16)), "bf16": (TensorProto.BFLOAT16, numpy.dtype(ml_dtypes.bfloat16)), "f64": (TensorProto.DOUBLE, numpy.dtype(numpy.float64))}


def retyped(case: Case, name: str) -> Case:
    """The case with all values of f32 as f16, bf16 or f64. It may be invalid: few operators of ONNX take every type."""
    code, dtype = TYPES[name]

    def tensor(t: onnx.TensorProto) -> None:
        if t.data_type == TensorProto.FLOAT:
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(dtype), t.name))

    def value(v: onnx.ValueInfoProto) -> None:
        if v.type.tensor_type.elem_type == TensorProto.FLOAT:
            v.type.tensor_type.elem_type = code

    def graph(g: onnx.GraphProto) -> None:
        for t in g.initializer:
            tensor(t)
        for v in (*g.input, *g.output, *g.value_info):
            value(v)
        for node in g.node:
            for a in node.attribute:
                if a.name in ("to", "dtype", "output_dtype") and a.i == TensorProto.FLOAT:
                    a.i = code
                if a.type == onnx.AttributeProto.TENSOR:
                    tensor(a.t)
                if a.type == onnx.AttributeProto.GRAPH:
                    graph(a.g)

    model = copy.deepcopy(case.model)
    graph(model.graph)
    calls = [{k: a.astype(dtype) if a.dtype == numpy.float32 else a for k, a in feeds.items()} for feeds in case.calls]
    return Case(model, calls)
