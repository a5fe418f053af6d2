"""Draws valid models from the samples of operators' records.

A node is a sample whose sizes are others: each size of the sample stands for a dimension, a number or a symbol, and an operand is a
value that the model has already, a weight, or a new input. ONNX Runtime decides whether the node is valid: it runs each one by itself
on the values of every call before the model takes it. So nothing here knows an operator by name, except those that run subgraphs
(control.py) and the pair that quantises a value.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy
import onnx
import onnx.defs
import oracle
from case import Case, Feeds, count_nodes  # noqa: F401
from onnx import helper, numpy_helper
from records import Record, Sample
from wrong import onnxruntime_is_wrong

CALLS = 3
OPSETS = (9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23)
SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 33)
ATTENTION = 0.1  # of the models begin with one
MOST_ELEMENTS = 6000  # of one result
LARGEST = 1e6  # magnitude of a floating-point result
Dim = tuple[int, ...]  # a dimension: its size in each call


@dataclass
class Value:
    name: str
    arrays: list[numpy.ndarray]  # one for each call
    constant: bool = False
    uses: int = 0

    @property
    def dtype(self) -> numpy.dtype:
        return self.arrays[0].dtype

    @property
    def rank(self) -> int:
        return self.arrays[0].ndim

    @property
    def dims(self) -> tuple[Dim, ...]:
        return tuple(zip(*(a.shape for a in self.arrays))) if self.rank else ()


def element_type(dtype: numpy.dtype) -> int:
    return onnx.TensorProto.STRING if dtype.kind == "O" else helper.np_dtype_to_tensor_dtype(dtype)


def type_of(value: Value) -> onnx.TypeProto:
    """The type of the value in a model of its own: sizes that differ are left open."""
    shape = [d[0] if len(set(d)) == 1 else None for d in value.dims]
    return helper.make_tensor_type_proto(element_type(value.dtype), shape)


class Names:
    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def fresh(self, kind: str) -> str:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return f"{kind}{self._counts[kind]}"


_ODD = numpy.uint64(0x9E3779B97F4A7C15)


def keys(names: Sequence[str]) -> numpy.ndarray:
    """64 bits of each name that look random."""
    return numpy.array([int.from_bytes(hashlib.sha256(n.encode()).digest()[:8], "little") for n in names], numpy.uint64)


class Source:
    """The records that all models of a process are drawn from. Whether a sample runs in ONNX Runtime as it is, is computed once."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = list(records)
        self._keys = keys([f"{r.domain}.{r.op}.{r.since}" for r in records])
        self._sample_keys = [keys([str(i) for i in range(len(r.samples))]) for r in records]
        self._runs: dict[tuple[int, int, int], bool] = {}

    def pick(self, number: int) -> tuple[int, int]:
        """A record and a sample of it, by a random number of 64 bits. A record that is added changes few picks."""
        record = int(numpy.argmin((self._keys ^ numpy.uint64(number)) * _ODD))
        return record, int(numpy.argmin((self._sample_keys[record] ^ numpy.uint64(number)) * _ODD))

    def runs(self, record: int, sample: int, opset: int) -> bool:
        key = (record, sample, opset)
        if key not in self._runs:
            self._runs[key] = self._try(self.records[record], self.records[record].samples[sample], opset)
        return self._runs[key]

    @staticmethod
    def _try(record: Record, sample: Sample, opset: int) -> bool:
        if not record.domain and not _same_version(record.op, sample.opset, opset) or _is_random(record):
            return False
        operands = [None if a is None else Value(f"x{i}", [a], constant=True) for i, a in enumerate(sample.operands)]
        node = make_node(record, sample, ["" if v is None else v.name for v in operands], [f"y{i}" for i in range(sample.results)])
        if onnxruntime_is_wrong(node, [v for v in operands if v]):
            return False
        try:
            first = evaluate(node, [v for v in operands if v], opset, 1)
            again = evaluate(node, [v for v in operands if v], opset, 1)
        except Exception:  # noqa: BLE001  every error of ONNX Runtime is an answer
            return False
        return all(numpy.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(first[0], again[0]))


def _same_version(op: str, sample_opset: int, opset: int) -> bool:
    """Whether a sample that is written for one opset has the same form in another."""
    if sample_opset == 0:
        return True
    try:
        return onnx.defs.get_schema(op, sample_opset).since_version == onnx.defs.get_schema(op, opset).since_version
    except onnx.defs.SchemaError:
        return False


