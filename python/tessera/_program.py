"""An FX graph as the JSON of torch.export's schema: what Tessera's importer of ATen graphs reads."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import Max

from ._composites import ATEN_NAMES

SCHEMA_MAJOR, SCHEMA_MINOR = 8, 14  # no newer member of the schema is written

_DTYPES = {
    "uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float16": 6, "float32": 7, "float64": 8,
    "complex32": 9, "complex64": 10, "complex128": 11, "bool": 12, "bfloat16": 13, "uint16": 28,
    "float8_e4m3fn": 29, "float8_e5m2": 30, "float8_e4m3fnuz": 31, "float8_e5m2fnuz": 32, "float8_e8m0fnu": 33,
    "uint32": 34, "uint64": 35,
}  # fmt: skip
Json = dict[str, Any]
_FORMATS = {"contiguous_format": 1, "channels_last": 2, "channels_last_3d": 3, "preserve_format": 4}


class NotExpressible(Exception):
    """A node, argument or value that the schema has no form for. str() says which."""


def dtype_number(dtype: torch.dtype) -> int:
    return _DTYPES.get(str(dtype).removeprefix("torch."), 0)


def _number(x: float) -> float | str:
    if math.isnan(x):
        return "NaN"
    return ("Infinity" if x > 0 else "-Infinity") if math.isinf(x) else x


def _expression(x: int | torch.SymInt) -> Json:
    """A size: an int or a SymInt."""
    if isinstance(x, int):
        return {"as_int": int(x)}
    hint: Any = x.node.hint if x.node.has_hint() else None
    return _written(x.node.expr, None if hint is None else int(hint))


@functools.lru_cache(maxsize=4096)
def _text(expr: sympy.Expr) -> str:
    return str(sympy.srepr(expr))


def _written(expr: sympy.Expr, hint: int | None = None) -> Json:
    if expr.is_Integer:
        return {"as_int": int(expr)}
    return {"as_expr": {"expr_str": _text(expr), "hint": None if hint is None else {"as_int": hint}}}


def size_expression(x: int | torch.SymInt) -> sympy.Expr:
    """A size or stride; strides of contiguous memory say Max(1, size), since memory without elements has such, too."""
    if isinstance(x, int):
        return sympy.Integer(x)
    return sympy.expand(x.node.expr.replace(lambda e: isinstance(e, (sympy.Max, Max)) and 1 in e.args and len(e.args) == 2,
                                            lambda e: next(a for a in e.args if a != 1)))  # fmt: skip


def _memory_order(shape: Sequence[Any], strides: Sequence[Any]) -> tuple[int, ...] | None:
    order: list[int] = []
    stride: Any = 1
    while len(order) < len(shape):
        for k in reversed(range(len(shape))):
            if k not in order and (shape[k] == 1 or strides[k] == stride):
                order.insert(0, k)
                stride = stride * shape[k] if isinstance(stride, int) else sympy.expand(stride * shape[k])
                break
        else:
            return None
    return tuple(order)


def memory_order(t: torch.Tensor) -> tuple[tuple[int, ...], bool]:
    """The dimensions of a tensor from the outermost in memory to the innermost, and whether it is dense so.

    An empty order: that of contiguous memory, which stands for tensors that are not dense, too. The same rule as the
    importer's of programs (frontend/fx/graph_builder.cpp).
    """
    sizes, strides = tuple(t.shape), t.stride()
    if not all(isinstance(s, int) for s in (*sizes, *strides)):
        sizes, strides = tuple(map(size_expression, sizes)), tuple(map(size_expression, strides))
    order = _memory_order(sizes, strides)
    if order is None:
        return (), False
    return (() if order == tuple(range(len(order))) else order), True


def _dense_strides(t: torch.Tensor) -> list[Json]:
    """The strides of a tensor that is dense in its memory order, as products of sizes; zeros of one that is not."""
    order, dense = memory_order(t)
    if not dense:
        return [{"as_int": 0} for _ in t.shape]
    strides: list[Json] = [{} for _ in t.shape]
    stride: sympy.Expr = sympy.Integer(1)
    for k in reversed(order or range(t.dim())):
        strides[k] = _written(stride)
        size: Any = t.shape[k]
        stride = stride * (size if isinstance(size, int) else size.node.expr)
    return strides


def tensor_meta(t: torch.Tensor) -> Json:
    if t.layout != torch.strided:
        raise NotExpressible(f"a tensor of layout {t.layout}")
    return {
        "dtype": dtype_number(t.dtype),
        "sizes": [_expression(s) for s in t.shape],
        "requires_grad": False,
        "device": {"type": t.device.type, "index": t.device.index},
        "strides": [_expression(s) for s in t.stride()],
        "storage_offset": _expression(t.storage_offset()),
        "layout": 7,
    }


class _Writer:
    """Collects the values of one program while its nodes are written."""

    def __init__(self, graph_nodes: Iterable[torch.fx.Node]):
        self.tensors: dict[str, Json] = {}
        self.sym_ints: dict[str, Json] = {}
        self.parts: dict[tuple[str, int], str] = {}  # (node, index) -> name of that result
        self.same: dict[str, str] = {}  # a further getitem of a result -> its name
        self.symbolic_nodes: list[Json] = []  # definitions of sizes that the nodes written read
        for n in graph_nodes:
            if n.target is operator.getitem and isinstance(n.args[0], torch.fx.Node) and isinstance(n.args[1], int):
                name = self.parts.setdefault((n.args[0].name, n.args[1]), n.name)
                if name != n.name:
                    self.same[n.name] = name

    # -- arguments
    def value(self, node: torch.fx.Node) -> Json:
        v = node.meta.get("val")
        name = self.same.get(node.name, node.name)
        if isinstance(v, torch.Tensor):
            return {"as_tensor": {"name": name}}
        if isinstance(v, (torch.SymInt, int)) and not isinstance(v, bool):
            if isinstance(v, int) or v.node.expr.is_Integer:
                return {"as_int": int(v)}
            if name not in self.sym_ints:  # what a size is equal to stands next to its name
                self.sym_ints[name] = _expression(v)
                out = [{"as_sym_int": {"as_name": name}}]
                self.symbolic_nodes.append({"target": "_operator.add", "inputs": [], "outputs": out, "metadata": {}})
            return {"as_sym_int": {"as_name": name}}
        if isinstance(v, (torch.SymBool, bool)):
            return {"as_sym_bool": {"as_name": name}}
        if isinstance(v, (torch.SymFloat, float)):
            return {"as_sym_float": {"as_name": name}}
        raise NotExpressible(f"'{node.name}', a {type(v).__name__}")

    def argument(self, a: Any) -> Json:
        if a is None:
            return {"as_none": True}
        if isinstance(a, torch.fx.Node):
            return self.value(a)
        if isinstance(a, bool):
            return {"as_bool": a}
        if isinstance(a, int):
            return {"as_int": a}
        if isinstance(a, float):
            return {"as_float": _number(a)}
        if isinstance(a, complex):
            return {"as_complex": {"real": _number(a.real), "imag": _number(a.imag)}}
        if isinstance(a, str):
            return {"as_string": a}
        if isinstance(a, torch.dtype):
            return {"as_scalar_type": dtype_number(a)}
        if isinstance(a, torch.memory_format):
            return {"as_memory_format": _FORMATS[str(a).removeprefix("torch.")]}
        if isinstance(a, torch.layout):
            return {"as_layout": 7 if a == torch.strided else 0}
        if isinstance(a, torch.device):
            return {"as_device": {"type": a.type, "index": a.index}}
        if isinstance(a, (list, tuple, torch.fx.immutable_collections.immutable_list)):
            return self.list_argument(list(a))
        raise NotExpressible(f"an argument of type {type(a).__name__}")

    def list_argument(self, items: list[Any]) -> Json:
        parts = [self.argument(i) for i in items]
        keys = {next(iter(p)) for p in parts}
        if keys <= {"as_int"}:
            return {"as_ints": [p["as_int"] for p in parts]}
        if keys == {"as_bool"}:
            return {"as_bools": items}
        if keys <= {"as_float", "as_int"}:
            return {"as_floats": [_number(float(next(iter(p.values())))) for p in parts]}
        if keys == {"as_string"}:
            return {"as_strings": items}
        if keys == {"as_tensor"}:
            return {"as_tensors": [p["as_tensor"] for p in parts]}
        if keys == {"as_tensor", "as_none"} or keys == {"as_none"}:
            return {"as_optional_tensors": parts}
        if keys <= {"as_int", "as_sym_int"}:
            return {"as_sym_ints": [p["as_sym_int"] if "as_sym_int" in p else p for p in parts]}
        if keys <= {"as_float", "as_sym_float", "as_int"}:
            return {"as_sym_floats": [p["as_sym_float"] if "as_sym_float" in p else {"as_float": float(p.popitem()[1])} for p in parts]}
        raise NotExpressible("a list of " + ", ".join(sorted(keys)))

    # -- values
    def define(self, name: str, v: Any) -> Json:
        if isinstance(v, torch.Tensor):
            self.tensors[name] = tensor_meta(v)
            return {"as_tensor": {"name": name}}
        if isinstance(v, (bool, torch.SymBool)):
            return {"as_sym_bool": {"as_name": name}}
        if isinstance(v, (int, torch.SymInt)):
            self.sym_ints[name] = _expression(v)
            return {"as_sym_int": {"as_name": name}}
        if isinstance(v, (float, torch.SymFloat)):
            return {"as_sym_float": {"as_name": name}}
        if v is None:
            return {"as_none": True}
        raise NotExpressible(f"'{name}', a {type(v).__name__}")

    def outputs(self, node: torch.fx.Node) -> list[Json]:
        v = node.meta.get("val")
        if isinstance(v, (list, tuple)):
            names = [self.parts.get((node.name, i)) for i in range(len(v))]
            parts = [self.define(n or f"{node.name}_unused_{i}", x) for i, (n, x) in enumerate(zip(names, v))]
            returns = getattr(getattr(node.target, "_schema", None), "returns", ())
            if len(returns) == 1:  # one list
                return [{"as_tensors": [p["as_tensor"] for p in parts]}]
            return parts
        return [] if v is None else [self.define(node.name, v)]

    # -- nodes
    def node(self, node: torch.fx.Node) -> Json:
        target: Any = node.target
        metadata = {}
        if stack := node.meta.get("stack_trace"):
            metadata["stack_trace"] = stack
        if modules := node.meta.get("nn_module_stack"):
            metadata["nn_module_stack"] = ";".join(
                f"{key},{path},{kind if isinstance(kind, str) else kind.__name__}" for key, (path, kind) in modules.items()
            )
        if isinstance(target, torch._ops.OpOverload):
            name = "torch.ops." + ATEN_NAMES.get(target, str(target))
            schema = target._schema.arguments
            inputs = [{"name": s.name, "arg": self.argument(a), "kind": 1} for s, a in zip(schema, node.args)]
            inputs += [{"name": k, "arg": self.argument(a), "kind": 2} for k, a in node.kwargs.items()]
        elif getattr(target, "__module__", "") in ("_operator", "math") or target in _SYMBOLIC:
            name = f"{'math' if target.__module__ == 'math' else '_operator'}.{getattr(target, '__name__', '')}"
            inputs = [{"name": "ab"[i : i + 1] or str(i), "arg": self.argument(a), "kind": 1} for i, a in enumerate(node.args)]
        else:
            raise NotExpressible(f"a call of {getattr(target, '__name__', target)}")
        return {"target": name, "inputs": inputs, "outputs": self.outputs(node), "metadata": metadata}


_SYMBOLIC = {torch.sym_float, torch.sym_int, torch.sym_max, torch.sym_min, torch.sym_not, torch.sym_ite}


@dataclasses.dataclass
class Program:
    """A part of an FX graph as a program: `json` is the document, `nodes[i]` the FX node of its i-th node."""

    json: Json
    nodes: list[torch.fx.Node | None]


def is_part(node: torch.fx.Node) -> bool:
    """True for a getitem that names one result of another node."""
    return node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node) and isinstance(node.args[0].meta.get("val"), (list, tuple))


def write_program(
    inputs: Sequence[torch.fx.Node],
    nodes: Sequence[torch.fx.Node],
    outputs: Sequence[torch.fx.Node],
    constants: Mapping[torch.fx.Node, tuple[str, torch.Tensor]],
) -> Program:
    """The program that computes `outputs` by `nodes` from `inputs` and `constants` (node -> name in the program, value).

    nodes: calls in order, with the getitems of their results; every value of a node is known (meta["val"]). Sizes that
    they read need no input: their expressions are written, and symbols that no input's dimension states are inputs.
    Raises NotExpressible.
    """
    graph = (inputs or nodes or outputs)[0].graph
    w = _Writer(graph.nodes)
    program_inputs: list[Json] = []
    input_specs: list[Json] = []
    calls: list[Json] = []
    origin: list[torch.fx.Node | None] = []
    for n in inputs:
        arg = w.define(n.name, n.meta["val"])
        program_inputs.append(arg)
        input_specs.append({"user_input": {"arg": arg}})
    for n, (name, value) in constants.items():
        arg = w.define(n.name, value)
        program_inputs.append(arg)
        input_specs.append({"tensor_constant": {"arg": {"name": n.name}, "tensor_constant_name": name}})
    for n in nodes:
        if is_part(n):
            continue
        call = w.node(n)
        calls += w.symbolic_nodes
        origin += [None] * len(w.symbolic_nodes)
        w.symbolic_nodes.clear()
        calls.append(call)
        origin.append(n)
    program_outputs = [w.value(n) for n in outputs]
    for n in (*inputs, *outputs):  # memory that is not dense is passed as contiguous, whatever sizes could make of its strides
        v = n.meta["val"]
        if isinstance(v, torch.Tensor) and next(symbolic_sizes(v), None) is not None:
            name = w.same.get(n.name, n.name)
            w.tensors[name] = {**w.tensors[name], "strides": _dense_strides(v)}
    env = next((v.node.shape_env for n in (*inputs, *nodes) for v in symbolic_sizes(n.meta.get("val"))), None)
    ranges = {}
    for symbol, r in env.var_to_range.items() if env is not None else ():
        low = int(r.lower) if r.lower.is_Integer else None
        high = int(r.upper) if r.upper.is_Integer else None
        ranges[str(symbol)] = {"min_val": low, "max_val": high if high is not None and high < 2**62 else None}
    document = {
        "graph_module": {
            "graph": {
                "inputs": program_inputs, "outputs": program_outputs, "nodes": calls, "tensor_values": w.tensors,
                "sym_int_values": w.sym_ints, "sym_bool_values": {}, "is_single_tensor_return": False,
            },
            "signature": {"input_specs": input_specs, "output_specs": [{"user_output": {"arg": a}} for a in program_outputs]},
            "module_call_graph": [],
        },
        "opset_version": {"aten": 10},
        "range_constraints": ranges,
        "schema_version": {"major": SCHEMA_MAJOR, "minor": SCHEMA_MINOR},
        "torch_version": torch.__version__,
    }  # fmt: skip
    return Program(document, origin)


def host_values(constants: Mapping[torch.fx.Node, tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """The constants of a program by name, contiguous in host memory."""
    return {name: value.detach().cpu().contiguous() for name, value in constants.values()}


def not_expressible(node: torch.fx.Node) -> str | None:
    """Why a call has no form in the schema; None if it has one."""
    try:
        _Writer((node, *node.users)).node(node)
    except NotExpressible as e:
        return str(e)
    return None


def attribute_of(module: torch.fx.GraphModule, target: str) -> object:
    """The value that a get_attr node reads."""
    value: object = module
    for part in target.split("."):
        value = getattr(value, part)
    return value


def program_of(module: torch.fx.GraphModule) -> tuple[Json, list[torch.fx.Node | None], dict[str, torch.Tensor]]:
    """The program of a whole graph of ATen operators whose values are known (meta["val"]).

    Returns the program, the node of each entry in its list of nodes, and the tensors of its get_attr nodes by name.
    Raises NotExpressible.
    """
    constants: dict[torch.fx.Node, tuple[str, torch.Tensor]] = {}
    for n in module.graph.find_nodes(op="get_attr"):
        value = attribute_of(module, str(n.target))
        if isinstance(value, torch.Tensor):  # else a subgraph; the node that calls it says so
            n.meta.setdefault("val", value)
            constants[n] = (str(n.target), value)
    results = module.graph.output_node().args[0]
    outputs = [a for a in (results if isinstance(results, (list, tuple)) else [results])
               if isinstance(a, torch.fx.Node) and isinstance(a.meta.get("val"), torch.Tensor)]  # fmt: skip
    inputs = module.graph.find_nodes(op="placeholder")
    nodes = [n for n in module.graph.nodes if n.op == "call_function"]
    program = write_program(inputs, nodes, outputs, constants)
    return program.json, program.nodes, dict(constants.values())


def symbolic_sizes(v: object) -> Iterator[torch.SymInt]:
    """The symbolic sizes that a value's type states."""
    if isinstance(v, torch.SymInt):
        yield v
    elif isinstance(v, (list, tuple)):
        for x in v:
            yield from symbolic_sizes(x)
    elif isinstance(v, torch.Tensor):
        yield from (s for s in (*v.shape, *v.stride()) if isinstance(s, torch.SymInt))


def symbols_of(node: torch.fx.Node) -> set[sympy.Symbol]:
    """The symbols in the sizes that a node's value states."""
    return {s for size in symbolic_sizes(node.meta.get("val")) for s in size.node.expr.free_symbols}


def count(sizes: Iterable[int | torch.SymInt]) -> int:
    """The product of sizes, of symbols as the graph was captured with them."""
    hints: list[Any] = [s if isinstance(s, int) else (s.node.hint if s.node.has_hint() else 1) for s in sizes]
    return math.prod(hints)


def value_bytes(node: torch.fx.Node) -> int:
    """Bytes of the tensors of a value, at the sizes the graph was captured with."""
    total = 0
    values = node.meta.get("val")
    for t in values if isinstance(values, (list, tuple)) else [values]:
        if isinstance(t, torch.Tensor):
            total += t.element_size() * count(t.shape)
    return total


def dumps(program: Json) -> bytes:
    return json.dumps(program, allow_nan=False, separators=(",", ":")).encode()
