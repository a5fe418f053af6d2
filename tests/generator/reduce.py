"""Makes a failing case smaller: fewer outputs, calls, nodes, sizes, attributes, plainer values, as long as it fails in the same way."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import exact
import numpy
import onnx
import oracle
from case import Case
from onnx import helper, numpy_helper

Fails = Callable[[Case], bool]


def reduce_apart(case: Case, fails: Fails, seconds: float) -> Case:
    """Reduces in a process of its own: ONNX Runtime may not survive a candidate. Yields the smallest case until then."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "best"
        child = os.fork()
        if child == 0:
            try:
                Reducer(fails, seconds, lambda best: _write(file, best)).reduce(case)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        return Case.parse(file.read_text()) if file.exists() else case


def _write(file: Path, case: Case) -> None:
    part = file.with_suffix(".part")
    part.write_text(case.text())
    part.replace(file)


def _copy(case: Case) -> Case:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    return Case(model, [dict(feeds) for feeds in case.calls])


def _read(graph: onnx.GraphProto) -> set[str]:
    """Names that nodes of the graph and of its subgraphs read, and its outputs."""
    out = {v.name for v in graph.output}
    for node in graph.node:
        out.update(node.input)
        for a in node.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                out |= _read(a.g)
    return out


def _sweep(graph: onnx.GraphProto) -> None:
    while True:
        used = _read(graph)
        nodes = [n for n in graph.node if any(o in used for o in n.output)]
        if len(nodes) == len(graph.node):
            break
        _replace(graph.node, nodes)
    for node in graph.node:
        for a in node.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                _sweep(a.g)
    used = _read(graph)
    _replace(graph.initializer, [t for t in graph.initializer if t.name in used])


def _replace(field: object, items: list[object]) -> None:
    copies = []
    for item in items:
        copy = type(item)()
        copy.CopyFrom(item)  # type: ignore[attr-defined]
        copies.append(copy)
    del field[:]  # type: ignore[attr-defined]
    field.extend(copies)  # type: ignore[attr-defined]


def remove_unused(model: onnx.ModelProto) -> onnx.ModelProto:
    """Without nodes and weights that no output needs, and without imports of domains that no node has."""
    _sweep(model.graph)
    domains = {""}

    def visit(graph: onnx.GraphProto) -> None:
        for node in graph.node:
            domains.add(node.domain)
            for a in node.attribute:
                if a.type == onnx.AttributeProto.GRAPH:
                    visit(a.g)

    visit(model.graph)
    _replace(model.opset_import, [i for i in model.opset_import if i.domain in domains])
    return model


def _tidy(case: Case) -> Case:
    """Without inputs that nothing reads, either."""
    remove_unused(case.model)
    used = _read(case.model.graph)
    _replace(case.model.graph.input, [v for v in case.model.graph.input if v.name in used])
    names = {v.name for v in case.model.graph.input}
    case.calls = [{k: a for k, a in feeds.items() if k in names} for feeds in case.calls]
    return case


class Reducer:
    """`fails`: whether a case fails as the first one did. `seconds`: when to stop trying. `better`: given each smaller case."""

    def __init__(self, fails: Fails, seconds: float = 120, better: Callable[[Case], None] = lambda case: None) -> None:
        self._fails, self._end, self._better = fails, time.monotonic() + seconds, better

    def reduce(self, case: Case) -> Case:
        best = _tidy(_copy(case))
        if not self._fails(best):
            return case
        steps = (_fewer_calls, _one_output, _earlier_outputs, _cut, _bypass, _body_bypass, _weights_of_inputs, _static_dims, _smaller_dims, _plain_attributes, _plain_values)
        changed = True
        while changed and time.monotonic() < self._end:
            changed = False
            for step in steps:
                progress = True
                while progress and time.monotonic() < self._end:
                    progress = False
                    for candidate in step(best):
                        if time.monotonic() > self._end:
                            break
                        try:
                            candidate = _tidy(candidate)
                            failing = not is_undefined(candidate) and self._fails(candidate)
                        except Exception:  # noqa: BLE001  a candidate that is no valid model
                            failing = False
                        if failing:
                            best, progress, changed = candidate, True, True
                            self._better(best)
                            break
        return best


def _fewer_calls(case: Case) -> Iterator[Case]:
    if len(case.calls) > 1:
        for k in range(len(case.calls)):
            yield Case(_copy(case).model, [case.calls[k]])
        for k in range(len(case.calls)):
            yield Case(_copy(case).model, case.calls[:k] + case.calls[k + 1 :])