def _is_random(record: Record) -> bool:
    """Numbers that follow from a seed are others in every implementation."""
    return onnx.defs.has(record.op, record.domain) and "seed" in onnx.defs.get_schema(record.op, record.domain).attributes


def make_node(record: Record, sample: Sample, inputs: list[str], outputs: list[str]) -> onnx.NodeProto:
    node = helper.make_node(record.op, inputs, outputs, domain=record.domain)
    node.attribute.extend(sample.attributes)
    return node


def make_model(graph: onnx.GraphProto, opset: int) -> onnx.ModelProto:
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, producer_name="tessera-generator")


def evaluate(node: onnx.NodeProto, operands: Sequence[Value], opset: int, calls: int) -> list[list[numpy.ndarray]]:
    """The node's results for each call: by ONNX Runtime, in a model of that node. Raises its errors."""
    inputs, weights = {}, {}
    for v in operands:
        if v.constant or v.dtype.kind not in "biufO":
            if len({a.tobytes() for a in v.arrays}) > 1:
                raise ValueError("a computed value of a type that cannot be given")
            weights[v.name] = numpy_helper.from_array(v.arrays[0], v.name)
        else:
            inputs[v.name] = v
    infos = [helper.make_value_info(name, type_of(v)) for name, v in inputs.items()]
    outputs = [onnx.ValueInfoProto(name=o) for o in node.output if o]
    graph = helper.make_graph([node], "node", infos, outputs, list(weights.values()))
    session = oracle.session(make_model(graph, opset))
    if not all(o.type.startswith("tensor(") for o in session.get_outputs()):
        raise ValueError("a result that is no tensor")
    results = [session.run(None, {name: v.arrays[call] for name, v in inputs.items()}) for call in range(calls)]
    types = [o.type[7:-1] for o in session.get_outputs()]
    return [[_typed(numpy.asarray(r), t) for r, t in zip(call, types)] for call in results]


def _typed(array: numpy.ndarray, name: str) -> numpy.ndarray:
    """With the type of its elements where ONNX Runtime gives their bits alone."""
    narrow = {"bfloat16": "bfloat16", "float8e4m3fn": "float8_e4m3fn", "float8e4m3fnuz": "float8_e4m3fnuz", "float8e5m2": "float8_e5m2", "float8e5m2fnuz": "float8_e5m2fnuz"}
    return array.view(getattr(ml_dtypes, narrow[name])) if name in narrow and array.dtype.kind in "biu" else array


