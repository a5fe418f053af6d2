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
onnxruntime.set_seed(1)  # of RandomUniformLike: the same noise in each process
TYPES = onnx.TensorProto
# Relative noise, several units in the last place: results of other orders of operations stay within it.
NOISE = {TYPES.FLOAT: 3e-7, TYPES.DOUBLE: 1e-15, TYPES.FLOAT16: 1e-3}
# By how much more: of other lengths than powers of 2, ONNX Runtime's transforms lose digits; 1 + erf(x) does where x is below -2.
LOOSE = {"DFT": 16, "STFT": 16, "Gelu": 1024, "BiasGelu": 1024}
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
    """TensorProto.DataType of every tensor of a name: inputs, weights, what nodes compute, what subgraphs declare of theirs."""
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

    def declared(graph: onnx.GraphProto) -> None:
        for v in (*graph.value_info, *graph.input, *graph.output):
            if v.type.tensor_type.elem_type:
                out[v.name] = v.type.tensor_type.elem_type
        for t in graph.initializer:
            out[t.name] = t.data_type
        for node in graph.node:
            for a in node.attribute:
                if a.type == onnx.AttributeProto.GRAPH:
                    declared(a.g)

    declared(model.graph)
    return out


_NUMBERS = {"int8": TYPES.INT8, "uint8": TYPES.UINT8, "float": TYPES.FLOAT, "double": TYPES.DOUBLE, "float16": TYPES.FLOAT16}
PHASE = "noise__phase"  # an input of models with noise: another number, another noise


