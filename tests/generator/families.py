"""Models of families that samples of records rarely make: attention of few queries and keys in its spellings, reductions whose result
meets a select that sizes decide, bodies that read sizes. Like every drawn node, each one is run by ONNX Runtime first.
"""

from __future__ import annotations

from typing import Any

import numpy
from case import Case
from control import _graph
from draw import CALLS, Dim, Draw, Names, Source, Value, finish
from onnx import helper

COUNTS = (1, 1, 1, 2, 3, 5, 7, 8, 16, 17, 31, 33)
WIDTHS = (1, 3, 8, 16, 33, 40, 64, 72, 80, 128)
HEADS = (1, 2, 3, 4, 5, 7, 8)


def draw_family(source: Source, seed: int) -> Case | None:
    """The model of a seed; None where ONNX Runtime refuses it."""
    rng = numpy.random.default_rng([40, seed])
    draw = Draw(source, rng, Names(), 23, {})
    made = draw.pick((_attention, _attention, _decided_select, _body_of_sizes))(draw)
    return finish(draw) if made and draw.nodes else None


def _dim(draw: Draw, sizes: tuple[int, ...]) -> Dim:
    """A number, or a symbol that each call gives another size."""
    if draw.chance(0.5):
        return (draw.pick(sizes),) * CALLS
    return tuple(int(n) for n in draw.rng.choice(sorted(set(sizes)), CALLS, replace=False))


def _input(draw: Draw, dims: list[Dim], dtype: Any = numpy.float32) -> Value:
    def array(call: int) -> numpy.ndarray:
        shape = tuple(d[call] for d in dims)
        values = draw.rng.integers(0, 2, shape) if dtype == bool else draw.rng.uniform(-2, 2, shape)
        return values.astype(dtype)

    return draw.add_input([array(call) for call in range(CALLS)])


def _weight(draw: Draw, *values: Any, dtype: Any = numpy.int64) -> Value:
    return draw.add_weight(numpy.array(values if len(values) != 1 else values[0], dtype))


def _fixed(size: int) -> Dim:
    return (size,) * CALLS


def _attention(draw: Draw) -> bool:
    batch, queries, keys = _dim(draw, (1, 2, 3)), _dim(draw, COUNTS), _dim(draw, COUNTS)
    heads, shared = draw.pick(HEADS), draw.pick((1, 1, 1, 2, 3))
    width, out_width = draw.pick(WIDTHS), draw.pick(WIDTHS)
    if draw.chance(0.7):
        out_width = width
    q = _input(draw, [batch, _fixed(heads * shared), queries, _fixed(width)])
    k, v = (_input(draw, [batch, _fixed(heads), keys, _fixed(w)]) for w in (width, out_width))
    mask = None
    if draw.chance(0.6):
        outer = draw.pick(([], [_fixed(1), _fixed(1)], [batch, _fixed(1)], [batch, _fixed(heads * shared)]))
        rows = draw.pick((queries, _fixed(1))) if outer else queries
        mask = _input(draw, [*outer, rows, keys], draw.pick((bool, numpy.float32)))
    if draw.chance(0.5):
        attributes: dict[str, Any] = {"is_causal": 1} if draw.chance(0.4) and mask is None else {}
        if draw.chance(0.3):
            attributes["scale"] = 0.3
        if draw.chance(0.2):
            attributes["softcap"] = 5.0
        return draw.apply("Attention", [q, k, v, *([mask] if mask else [])], **attributes) is not None
    return _spelled_attention(draw, q, k, v, mask, shared)


def _spelled_attention(draw: Draw, q: Value, k: Value, v: Value, mask: Value | None, shared: int) -> bool:
    """Product, mask, softmax, product, as exporters write them."""
    if shared > 1:
        repeated = []
        for x in (k, v):
            wide = draw.apply("Unsqueeze", [x, _weight(draw, [2])])
            wide = wide and draw.apply("Tile", [wide, _weight(draw, 1, 1, shared, 1, 1)])
            repeated.append(wide and draw.apply("Reshape", [wide, _weight(draw, 0, x.dims[1][0] * shared, -1, x.dims[3][0])]))
        if not all(repeated):
            return False
        k, v = repeated  # type: ignore[assignment]
    turned = draw.apply("Transpose", [k], perm=[0, 1, 3, 2])
    scores = turned and draw.apply("MatMul", [q, turned])
    scores = scores and draw.apply("Mul", [scores, _weight(draw, 0.25, dtype=numpy.float32)])
    if scores and mask:
        scores = draw.apply("Add", [scores, mask]) if mask.dtype == numpy.float32 else draw.apply("Where", [mask, scores, _weight(draw, -1e4, dtype=numpy.float32)])
    weights = scores and draw.apply("Softmax", [scores], axis=-1)
    out = weights and draw.apply("MatMul", [weights, v])
    if out and draw.chance(0.5):
        out = draw.apply("Transpose", [out], perm=[0, 2, 1, 3])
    return out is not None