def _one_output(case: Case) -> Iterator[Case]:
    if len(case.model.graph.output) > 1:
        for output in case.model.graph.output:
            yield _with_outputs(case, [output.name])


def _with_outputs(case: Case, names: list[str]) -> Case:
    out = _copy(case)
    _replace(out.model.graph.output, [onnx.ValueInfoProto(name=n) for n in names])
    return out


def _earlier_outputs(case: Case) -> Iterator[Case]:
    """One value that a node computes as the only output, the earliest first."""
    last = {v.name for v in case.model.graph.output}
    for node in case.model.graph.node:
        for name in node.output:
            if name and (name not in last or len(last) > 1) and name not in case.model.graph.node[-1].output:
                yield _with_outputs(case, [name])


def _values(case: Case) -> dict[str, list[numpy.ndarray]]:
    """The results of the model's own nodes, in each call."""
    wide = _copy(case).model
    names = list(dict.fromkeys(o for n in wide.graph.node for o in n.output if o))
    _replace(wide.graph.output, [onnx.ValueInfoProto(name=n) for n in names])
    results = [exact.run(wide, feeds, onnxruntime=False).outputs for feeds in case.calls] if exact.is_exact(case) else oracle.run(wide, case.calls)
    return {name: [numpy.asarray(r[i]) for r in results] for i, name in enumerate(names)}


def is_undefined(case: Case) -> bool:
    """Whether ONNX Runtime is known to be wrong about one of the model's own nodes, or ONNX leaves its results undefined."""
    from draw import Value
    from wrong import onnxruntime_is_wrong

    values = {v.name: Value(v.name, [feeds[v.name] for feeds in case.calls]) for v in case.model.graph.input}
    for t in case.model.graph.initializer:
        values[t.name] = Value(t.name, [numpy_helper.to_array(t)] * len(case.calls), constant=True)
    values |= {name: Value(name, arrays) for name, arrays in _values(case).items()}
    for node in case.model.graph.node:
        results = [[values[o].arrays[k] for o in node.output if o] for k in range(len(case.calls))]
        if onnxruntime_is_wrong(node, [values[i] for i in node.input if i], results):
            return True
    return False


def _cut(case: Case) -> Iterator[Case]:
    """A node's results as inputs in its place: the last node that is not an output's first, so that most goes at once."""
    if len(case.model.graph.node) < 2:
        return
    values = _values(case)
    outputs = {v.name for v in case.model.graph.output}
    for node in reversed(case.model.graph.node):
        names = [o for o in node.output if o]
        if any(o in outputs for o in names) or any(isinstance(values[o][0], list) or values[o][0].dtype.kind not in "biuf" for o in names):
            continue
        out = _copy(case)
        _replace(out.model.graph.node, [n for n in out.model.graph.node if not set(names) & set(n.output)])
        for name in names:
            _add_input(out, name, values[name])
        yield out


def _add_input(case: Case, name: str, arrays: list[numpy.ndarray]) -> None:
    shapes = list(zip(*(a.shape for a in arrays)))
    dims: list[int | str] = [d[0] if len(set(d)) == 1 else "m" + "_".join(map(str, d)) for d in shapes]
    elem = onnx.TensorProto.STRING if arrays[0].dtype.kind == "O" else helper.np_dtype_to_tensor_dtype(arrays[0].dtype)
    case.model.graph.input.append(helper.make_tensor_value_info(name, elem, dims))
    for feeds, array in zip(case.calls, arrays):
        feeds[name] = array


