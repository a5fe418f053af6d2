"""ONNX Runtime's results, without its graph optimizations, and how far results may stray: the spread of ONNX Runtime's own results
when every floating-point value of a model is multiplied by numbers close to 1 (stochastic arithmetic)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy
import onnx
import onnxruntime
from case import Case, Feeds
from onnx import helper

onnxruntime.set_default_logger_severity(4)
TYPES = onnx.TensorProto
# Relative noise, several units in the last place: results of other orders of operations stay within it.
NOISE = {TYPES.FLOAT: 3e-7, TYPES.DOUBLE: 1e-15, TYPES.FLOAT16: 1e-3}
# Differences that are allowed without noise: norm of the difference over the norm.
TOLERANCE = {"float32": 2e-5, "float64": 1e-7, "float16": 3e-3, "bfloat16": 2e-2}
DRAWS = 16


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(model: onnx.ModelProto, calls: list[Feeds]) -> list[list[numpy.ndarray]]:
    """Results of every call. Raises what ONNX Runtime raises."""
    made = session(model)
    return [made.run(None, feeds) for feeds in calls]


def value_types(model: onnx.ModelProto) -> dict[str, int]:
    """TensorProto.DataType of every tensor that the model's own nodes compute (not those of its subgraphs)."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    present = {o.name for o in wide.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in present:
                wide.graph.output.append(onnx.ValueInfoProto(name=name))
                present.add(name)
    out = {}
    for o in session(wide).get_outputs():
        if o.type.startswith("tensor("):
            out[o.name] = _NUMBERS.get(o.type[7:-1], 0)
    return out


_NUMBERS = {"int8": TYPES.INT8, "uint8": TYPES.UINT8, "float": TYPES.FLOAT, "double": TYPES.DOUBLE, "float16": TYPES.FLOAT16}


def with_noise(model: onnx.ModelProto, absolute: bool) -> onnx.ModelProto:
    """The model with noise on its inputs, weights and on what its nodes compute: relative to each element, or to the largest."""
    types = value_types(model)
    for v in model.graph.input:
        types[v.name] = v.type.tensor_type.elem_type
    for t in model.graph.initializer:
        types[t.name] = t.data_type
    out = onnx.ModelProto()
    out.CopyFrom(model)
    renamed: dict[str, str] = {}
    nodes: list[onnx.NodeProto] = []

    def disturb(name: str) -> None:
        noise = NOISE.get(types.get(name, 0))
        if noise is None:
            return
        real, factor, scale, part, sum_, noisy = (f"{name}__{k}" for k in ("real", "factor", "scale", "part", "sum", "noisy"))
        kind = TYPES.DOUBLE if types[name] == TYPES.DOUBLE else TYPES.FLOAT
        nodes.append(helper.make_node("Cast", [name], [real], to=kind))
        if absolute:
            nodes.append(helper.make_node("RandomUniformLike", [real], [factor], low=-noise, high=noise))
            nodes.append(helper.make_node("Abs", [real], [scale]))
            nodes.append(helper.make_node("ReduceMean", [scale], [part], keepdims=0))
            nodes.append(helper.make_node("Mul", [factor, part], [part + "s"]))
            nodes.append(helper.make_node("Add", [real, part + "s"], [sum_]))
        else:
            nodes.append(helper.make_node("RandomUniformLike", [real], [factor], low=1 - noise, high=1 + noise))
            nodes.append(helper.make_node("Mul", [real, factor], [sum_]))
        nodes.append(helper.make_node("Cast", [sum_], [noisy], to=types[name]))
        renamed[name] = noisy

    def step(node: onnx.NodeProto) -> None:
        """Codes that are one more or less, here and there: of what computes 8-bit codes from codes, and rounds in between."""
        narrow = (TYPES.INT8, TYPES.UINT8)
        given = [types.get(name, 0) for name in node.input]
        if sum(t in narrow for t in given) < 2 or TYPES.FLOAT not in given:
            return
        for name in node.output:
            if types.get(name) not in narrow:
                continue
            real, steps, whole, sum_, low, high, noisy = (f"{name}__{k}" for k in ("real", "steps", "whole", "sum", "low", "high", "noisy"))
            least, most = (-128.0, 127.0) if types[name] == TYPES.INT8 else (0.0, 255.0)
            for weight, value in ((low, least), (high, most)):
                out.graph.initializer.append(helper.make_tensor(weight, TYPES.FLOAT, [], [value]))
            nodes.append(helper.make_node("Cast", [name], [real], to=TYPES.FLOAT))
            nodes.append(helper.make_node("RandomUniformLike", [real], [steps], low=-0.55, high=0.55))
            nodes.append(helper.make_node("Round" if out.opset_import[0].version >= 11 else "Floor", [steps], [whole]))
            nodes.append(helper.make_node("Add", [real, whole], [sum_]))
            nodes.append(helper.make_node("Max", [sum_, low], [name + "__above"]))
            nodes.append(helper.make_node("Min", [name + "__above", high], [name + "__within"]))
            nodes.append(helper.make_node("Cast", [name + "__within"], [noisy], to=types[name]))
            renamed[name] = noisy

    for v in (*model.graph.input, *model.graph.initializer):
        disturb(v.name)
    for node in model.graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        _rename(copy, renamed)
        nodes.append(copy)
        for name in node.output:
            if name:
                disturb(name)
        step(node)
    for v in out.graph.output:
        v.name = renamed.get(v.name, v.name)
    del out.graph.node[:]
    out.graph.node.extend(nodes)
    return out