def _decided_select(draw: Draw) -> bool:
    """A reduction, or what stands behind one, and a select whose condition follows from sizes."""
    rows, columns = _dim(draw, COUNTS), _dim(draw, COUNTS)
    if draw.chance(0.4):
        rows = _fixed(1)
    x: Value | None = _input(draw, [rows, columns])
    if draw.chance(0.3):
        turned = draw.apply("Transpose", [x], perm=[1, 0])
        x = turned and draw.apply("MatMul", [x, turned])
    kind = draw.pick(("Softmax", "ArgMax", "ReduceSum", "LayerNorm"))
    if x and kind == "Softmax":
        x = draw.apply("Softmax", [x], axis=draw.pick((0, 1)))
    elif x and kind == "ArgMax":
        x = draw.apply("ArgMax", [x], axis=draw.pick((0, 1)), keepdims=1)
    elif x and kind == "ReduceSum":
        x = draw.apply("ReduceSum", [x, _weight(draw, [draw.pick((0, 1))])], keepdims=1)
    elif x:
        mean = draw.apply("ReduceMean", [x, _weight(draw, [1])], keepdims=1)
        x = mean and draw.apply("Sub", [x, mean])
    if x is None:
        return False
    if draw.chance(0.5):
        y = draw.apply("Trilu", [x, _weight(draw, draw.pick((-40, -1, 0, 1, 40)))], upper=draw.pick((0, 1)))
    else:
        shape = draw.apply("Shape", [x])
        size = shape and draw.apply("Gather", [shape, _weight(draw, 1)], axis=0)
        index = size and draw.apply("Range", [_weight(draw, 0), size, _weight(draw, 1)])
        decided = index and draw.apply(draw.pick(("GreaterOrEqual", "Less")), [index, draw.pick((size, _weight(draw, 0)))])
        zero = draw.add_weight(numpy.zeros((), x.dtype))
        y = decided and draw.apply("Where", [decided, *draw.pick(([x, zero], [zero, x]))])
    if y and y.dtype == numpy.float32 and draw.chance(0.5):
        y = draw.apply(draw.pick(("Tanh", "Relu", "Exp")), [y])
    if y and draw.chance(0.3):
        x.uses = 0  # an output, too
    return y is not None


def _body_of_sizes(draw: Draw) -> bool:
    """A Scan, Loop or If whose body reads a size from around it."""
    rows, columns = _dim(draw, COUNTS), _dim(draw, COUNTS)
    x = _input(draw, [rows, columns])
    if draw.chance(0.4):
        shape = draw.apply("Shape", [x])
        bound = shape and draw.apply("Gather", [shape, _weight(draw, draw.pick((0, 1)))], axis=0)
    else:
        bound = draw.add_input([numpy.array(int(draw.rng.integers(0, 9)), numpy.int64) for _ in range(CALLS)])
    if bound is None:
        return False
    kind = draw.pick(("Scan", "Loop", "If"))
    row = x if kind == "If" else Value(draw.names.fresh("r"), [a[0] for a in x.arrays])
    child = Draw(draw.source, draw.rng, draw.names, draw.opset, draw.symbols, outer=draw, depth=1)
    child.values = [row]
    total = _of_size(child, bound)
    y = total and child.apply("Add", [row, total])
    if y is None:
        return False
    name = [draw.names.fresh("v")]
    if kind == "Scan":
        node = helper.make_node("Scan", [x.name], name, body=_graph(child, [row], [y]), num_scan_inputs=1)
    elif kind == "If":
        other = Draw(draw.source, draw.rng, draw.names, draw.opset, draw.symbols, outer=draw, depth=1)
        same = other.apply("Identity", [x])
        flag = draw.add_input([numpy.array(draw.chance(0.5)) for _ in range(CALLS)])
        assert same
        node = helper.make_node("If", [flag.name], name, then_branch=_graph(child, [], [y]), else_branch=_graph(other, [], [same]))
        return draw.add_node(node, [flag, x, bound]) is not None
    else:
        i = Value(draw.names.fresh("i"), [numpy.array(0, numpy.int64)] * CALLS)
        on = Value(draw.names.fresh("c"), [numpy.array(True)] * CALLS)
        goes_on = child.apply("Identity", [on])
        first = draw.apply("Gather", [x, _weight(draw, 0)], axis=0)
        if goes_on is None or first is None:
            return False
        trips = draw.add_input([numpy.array(int(draw.rng.integers(0, 5)), numpy.int64) for _ in range(CALLS)])
        node = helper.make_node("Loop", [trips.name, "", first.name], name, body=_graph(child, [i, on, row], [goes_on, y]))
        return draw.add_node(node, [trips, first, bound]) is not None
    return draw.add_node(node, [x, bound]) is not None


def _of_size(draw: Draw, bound: Value) -> Value | None:
    """A number computed from as many elements as the bound says."""
    kind = draw.pick(("Range", "ConstantOfShape", "Expand", "Tile"))
    if kind == "Range":
        whole = draw.apply("Range", [_weight(draw, 0), bound, _weight(draw, 1)])
        whole = whole and draw.apply("Cast", [whole], to=1)
    else:
        size = draw.apply("Reshape", [bound, _weight(draw, [1])])
        one = draw.add_weight(numpy.ones(1, numpy.float32))
        if kind == "ConstantOfShape":
            whole = size and draw.apply("ConstantOfShape", [size])
        else:
            whole = size and draw.apply(kind, [one, size])
    return whole and draw.apply("ReduceSum", [whole], keepdims=0)