@dataclass
class Draw:
    """A model, or one of its subgraphs, that is being drawn. `outer`: the graph around it, whose values it may read."""

    source: Source
    rng: numpy.random.Generator
    names: Names
    opset: int
    symbols: dict[str, Dim]
    outer: Draw | None = None
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    weights: list[Value] = field(default_factory=list)
    depth: int = 0

    # ---- random choices
    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def visible(self) -> list[Value]:
        return self.values + (self.outer.visible() if self.outer else [])

    def pick_value(self, values: Sequence[Value]) -> Value:
        """Values that nothing reads yet and those of this graph are more likely."""
        weights = numpy.array([(4.0 if v.uses == 0 else 1.0) * (3.0 if v in self.values else 1.0) for v in values])
        return values[int(self.rng.choice(len(values), p=weights / weights.sum()))]

    # ---- new values
    def root(self) -> Draw:
        return self.outer.root() if self.outer else self

    def add_input(self, arrays: list[numpy.ndarray]) -> Value:
        root = self.root()
        value = Value(self.names.fresh("x"), arrays)
        root.inputs.append(value)
        root.values.append(value)
        return value

    def add_weight(self, array: numpy.ndarray) -> Value:
        value = Value(self.names.fresh("w"), [array] * CALLS, constant=True)
        self.weights.append(value)
        self.values.append(value)
        return value

    def add_node(self, node: onnx.NodeProto, operands: Sequence[Value], unusual: bool = False) -> list[Value] | None:
        """The node's results if ONNX Runtime computes them; None where it does not, or they are large or not finite."""
        operands = list({v.name: v for v in operands}.values())
        if onnxruntime_is_wrong(node, operands):
            return None
        trace = os.environ.get("GENERATOR_TRACE")
        if trace:
            print("try", node.op_type, [(v.name, str(v.dtype), v.arrays[0].shape) for v in operands], flush=True)
        try:
            results = evaluate(node, operands, self.opset, CALLS)
        except Exception as error:  # noqa: BLE001  every error of ONNX Runtime is a refusal
            if trace:
                print("refused", str(error)[:300], flush=True)
            return None
        if onnxruntime_is_wrong(node, operands, results):
            return None
        values = []
        for i, name in enumerate(o for o in node.output if o):
            arrays = [r[i] for r in results]
            for a in arrays:
                if a.size > MOST_ELEMENTS or a.ndim != arrays[0].ndim:
                    return None
                if a.dtype.kind == "f" and not unusual and not (numpy.isfinite(a).all() and numpy.abs(a).max(initial=0) < LARGEST):
                    return None
            values.append(Value(name, arrays))
        for v in operands:
            v.uses += 1
        self.nodes.append(node)
        self.values.extend(values)
        return values

    # ---- a node from a sample
    def draw_sample(self) -> tuple[Record, Sample] | None:
        """A sample that ONNX Runtime runs as it is; most times one that some computed value can be an operand of."""
        wired = bool(self.computed()) and self.chance(0.85)
        for _ in range(60 if wired else 20):
            r, s = self.source.pick(int(self.rng.integers(1 << 63)))
            record = self.source.records[r]
            if record.domain and self.chance(0.6) or not record.domain and not record.since <= self.opset <= record.until:
                continue
            if wired and not self.can_wire(record.samples[s]):
                continue
            if self.source.runs(r, s, self.opset):
                return record, record.samples[s]
        return None

    def computed(self) -> list[Value]:
        names = {o for n in self.nodes for o in n.output} | {o for n in (self.outer.nodes if self.outer else []) for o in n.output}
        return [v for v in self.visible() if v.name in names]

    def can_wire(self, sample: Sample) -> bool:
        data = [a for i, a in enumerate(sample.operands) if a is not None and a.size > 1 and not _steers(sample, i)]
        return any(v.dtype == a.dtype and self.unify(a.shape, v, {1: (1,) * CALLS}, commit=False) for a in data for v in self.computed())

    def step(self) -> bool:
        """Draws one node of a sample."""
        drawn = self.draw_sample()
        if drawn is None:
            return False
        record, sample = drawn
        saved = self.mark()
        unusual = self.chance(0.05)
        for attempt in range(3):
            operands = self.operands_of(sample, unusual, attempt)
            large = any(a.size > MOST_ELEMENTS for v in operands if v for a in v.arrays)
            # Attributes of classical models hold a number for each feature, which ONNX Runtime does not check.
            if large or (record.domain == "ai.onnx.ml" and not _same_features(sample, operands)):
                self.drop_after(saved)
                continue
            names = ["" if v is None else v.name for v in operands]
            node = make_node(record, sample, names, [self.names.fresh("v") for _ in range(sample.results)])
            if self.add_node(node, [v for v in operands if v], unusual):
                return True
            self.drop_after(saved)
        return False

    def mark(self) -> tuple[int, int, int, int, int]:
        """The present state, to which drop_after() returns."""
        return len(self.root().inputs), len(self.root().values), len(self.weights), len(self.values), len(self.nodes)

    def drop_after(self, saved: tuple[int, int, int, int, int]) -> None:
        root = self.root()
        del root.inputs[saved[0] :], self.weights[saved[2] :], self.nodes[saved[4] :]
        del self.values[saved[3] :]
        if root is not self:
            del root.values[saved[1] :]

    def operands_of(self, sample: Sample, unusual: bool, attempt: int) -> list[Value | None]:
        """Values for the operands of a sample. The second attempt leaves what steers sizes as the sample has it, the third makes all
        but one operand weights."""
        sizes: dict[int, Dim] = {1: (1,) * CALLS}
        wired: dict[int, Value] = {}
        data = [i for i, a in enumerate(sample.operands) if a is not None and not _steers(sample, i)]
        order = list(self.rng.permutation(data)) if self.chance(0.3) else data
        for i in order:
            if attempt == 2 and wired:
                break
            if i != order[0] and self.chance(0.4):
                continue
            array = sample.operands[i]
            assert array is not None
            fitting = [v for v in self.visible() if v.dtype == array.dtype and self.unify(array.shape, v, sizes, commit=False)]
            if fitting:
                wired[i] = self.pick_value(fitting)
                self.unify(array.shape, wired[i], sizes, commit=True)
        out: list[Value | None] = []
        for i, a in enumerate(sample.operands):
            if a is None:
                out.append(None)
            elif i in wired:
                out.append(wired[i])
            elif _steers(sample, i):
                out.append(self.steering(a, sizes) if attempt == 0 and self.chance(0.7) else self.add_weight(a))
            else:
                out.append(self.fresh(a, sizes, unusual, attempt, first=i == data[0]))
        return out

    def unify(self, shape: tuple[int, ...], value: Value, sizes: dict[int, Dim], commit: bool) -> bool:
        """Whether the sizes of a sample's operand can stand for the dimensions of the value."""
        if len(shape) != value.rank:
            return False
        known = dict(sizes)
        for n, dim in zip(shape, value.dims):
            if known.setdefault(n, dim) != dim:
                return False
        if commit:
            sizes.update(known)
        return True

    def dimension(self, n: int, sizes: dict[int, Dim]) -> Dim:
        """The dimension that stands for a size: one that a value brought, a symbol, or the size itself."""
        if n not in sizes:
            sizes[n] = self.pick(list(self.symbols.values())) if n > 1 and self.chance(0.4) else (n,) * CALLS
        return sizes[n]

    def fresh(self, like: numpy.ndarray, sizes: dict[int, Dim], unusual: bool, attempt: int, first: bool) -> Value:
        """A new input or weight with elements of the sample's operand."""
        dims = [self.dimension(n, sizes) for n in like.shape]
        if max(math.prod(d[call] for d in dims) for call in range(CALLS)) > MOST_ELEMENTS:
            dims = [(n,) * CALLS for n in like.shape]
        elements = like.ravel()
        if like.dtype.kind == "f" and not unusual:
            elements = elements[numpy.isfinite(elements)]
        if elements.size == 0:
            elements = numpy.zeros(1, like.dtype)

        def draw(call: int) -> numpy.ndarray:
            shape = tuple(d[call] for d in dims)
            if shape == like.shape and (like.size <= 1 or self.chance(0.2)):
                return like.copy()
            return numpy.asarray(self.rng.choice(elements, shape)).reshape(shape).astype(like.dtype)

        given = like.dtype.kind in "biuf"  # what NumPy has
        if not given:
            dims = [(d[0],) * CALLS for d in dims]
        static = all(len(set(d)) == 1 for d in dims)
        weight = not given or (static and (attempt == 2 or self.chance(0.2 if first else 0.6 if like.ndim else 0.9)))
        if weight and static:
            return self.add_weight(draw(0))
        return self.add_input([draw(call) for call in range(CALLS)])

    def steering(self, like: numpy.ndarray, sizes: dict[int, Dim]) -> Value:
        """A vector of sizes: what equals a size of the sample is the dimension that stands for it, computed where it is a symbol."""
        known = [sizes.get(int(n)) if n > 1 else None for n in like.ravel()]
        if not any(known) or like.ndim != 1:
            return self.add_weight(like)
        if all(d is None or len(set(d)) == 1 for d in known):
            return self.add_weight(numpy.array([n if d is None else d[0] for n, d in zip(like.ravel(), known)], like.dtype))
        parts: list[Value] = []
        for n, d in zip(like.ravel(), known):
            source = self.size_of(d) if d and len(set(d)) > 1 else None
            if d and len(set(d)) > 1 and source is None:
                return self.add_weight(like)
            parts.append(source or self.add_weight(numpy.array([d[0] if d else n], numpy.int64)))
        joined = self.apply("Concat", parts, axis=0) if len(parts) > 1 else parts[0]
        if joined is not None and like.dtype != numpy.int64:
            joined = self.apply("Cast", [joined], to=element_type(like.dtype))
        return joined or self.add_weight(like)

    def size_of(self, dim: Dim) -> Value | None:
        """A vector of one element: the size of a dimension that a value has."""
        having = [(v, k) for v in self.visible() if not v.constant for k, d in enumerate(v.dims) if d == dim]
        if not having:
            return None
        value, k = self.pick(having)
        shape = self.apply("Shape", [value])
        return shape and self.apply("Gather", [shape, self.add_weight(numpy.array([k], numpy.int64))], axis=0)

    def apply(self, op: str, operands: Sequence[Value], **attributes: Any) -> Value | None:
        """The first result of an operator."""
        node = helper.make_node(op, [v.name for v in operands], [self.names.fresh("v")], **attributes)
        made = self.add_node(node, operands)
        return made[0] if made else None

    # ---- quantisation
    def quantise(self) -> bool:
        """A floating-point value quantised, with a scale of the size that it needs, and most times dequantised."""
        values = [v for v in self.visible() if v.dtype == numpy.float32 and v.arrays[0].size > 1]
        if not values or self.opset < 10:
            return False
        value = self.pick_value(values)
        most = max(float(numpy.abs(a).max(initial=0)) for a in value.arrays) or 1.0
        signed = self.chance(0.5)
        axis = int(self.rng.integers(value.rank))
        per_axis = self.opset >= 13 and len(set(value.dims[axis])) == 1 and self.chance(0.3)
        count = value.dims[axis][0] if per_axis else 1
        scale = (most / (127 if signed else 255) * self.rng.uniform(0.5, 2, count)).astype(numpy.float32)
        zero = self.rng.integers(-20, 20, count).astype(numpy.int8) if signed else self.rng.integers(0, 255, count).astype(numpy.uint8)
        shape = (count,) if per_axis else ()
        attributes = {"axis": axis} if per_axis else {}
        parameters = [self.add_weight(scale.reshape(shape)), self.add_weight(zero.reshape(shape))]
        q = self.apply("QuantizeLinear", [value, *parameters], **attributes)
        if q is not None and self.chance(0.8):
            return self.apply("DequantizeLinear", [q, *parameters], **attributes) is not None
        return q is not None

    # ---- whole graphs
    def outputs(self) -> list[Value]:
        """The values that nothing reads, and some of the rest."""
        names = {o for n in self.nodes for o in n.output}
        mine = [v for v in self.values if v.name in names]
        return [v for v in mine if v.uses == 0 or self.chance(0.1)] or mine[-1:]