def _rename_reads(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        for i, name in enumerate(node.input):
            if name == old:
                node.input[i] = new
        for a in node.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                _rename_reads(a.g, old, new)


def _bypass(case: Case) -> Iterator[Case]:
    """Lets the readers of a node's result read one of its operands instead."""
    outputs = {v.name for v in case.model.graph.output}
    for k, node in enumerate(case.model.graph.node):
        for result in node.output:
            if not result or result in outputs:
                continue
            for operand in dict.fromkeys(node.input):
                if operand:
                    out = _copy(case)
                    del out.model.graph.node[k]
                    _rename_reads(out.model.graph, result, operand)
                    yield out


def _bodies(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    for node in graph.node:
        for a in node.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                yield a.g
                yield from _bodies(a.g)


def _body_bypass(case: Case) -> Iterator[Case]:
    """The same within subgraphs; outputs of a body that are read by a name of their own stay by an Identity."""
    for b, body in enumerate(list(_bodies(case.model.graph))):
        for k, node in enumerate(body.node):
            if node.op_type == "Identity":
                continue
            for result in node.output:
                for operand in dict.fromkeys(node.input):
                    if not operand or not result:
                        continue
                    out = _copy(case)
                    other = list(_bodies(out.model.graph))[b]
                    del other.node[k]
                    if result in {v.name for v in body.output}:
                        other.node.insert(k, helper.make_node("Identity", [operand], [result]))
                    _rename_reads(other, result, operand)
                    for n in other.node:  # the Identity itself reads the operand
                        if list(n.output) == [result]:
                            n.input[0] = operand
                    yield out


def _weights_of_inputs(case: Case) -> Iterator[Case]:
    """A weight in the place of an input that is the same in each call, and an input in the place of a weight that is none of sizes."""
    for v in case.model.graph.input:
        arrays = [feeds[v.name] for feeds in case.calls]
        if len({(a.shape, a.tobytes()) for a in arrays}) == 1 and arrays[0].ndim <= 1 and arrays[0].dtype.kind in "iu" and arrays[0].size <= 8:
            out = _copy(case)
            _replace(out.model.graph.input, [i for i in out.model.graph.input if i.name != v.name])
            for feeds in out.calls:
                del feeds[v.name]
            out.model.graph.initializer.append(numpy_helper.from_array(arrays[0], v.name))
            yield out


def _static_dims(case: Case) -> Iterator[Case]:
    """Sizes in the place of symbols that every call gives the same size."""
    if len(case.calls) != 1:
        return
    if not any(d.dim_param for v in case.model.graph.input for d in v.type.tensor_type.shape.dim):
        return
    out = _copy(case)
    for v in out.model.graph.input:
        for d, n in zip(v.type.tensor_type.shape.dim, out.calls[0][v.name].shape):
            d.dim_value = n
    yield out


def _smaller_dims(case: Case) -> Iterator[Case]:
    """Every size n of inputs and weights smaller, wherever it is."""
    graph = case.model.graph
    sizes = {n for feeds in case.calls for a in feeds.values() for n in a.shape} | {n for t in graph.initializer for n in t.dims}
    for n in sorted((n for n in sizes if n > 1), reverse=True):
        for smaller in sorted({1, 2, n // 2} & set(range(1, n))):
            out = _copy(case)
            out.calls = [{k: _cropped(a, n, smaller) for k, a in feeds.items()} for feeds in case.calls]
            for v in out.model.graph.input:
                for d in v.type.tensor_type.shape.dim:
                    if d.dim_value == n:
                        d.dim_value = smaller
            for t in out.model.graph.initializer:
                if n in t.dims:
                    t.CopyFrom(numpy_helper.from_array(_cropped(numpy_helper.to_array(t), n, smaller), t.name))
            yield out


def _cropped(array: numpy.ndarray, n: int, smaller: int) -> numpy.ndarray:
    return numpy.ascontiguousarray(array[tuple(slice(0, smaller) if size == n else slice(None) for size in array.shape)]) if array.ndim else array


def _plain_attributes(case: Case) -> Iterator[Case]:
    for k, node in enumerate(case.model.graph.node):
        for i, a in enumerate(node.attribute):
            if a.type != onnx.AttributeProto.GRAPH:
                out = _copy(case)
                del out.model.graph.node[k].attribute[i]
                yield out
        if len(node.output) > 1:
            used = _read(case.model.graph)
            for i, name in enumerate(node.output):
                if name and name not in used:
                    out = _copy(case)
                    out.model.graph.node[k].output[i] = ""
                    yield out


def _plain_values(case: Case) -> Iterator[Case]:
    """Floats that are zeros, ones, or of few digits."""
    for name in {k for feeds in case.calls for k in feeds}:
        arrays = [feeds[name] for feeds in case.calls]
        if arrays[0].dtype.kind != "f":
            continue
        for plain in (numpy.zeros_like, numpy.ones_like, lambda a: numpy.round(a).astype(a.dtype), lambda a: numpy.round(a, 1).astype(a.dtype)):
            with numpy.errstate(all="ignore"):
                changed = [plain(a) for a in arrays]
            if all(numpy.array_equal(a, b, equal_nan=True) for a, b in zip(changed, arrays)) or _plainness(arrays) <= _plainness(changed):
                continue
            out = _copy(case)
            for feeds, array in zip(out.calls, changed):
                feeds[name] = array
            yield out


def _plainness(arrays: list[numpy.ndarray]) -> int:
    """Characters that the elements take as text."""
    return sum(len(repr(float(x))) for a in arrays for x in a.ravel())