def with_noise(model: onnx.ModelProto, absolute: bool) -> onnx.ModelProto:
    """The model with noise on its inputs, weights and on what its nodes and those of its subgraphs compute: relative to each element, or
    to their mean magnitude."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    opset = max((i.version for i in model.opset_import if i.domain in ("", "ai.onnx")), default=1)
    _disturb_graph(out.graph, value_types(model), absolute, {}, "", opset)
    out.graph.input.append(helper.make_tensor_value_info(PHASE, TYPES.FLOAT, []))
    return out


def _disturb_graph(graph: onnx.GraphProto, types: dict[str, int], absolute: bool, outer: dict[str, str], path: str, opset: int) -> None:
    renamed = dict(outer)
    nodes: list[onnx.NodeProto] = []
    count = 0

    def add(op: str, inputs: list[str], **attributes: object) -> str:
        nonlocal count
        count += 1
        name = f"noise__{path}{count}"
        nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(value: float, kind: int = TYPES.FLOAT) -> str:
        return add("Constant", [], value=helper.make_tensor("", kind, [], [value]))

    def random(like: str, most: float, kind: int) -> str:
        """Numbers in [-most, most] of the shape of a value: the fraction of large sines of positions, where ONNX Runtime has no
        operator for them (opset 22) or none for the positions."""
        if opset < 22:
            return add("RandomUniformLike", [like], low=-most, high=most)
        shape = add("Shape", [like])
        size = add("Size", [like])
        places = add("Cast", [add("Range", [constant(0, TYPES.INT64), size, constant(1, TYPES.INT64)])], to=TYPES.FLOAT)
        angle = add("Add", [add("Mul", [places, constant(12.9898)]), add("Add", [PHASE, constant(float(count % 97))])])
        large = add("Mul", [add("Sin", [angle]), constant(4375.85453)])
        part = add("Sub", [large, add("Floor", [large])])  # in [0, 1)
        spread = add("Mul", [add("Cast", [add("Sub", [part, constant(0.5)])], to=kind), constant(2 * most, kind)])
        return add("Reshape", [spread, shape], allowzero=1)

    def disturb(name: str, by_op: str = "") -> None:
        noise = NOISE.get(types.get(name, 0))
        if noise is None or not name:
            return
        noise *= LOOSE.get(by_op, 1)
        kind = TYPES.DOUBLE if types[name] == TYPES.DOUBLE else TYPES.FLOAT
        real = add("Cast", [name], to=kind)
        by = add("ReduceMean", [add("Abs", [real])], keepdims=0) if absolute else real
        renamed[name] = add("Cast", [add("Add", [real, add("Mul", [random(real, noise, kind), by])])], to=types[name])

    def step(node: onnx.NodeProto) -> None:
        """Codes that are one more or less, here and there: of what computes 8-bit codes from codes, and rounds in between."""
        narrow = (TYPES.INT8, TYPES.UINT8)
        given = [types.get(name, 0) for name in node.input]
        if sum(t in narrow for t in given) < 2 or TYPES.FLOAT not in given:
            return
        for name in node.output:
            if types.get(name) in narrow:
                least, most = (-128.0, 127.0) if types[name] == TYPES.INT8 else (0.0, 255.0)
                real = add("Cast", [name], to=TYPES.FLOAT)
                moved = add("Add", [real, add("Round", [random(real, 0.55, TYPES.FLOAT)])])
                renamed[name] = add("Cast", [add("Min", [add("Max", [moved, constant(least)]), constant(most)])], to=types[name])

    for v in (*graph.input, *graph.initializer):
        renamed.pop(v.name, None)
        disturb(v.name)
    for node in graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for i, name in enumerate(copy.input):
            copy.input[i] = renamed.get(name, name)
        for a in copy.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                _disturb_graph(a.g, types, absolute, renamed, f"{path}{len(nodes)}_", opset)
        nodes.append(copy)
        for name in node.output:
            renamed.pop(name, None)
            disturb(name, node.op_type)
        step(node)
    for v in graph.output:
        if v.name in renamed:  # a captured value, too, is an output by a name of the subgraph
            v.name = add("Identity", [renamed[v.name]])
    del graph.node[:]
    graph.node.extend(nodes)


def plain(array: numpy.ndarray) -> numpy.ndarray:
    """Elements for comparison: floats and integers as they are, narrow floats as f32."""
    return array if array.dtype.kind in "biufcO" else array.astype(numpy.float32)


def difference(ours: numpy.ndarray, theirs: numpy.ndarray) -> tuple[float, str]:
    """Norm of the difference over the norm of floats (infinite where NaN or infinities differ), the share of elements that differ of
    others; and what is wrong before values are compared."""
    if ours.size == theirs.size == 0 and (ours.ndim == theirs.ndim or theirs.ndim == 1):
        return 0.0, ""  # of a loop without iterations, ONNX Runtime knows no size that is not declared
    if ours.shape != theirs.shape:
        return numpy.inf, f"{list(ours.shape)} instead of {list(theirs.shape)}"
    if theirs.dtype.kind not in "biufcOU" and ours.dtype.itemsize == theirs.dtype.itemsize:
        ours = ours.view(theirs.dtype)  # .npy files have the bits of types that NumPy lacks
    if ours.dtype != theirs.dtype and theirs.dtype.kind not in "OU":
        return numpy.inf, f"{ours.dtype} instead of {theirs.dtype}"
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
    """The spread of a case's results under noise; computed when it is needed first."""

    def __init__(self, case: Case, expected: list[list[numpy.ndarray]]) -> None:
        self._case, self._expected = case, expected
        self.refused = ""  # what ONNX Runtime says of the model with noise
        self._draws: list[list[list[numpy.ndarray]]] | None = None

    def draws(self) -> list[list[list[numpy.ndarray]]]:
        if self._draws is None:
            self._draws = []
            for absolute in (False, True):
                try:
                    made = session(with_noise(self._case.model, absolute))
                    for draw in range(DRAWS // 2):
                        phase = {PHASE: numpy.array(0.37 + 1.7 * draw, numpy.float32)}
                        self._draws.append([made.run(None, feeds | phase) for feeds in self._case.calls])
                except Exception as error:  # noqa: BLE001  a value that cannot take noise: a size, a table of exact contents
                    self.refused = str(error)
        return self._draws

    def allows(self, call: int, output: int, measured: float) -> bool:
        """Whether a difference of this size is within a few times the spread."""
        return measured <= 4 * max(self._of(call, output), default=self._noise())

    def _noise(self) -> float:
        """The noise of the model's narrowest type, for a model that ONNX Runtime refuses with noise."""
        return max((NOISE.get(t, 0.0) for t in value_types(self._case.model).values()), default=0.0)

    def _of(self, call: int, output: int) -> Iterator[float]:
        for draw in self.draws():
            theirs = self._expected[call][output]
            measured, wrong = difference(draw[call][output], theirs)
            yield 1.0 if wrong else measured


def tolerance(dtype: numpy.dtype) -> float:
    return TOLERANCE.get(str(dtype), 0.0 if dtype.kind in "biuOU" else 1e-1 if dtype.kind not in "fc" else 2e-5)