def draw_case(source: Source, seed: int) -> Case | None:
    """The model of a seed; None where nothing could be drawn."""
    from attention import draw_attention
    from control import draw_control

    rng = numpy.random.default_rng([25, seed])
    opset = int(rng.choice(OPSETS, p=_weights()))
    symbols = {}
    for name in ("b", "s", "n")[: int(rng.integers(1, 4))]:
        symbols[name] = tuple(int(n) for n in rng.choice(SIZES, CALLS, replace=False))
    draw = Draw(source, rng, Names(), opset, symbols)
    wanted = int(min(40, 1 + rng.geometric(0.12)))
    apart = numpy.random.default_rng([26, seed])  # models without attention are what they would be without this
    if apart.random() < ATTENTION:
        draw_attention(draw, apart)
    for _ in range(4 * wanted):
        if len(draw.nodes) >= wanted:
            break
        kind = rng.random()
        if kind < 0.06:
            draw_control(draw)
        elif kind < 0.14:
            draw.quantise()
        else:
            draw.step()
    return finish(draw) if draw.nodes else None


def _weights() -> numpy.ndarray:
    """Newer opsets are more likely."""
    weights = numpy.arange(1.0, len(OPSETS) + 1)
    return weights / weights.sum()


def finish(draw: Draw) -> Case:
    """The model: symbols where the sizes of the calls differ, a name of its own for those that no symbol has."""
    names = {d: name for name, d in draw.symbols.items()}

    def dim(d: Dim) -> int | str:
        if len(set(d)) == 1:
            return d[0]
        return names.setdefault(d, f"d{len(names)}")

    infos = [helper.make_tensor_value_info(v.name, element_type(v.dtype), [dim(d) for d in v.dims]) for v in draw.inputs]
    outputs = [helper.make_value_info(v.name, helper.make_tensor_type_proto(element_type(v.dtype), None)) for v in draw.outputs()]
    weights = [numpy_helper.from_array(v.arrays[0], v.name) for v in draw.weights]
    graph = helper.make_graph(draw.nodes, "drawn", infos, outputs, weights)
    calls: list[Feeds] = [{v.name: v.arrays[k] for v in draw.inputs} for k in range(CALLS)]
    return Case(prune(make_model(graph, draw.opset)), calls)


def prune(model: onnx.ModelProto) -> onnx.ModelProto:
    """Without nodes, weights and imports that nothing needs. Inputs stay: a model may have some that nothing reads."""
    from reduce import remove_unused

    return remove_unused(model)


def _same_features(sample: Sample, operands: Sequence[Value | None]) -> bool:
    pairs = [(a, v) for a, v in zip(sample.operands, operands) if a is not None and v is not None and a.ndim]
    return all(v.dims[-1] == (a.shape[-1],) * CALLS for a, v in pairs)


def _steers(sample: Sample, i: int) -> bool:
    """Whether an operand holds sizes, axes or counts: a short vector or scalar of integers behind the first operand."""
    a = sample.operands[i]
    return a is not None and i > 0 and a.ndim <= 1 and a.size <= 8 and a.dtype in (numpy.int64, numpy.int32)
