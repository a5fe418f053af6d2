"""Chains of conversions between all numeric types and of operators that round once (exact.py), with values at the limits of the types."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy
import onnx
from case import Case
from draw import CALLS
from exact import BOOL, FLOATS, FLOATS8, INTEGERS, PRODUCER, Array, convert, evaluate, is_float, takes
from onnx import helper, numpy_helper
from reduce import remove_unused

SIZES = (0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 127, 129, 257)
ALL = (*FLOATS, *FLOATS8, *INTEGERS, BOOL)
TWO = ("Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "Where", "Clip",
       "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "And", "Or", "Xor")  # fmt: skip
ONE = ("Neg", "Abs", "Sign", "Floor", "Ceil", "Round", "Relu", "IsNaN", "IsInf", "BitwiseNot", "Not")


def edges(dtype: numpy.dtype, rng: numpy.random.Generator, count: int) -> Array:
    """Elements where conversions of a type differ: at the limits of every type, halves, zeros of both signs, denormals, NaN."""
    if dtype == BOOL:
        return rng.integers(0, 2, count).astype(bool)
    powers = [s * (2.0**k + d) for s in (1, -1) for k in (0, 3, 4, 7, 8, 9, 11, 15, 16, 24, 31, 32, 53, 62, 63, 64) for d in (-1, -0.5, 0, 0.5, 1)]
    if is_float(dtype):
        limits = [ml_dtypes.finfo(t) for t in (*FLOATS, *FLOATS8)]
        ends = [float(v) * f for i in limits for v in (i.max, i.smallest_normal, i.smallest_subnormal) for f in (1, -1, 1.0001, 0.5, -0.75, 1.03125)]
        special = [0.0, -0.0, numpy.nan, -numpy.nan, numpy.inf, -numpy.inf, 0.1, 1.5, 2.5, -3.5, 2049.0, 464.0, 465.0, 61440.0, 65519.0, 65520.0, 1e30, 1e-30]
        pool = numpy.concatenate([powers, ends, special, special, rng.normal(0, 100, 40)])
        return convert(rng.choice(pool, count), dtype, saturate=False)
    info = numpy.iinfo(dtype)
    whole = [int(p) for p in powers] + [info.min, info.min + 1, info.max, info.max - 1, 0, 1, info.max // 2, info.min // 2, *rng.integers(-1000, 1000, 30).tolist()]
    fitting = [n for n in whole if info.min <= n <= info.max]
    if info.bits == 64:
        fitting += [n >> int(rng.integers(0, 40)) for n in rng.integers(info.min, info.max, 20, dtype=dtype).tolist()]
    return numpy.array([fitting[i] for i in rng.integers(0, len(fitting), count)], dtype)


class _Chain:
    def __init__(self, seed: int) -> None:
        self.rng = numpy.random.default_rng([43, seed])
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[str] = []
        self.values: dict[str, list[Array]] = {}  # of each call
        symbolic = self.rng.random() < 0.5
        self.sizes = [int(n) for n in self.rng.choice(SIZES, CALLS, replace=False)] if symbolic else [int(self.rng.choice(SIZES))] * CALLS

    def pick(self, items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def operand(self, dtype: numpy.dtype) -> str:
        """An input, or a weight, of which chains are computed by a pass that folds constants."""
        if len(set(self.sizes)) == 1 and self.rng.random() < 0.25:
            return self.weight(edges(dtype, self.rng, self.sizes[0]))
        return self.input(dtype)

    def input(self, dtype: numpy.dtype) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(name)
        self.values[name] = [edges(dtype, self.rng, n) for n in self.sizes]
        return name

    def weight(self, array: Array) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        self.values[name] = [array] * CALLS
        return name

    def scalar(self, dtype: numpy.dtype) -> str:
        return self.weight(edges(dtype, self.rng, 1).reshape(self.pick(((), (1,)))))

    def add(self, op: str, names: list[str], **attributes: Any) -> str:
        node = helper.make_node(op, names, [f"v{len(self.nodes)}"], **attributes)
        self.values[node.output[0]] = [evaluate(node, [self.values[n][k] for n in names]) for k in range(CALLS)]
        self.nodes.append(node)
        return str(node.output[0])

    def cast(self, x: str, to: numpy.dtype) -> str:
        options = {"saturate": 0} if to in FLOATS8 and self.rng.random() < 0.5 else {}
        if self.rng.random() < 0.2:
            return self.add("CastLike", [x, self.scalar(to)], **options)
        return self.add("Cast", [x], to=helper.np_dtype_to_tensor_dtype(to), **options)

    def step(self, x: str) -> str:
        dtype = self.values[x][0].dtype
        ops = [o for o in (*ONE, *TWO) if takes(o, dtype, 1 if o == "Where" else 0)]
        if self.rng.random() < 0.5 or not ops:
            return self.cast(x, self.pick(ALL))
        op = self.pick(ops)
        if op in ONE:
            return self.add(op, [x])
        other = self.pick([n for n, v in self.values.items() if all(a.shape == b.shape for a, b in zip(v, self.values[x], strict=True))])
        if op in ("Div", "Mod") and not is_float(dtype):
            by = [n for n in (2, 3, 5, 7, 16, 100, -2, -3, -16) if dtype.kind == "i" or n > 0]
            attributes = {"fmod": 1} if op == "Mod" and self.rng.random() < 0.3 else {}
            return self.add(op, [x, self.weight(numpy.array(self.pick(by), dtype))], **attributes)
        if op == "Mod":
            return self.add(op, [x, self.scalar(dtype)], fmod=1)
        if op == "BitShift":
            return self.add(op, [x, self.weight(numpy.array(int(self.rng.integers(0, dtype.itemsize * 8)), dtype))], direction=self.pick(("LEFT", "RIGHT")))
        if op == "Clip":
            return self.add(op, [x, *(self.weight(b) for b in sorted(edges(dtype, self.rng, 2), key=lambda v: (v != v, v)))])
        y = self.scalar(dtype) if self.rng.random() < 0.3 else other
        if self.values[y][0].dtype != dtype:
            y = self.cast(y, dtype)
        if op == "Where":
            condition = self.cast(x, BOOL) if dtype != BOOL else x
            return self.add(op, [condition, *self.pick(([x, y], [y, x]))])
        return self.add(op, [x, y] if self.rng.random() < 0.7 else [y, x])


def draw_casts(seed: int) -> Case:
    chain = _Chain(seed)
    x = ""
    for _ in range(chain.pick((1, 2, 2))):
        x = chain.operand(chain.pick(ALL))
    for _ in range(int(chain.rng.integers(3, 10))):
        x = chain.step(x)
    computed = [o for n in chain.nodes for o in n.output]
    outputs = [o for o in computed if o == x or chain.rng.random() < 0.2]

    def declared(name: str) -> onnx.ValueInfoProto:
        dims = ["n" if len(set(chain.sizes)) > 1 else chain.sizes[0]]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(chain.values[name][0].dtype), dims)

    graph = helper.make_graph(chain.nodes, "casts", [declared(i) for i in chain.inputs], [declared(o) for o in outputs], chain.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10, producer_name=PRODUCER)
    return Case(remove_unused(model), [{i: chain.values[i][k] for i in chain.inputs} for k in range(CALLS)])
