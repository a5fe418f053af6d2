"""Draws If, Loop and Scan: their bodies are drawn as models are, on values of the first iteration, and read values around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import onnx
from draw import CALLS, Draw, Value, element_type, type_of
from onnx import helper

DEEPEST = 2  # bodies within bodies


def draw_control(draw: Draw) -> bool:
    if draw.depth >= DEEPEST:
        return False
    saved = (len(draw.root().inputs), len(draw.root().values), len(draw.weights), len(draw.values), len(draw.nodes))
    drawn = draw.pick((_if, _loop, _scan))(draw)
    if not drawn:
        draw.drop_after(saved)
    return drawn


def _body(draw: Draw, inputs: Sequence[Value]) -> Draw:
    child = Draw(draw.source, draw.rng, draw.names, draw.opset, draw.symbols, outer=draw, depth=draw.depth + 1)
    child.values = list(inputs)
    return child


def _fill(child: Draw, most: int) -> None:
    for _ in range(int(child.rng.integers(1, most + 1))):
        if child.chance(0.1):
            draw_control(child)
        else:
            child.step()


def _computed(child: Draw) -> list[Value]:
    names = {o for n in child.nodes for o in n.output}
    return [v for v in child.values if v.name in names]


def _result(child: Draw, like: Value, same_dims: bool = True) -> Value | None:
    """A value that the body computes, of the dtype and dimensions of another."""
    fitting = [v for v in _computed(child) if v.dtype == like.dtype and v.rank == like.rank and (v.dims == like.dims or not same_dims)]
    if fitting:
        return fitting[-1]
    return child.apply("Tanh" if like.dtype == numpy.float32 else "Identity", [like])


def _graph(child: Draw, inputs: Sequence[Value], outputs: Sequence[Value]) -> onnx.GraphProto:
    """Types of inputs are declared with sizes or without."""
    weights = [onnx.numpy_helper.from_array(v.arrays[0], v.name) for v in child.weights]
    untyped = [helper.make_tensor_type_proto(element_type(v.dtype), None) for v in outputs]
    infos = [helper.make_value_info(v.name, type_of(v) if child.chance(0.5) else helper.make_tensor_type_proto(element_type(v.dtype), None)) for v in inputs]
    results = [helper.make_value_info(v.name, t) for v, t in zip(outputs, untyped)]
    own = {v.name for v in (*inputs, *outputs)}
    declared = [helper.make_value_info(v.name, helper.make_tensor_type_proto(element_type(v.dtype), None)) for v in _computed(child) if v.name not in own]
    return helper.make_graph(child.nodes, child.names.fresh("body"), infos, results, weights, value_info=declared)


def _captured(draw: Draw, graphs: Sequence[onnx.GraphProto]) -> list[Value]:
    """The values, of those that are visible around the graphs, that these read."""
    names: set[str] = set()

    def visit(graph: onnx.GraphProto) -> None:
        for node in graph.node:
            names.update(node.input)
            for a in node.attribute:
                if a.type == onnx.AttributeProto.GRAPH:
                    visit(a.g)

    for graph in graphs:
        visit(graph)
    return [v for v in draw.visible() if v.name in names]


def _add(draw: Draw, op: str, inputs: Sequence[Value | None], results: int, bodies: dict[str, onnx.GraphProto], **attributes: object) -> bool:
    names = ["" if v is None else v.name for v in inputs]
    node = helper.make_node(op, names, [draw.names.fresh("v") for _ in range(results)], **bodies, **attributes)
    return draw.add_node(node, [v for v in inputs if v] + _captured(draw, list(bodies.values()))) is not None


def _tensors(draw: Draw) -> list[Value]:
    """Values that a body can return: their types can be given to ONNX Runtime."""
    return [v for v in draw.visible() if v.dtype.kind in "biuf" and not v.constant]


def _condition(draw: Draw) -> Value | None:
    """A flag: of a value's elements, of a size, or an input."""
    kind = draw.pick(("elements", "size", "input"))
    floats = [v for v in _tensors(draw) if v.dtype == numpy.float32 and v.rank]
    if kind == "elements" and floats:
        total = draw.apply("ReduceSum", [draw.pick_value(floats)], keepdims=0)
        return total and draw.apply("Greater", [total, draw.add_weight(numpy.array(0.1, numpy.float32))])
    if kind == "size" and floats:
        shape = draw.apply("Shape", [draw.pick_value(floats)])
        size = shape and draw.apply("Gather", [shape, draw.add_weight(numpy.array(0, numpy.int64))])
        return size and draw.apply("Greater", [size, draw.add_weight(numpy.array(draw.pick((1, 3, 6)), numpy.int64))])
    return draw.add_input([numpy.array(draw.chance(0.5)) for _ in range(CALLS)])