def _rename(node: onnx.NodeProto, renamed: dict[str, str]) -> None:
    """What the node and its subgraphs read."""
    for i, name in enumerate(node.input):
        node.input[i] = renamed.get(name, name)
    for a in node.attribute:
        if a.type != onnx.AttributeProto.GRAPH:
            continue
        own = {v.name for v in a.g.input} | {t.name for t in a.g.initializer} | {o for n in a.g.node for o in n.output}
        outer = {k: v for k, v in renamed.items() if k not in own}
        for inner in a.g.node:
            _rename(inner, outer)
        for i, v in enumerate(a.g.output):
            if v.name in outer:  # an output that is a captured value
                a.g.node.append(helper.make_node("Identity", [outer[v.name]], [v.name + "__out"]))
                v.name += "__out"


def plain(array: numpy.ndarray) -> numpy.ndarray:
    """Elements for comparison: floats and integers as they are, narrow floats as f32."""
    return array if array.dtype.kind in "biufcO" else array.astype(numpy.float32)


def difference(ours: numpy.ndarray, theirs: numpy.ndarray) -> tuple[float, str]:
    """Norm of the difference over the norm of floats (infinite where NaN or infinities differ), the share of elements that differ of
    others; and what is wrong before values are compared."""
    if ours.shape != theirs.shape:
        return numpy.inf, f"{list(ours.shape)} instead of {list(theirs.shape)}"
    if theirs.dtype.kind not in "biufcOU" and ours.dtype.itemsize == theirs.dtype.itemsize:
        ours = ours.view(theirs.dtype)  # .npy files have the bits of types that NumPy lacks
    if ours.dtype != theirs.dtype and theirs.dtype.kind not in "OU":
        return numpy.inf, f"{ours.dtype} instead of {theirs.dtype}"
    if theirs.size == 0:
        return 0.0, ""
    if theirs.dtype.kind in "OU":
        return float((ours.astype(str) != theirs.astype(str)).mean()), ""
    a, b = plain(ours), plain(theirs)
    if b.dtype.kind in "biu":
        return float((a != b).mean()), ""
    a, b = a.astype(complex if b.dtype.kind == "c" else float), b.astype(complex if b.dtype.kind == "c" else float)
    finite = numpy.isfinite(b)
    if (finite != numpy.isfinite(a)).any() or not numpy.array_equal(a[~finite], b[~finite], equal_nan=True):
        return numpy.inf, ""
    norm = float(numpy.linalg.norm(b[finite]))
    return (float(numpy.linalg.norm(a[finite] - b[finite])) / norm if norm else float(numpy.abs(a[finite]).max(initial=0))), ""


class Spread:
    """Of a case's results under noise; computed when it is needed first."""

    def __init__(self, case: Case, expected: list[list[numpy.ndarray]]) -> None:
        self._case, self._expected = case, expected
        self._draws: list[list[list[numpy.ndarray]]] | None = None

    def draws(self) -> list[list[list[numpy.ndarray]]]:
        if self._draws is None:
            self._draws = []
            for absolute in (False, True):
                try:
                    made = session(with_noise(self._case.model, absolute))
                    self._draws += [[made.run(None, feeds) for feeds in self._case.calls] for _ in range(DRAWS // 2)]
                except Exception:  # noqa: BLE001, S110  a value that cannot take noise: a size, a table of exact contents
                    pass
        return self._draws

    def allows(self, call: int, output: int, measured: float) -> bool:
        """Whether a difference of this size is within a few times the spread."""
        return measured <= 4 * max(self._of(call, output), default=0.0)

    def _of(self, call: int, output: int) -> Iterator[float]:
        for draw in self.draws():
            theirs = self._expected[call][output]
            measured, wrong = difference(draw[call][output], theirs)
            yield 1.0 if wrong else measured


def tolerance(dtype: numpy.dtype) -> float:
    return TOLERANCE.get(str(dtype), 0.0 if dtype.kind in "biuOU" else 1e-1 if dtype.kind not in "fc" else 2e-5)