def _if(draw: Draw) -> bool:
    values = _tensors(draw)
    if not values:
        return False
    like = draw.pick_value(values)
    condition = _condition(draw)
    if condition is None or condition.rank:
        return False
    same_dims = not draw.chance(0.15)
    bodies = {}
    for name in ("then_branch", "else_branch"):
        child = _body(draw, [])
        _fill(child, 4)
        result = _result(child, like, same_dims)
        if result is None:
            return False
        bodies[name] = _graph(child, [], [result])
    return _add(draw, "If", [condition], 1, bodies)


def _carried(draw: Draw, child: Draw, inner: Sequence[Value]) -> list[Value] | None:
    out = []
    for v in inner:
        result = _result(child, v)
        if result is None or result.name in {o.name for o in out}:
            result = child.apply("Identity", [v])
        if result is None:
            return None
        out.append(result)
    return out


def _inner(draw: Draw, v: Value, first: bool = False) -> Value:
    return Value(draw.names.fresh("c"), [a[0] for a in v.arrays] if first else v.arrays)


def _loop(draw: Draw) -> bool:
    values = _tensors(draw)
    if not values:
        return False
    carried = [draw.pick_value(values) for _ in range(draw.pick((1, 1, 2)))]
    if draw.chance(0.5):
        trips = draw.add_weight(numpy.array(int(draw.rng.integers(0, 6)), numpy.int64))
    else:
        trips = draw.add_input([numpy.array(int(draw.rng.integers(0, 6)), numpy.int64) for _ in range(CALLS)])
    flag = draw.add_weight(numpy.array(True)) if draw.chance(0.5) else None
    step = Value(draw.names.fresh("i"), [numpy.array(0, numpy.int64)] * CALLS)
    going = Value(draw.names.fresh("c"), [numpy.array(True)] * CALLS)
    inner = [_inner(draw, v) for v in carried]
    child = _body(draw, [step, going, *inner])
    _fill(child, 5)
    results = _carried(draw, child, inner)
    if results is None:
        return False
    stacked = [v for v in _computed(child) if v.dtype.kind in "biuf" and v not in results][-1:] if draw.chance(0.6) else []
    if draw.chance(0.4):
        goes_on = child.apply("Less", [step, child.add_weight(numpy.array(draw.pick((0, 1, 3)), numpy.int64))])
    else:
        goes_on = child.apply("Identity", [going])
    if goes_on is None:
        return False
    body = _graph(child, [step, going, *inner], [goes_on, *results, *stacked])
    if not _add(draw, "Loop", [trips, flag, *carried], len(results) + len(stacked), {"body": body}):
        return False
    # Without iterations, ONNX Runtime makes up sizes of what is stacked: nothing reads it then.
    last = set(draw.nodes[-1].output[len(results) :])
    draw.values = [v for v in draw.values if v.name not in last or min(min(d) for d in v.dims) > 0]
    return True


def _scan(draw: Draw) -> bool:
    values = _tensors(draw)
    rows = [v for v in values if v.rank and min(v.dims[0]) > 0]
    if not rows:
        return False
    first = draw.pick_value(rows)
    same = [v for v in rows if v.dims[0] == first.dims[0]]
    scanned = [first] + ([draw.pick_value(same)] if draw.chance(0.3) else [])
    states = [draw.pick_value(values) for _ in range(draw.pick((0, 1, 1, 2)))]
    inner = [_inner(draw, v) for v in states]
    elements = [_inner(draw, v, first=True) for v in scanned]
    child = _body(draw, [*inner, *elements])
    _fill(child, 5)
    results = _carried(draw, child, inner)
    if results is None:
        return False
    stacked = [v for v in _computed(child) if v.dtype.kind in "biuf" and v not in results][-1:]
    if not stacked:
        identity = child.apply("Identity", [elements[0]])
        stacked = [identity] if identity else []
    if not stacked:
        return False
    directions = {}
    if draw.chance(0.3):
        directions["scan_input_directions"] = [int(draw.rng.integers(2)) for _ in scanned]
    if draw.chance(0.3):
        directions["scan_output_directions"] = [int(draw.rng.integers(2)) for _ in stacked]
    body = _graph(child, [*inner, *elements], [*results, *stacked])
    return _add(draw, "Scan", [*states, *scanned], len(results) + len(stacked), {"body": body}, num_scan_inputs=len(scanned), **directions)
