"""torch.compile(model, backend="tessera"): graphs that Dynamo captures, compiled by Tessera.

    model = torch.compile(model, backend="tessera", options={"freeze": True})

Options: tessera._options.Options. What Tessera does not take runs in PyTorch, is counted in tessera.stats(), reported by
tessera.explain() and logged once a graph (logger "tessera").
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import operator
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import RestartAnalysis, SkipFrame
from torch._subclasses.fake_tensor import unset_fake_temporarily

from . import _composites, _decompositions, _known_sizes, _partition, _program
from ._division import Division, reason_of
from ._log import log
from ._options import Options, statistics
from ._program import value_bytes
from ._subgraph import Sizes, Subgraph

Node = torch.fx.Node


@dataclasses.dataclass
class CompiledGraph:
    """The result of compiling one graph, for tessera.explain()."""

    kind: str  # "inference", "forward", "backward"
    name: str
    subgraphs: list[Subgraph]
    left: dict[Node, str]  # calls of operators for PyTorch, with the reason
    crossing: int  # bytes between the subgraphs and PyTorch within the graph, at the sizes of the capture
    results: list[object]  # of the graph: nodes and constants
    returned: int  # as many of them, the first ones, go to the caller; what is behind them is for the backward graph
    error: str = ""  # why the graph is not one subgraph; empty if it is, or if operators alone are the reason


_observers: list[Callable[[CompiledGraph], None]] = []
_count_lock = threading.Lock()
_graph_count = 0


def _next_name(kind: str) -> str:
    global _graph_count
    with _count_lock:
        _graph_count += 1
        return f"{kind} graph {_graph_count - 1}"


@contextlib.contextmanager
def observed(observer: Callable[[CompiledGraph], None]) -> Iterator[None]:
    """Calls `observer` with every graph that is compiled inside."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def _results_of(graph: torch.fx.Graph) -> list[Any]:
    results = graph.output_node().args[0]
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _device_of(graph: torch.fx.Graph) -> torch.device:
    """The device that a graph computes on: that of a GPU's tensor if there is one."""
    found = torch.device("cpu")
    for n in graph.nodes:
        for t in _partition.tensors(n.meta.get("val")):
            if t.device.type != "cpu":
                return t.device
    return found


def _storage(n: Node) -> int | None:
    """The key of a tensor's memory, equal for tensors of one memory; None for a value that is not in one memory."""
    found = {t.untyped_storage()._cdata for t in _partition.tensors(n.meta.get("val")) if t.layout == torch.strided}
    return found.pop() if len(found) == 1 else None


def _views(graph: torch.fx.Graph, results: Sequence[object], returned: int, left: Mapping[Node, str]) -> tuple[dict[Node, Node], set[Node]]:
    """Views that PyTorch makes of the values that a subgraph gives, instead of the subgraph: view -> whose memory it is.

    Of the results, and of what calls for PyTorch read: those that share memory with an input, a constant, a result of such
    calls or another of them, so that they still do when the graph has run; and those with gaps or repetitions in memory that the caller sees
    (the first `returned` results) or such calls read, so that they have the strides that they were captured with: eager's. A repetition is
    then never written out. The whole of the memory is computed, as eager does.

    The second value: results that a subgraph computes by themselves, dense, and that are then put where they lie in memory as large as
    eager's (_Scatter). They alone are read of it, and are a small part: the rest is neither computed nor written.
    """
    owner: dict[int, Node] = {}
    for n in graph.nodes:
        if (storage := _storage(n)) is not None:
            owner.setdefault(storage, n)
    sharing: dict[Node, dict[Node, bool]] = {}  # memory -> values in it -> whether their strides count
    for i, r in enumerate(results):
        if isinstance(r, Node) and (storage := _storage(r)) is not None:
            values = sharing.setdefault(owner[storage], {})
            values[r] = values.get(r, False) or i < returned and isinstance(r.meta["val"], torch.Tensor)
    left_reads = dict.fromkeys(i for n in left for i in n.all_input_nodes if i not in left)
    for r in left_reads:
        if (storage := _storage(r)) is not None:
            sharing.setdefault(owner[storage], {})[r] = isinstance(r.meta["val"], torch.Tensor)
    views, scattered = {}, set()
    for base, all in sharing.items():
        for r, counts in all.items():
            if r is base or r.op != "call_function":
                continue
            if len(all) > 1 or base.op != "call_function" or base in left:
                views[r] = base
            elif counts and _is_strided(r):
                if r in left_reads or not _is_small_part(r, base):
                    views[r] = base
                else:
                    scattered.add(r)
    return views, scattered


def _is_strided(n: Node) -> bool:
    """Whether the value has other strides than memory that a subgraph gives: gaps, repetitions, or, of symbolic sizes, other ones where
    sizes of 0 and 1 leave a choice."""
    t = n.meta["val"]
    order, dense = _program.memory_order(t)
    if not dense:
        return True
    if all(isinstance(s, int) for s in (*t.shape, *t.stride())):
        return False
    sizes = [_program.size_expression(s) for s in t.shape]
    stride = sympy.Integer(1)
    for k in reversed(order or range(t.dim())):
        if (sizes[k] == 1 or 0 in sizes) and _program.size_expression(t.stride(k)) != stride:
            return True
        stride = sympy.expand(stride * (sizes[k] if sizes[k] != 0 else 1))
    return False


# A view is a small part of its memory where that has so many times its elements, and so many bytes.
_SMALL_PART, _LARGE_BYTES = 8, 1 << 20


def _is_small_part(view: Node, base: Node) -> bool:
    """Whether it has a small part of much memory, each element in a place of its own, and all of its sizes are known."""
    t, whole = view.meta["val"], base.meta["val"]
    if not isinstance(whole, torch.Tensor) or not all(isinstance(s, int) for s in (*t.shape, *t.stride(), t.storage_offset(), *whole.shape)):
        return False
    if any(stride == 0 and size > 1 for size, stride in zip(t.shape, t.stride())):
        return False
    return t.numel() * _SMALL_PART <= whole.numel() and value_bytes(base) >= _LARGE_BYTES


class _Scatter:
    """(dense tensor) -> its values where `like` has them in memory as large as that of `like`; the rest of that is undefined.

    An object with a name and not a lambda: graphs that call it are printed and copied.
    """

    def __init__(self, like: torch.Tensor):
        self.strides, self.offset = tuple(like.stride()), int(like.storage_offset())
        self.elements = like.untyped_storage().nbytes() // like.element_size()
        self.__name__ = self.__qualname__ = "scatter"

    def __call__(self, dense: torch.Tensor) -> torch.Tensor:
        memory = torch.empty(self.elements, dtype=dense.dtype, device=dense.device)
        return memory.as_strided(dense.shape, self.strides, self.offset).copy_(dense)


def _inputs_of(nodes: Sequence[Node], outputs: Sequence[Node], graph: torch.fx.Graph, constants: Mapping[Node, Any]) -> list[Node]:
    """The tensors that these calls read from outside, and the symbols of sizes that no dimension of them states."""
    inside = set(nodes)
    inputs: dict[Node, None] = {}
    for n in nodes:
        for i in n.all_input_nodes:
            if i not in inside and i not in constants and isinstance(i.meta.get("val"), torch.Tensor):
                inputs[i] = None
    bound = {s.node.expr for i in inputs for s in i.meta["val"].shape if isinstance(s, torch.SymInt)}
    free: dict[sympy.Symbol, None] = {}
    for n in (*inputs, *nodes, *(i for n in nodes for i in n.all_input_nodes)):
        for s in _program.symbolic_sizes(n.meta.get("val")):
            free.update(dict.fromkeys(sorted(s.node.expr.free_symbols - bound, key=str)))
    if free:
        for n in graph.nodes:
            v = n.meta.get("val")
            if isinstance(v, torch.SymInt) and v.node.expr in free and (n.op == "placeholder" or n in inside or not _partition.is_size(n)):
                inputs[n] = None
                del free[v.node.expr]
    return list(inputs)


def _unlocked_constants(gm: torch.fx.GraphModule, frozen: Mapping[Node, torch.Tensor]) -> dict[Node, tuple[str, torch.Tensor]]:
    constants: dict[Node, tuple[str, torch.Tensor]] = {}
    for n in gm.graph.find_nodes(op="get_attr"):
        value = _program.attribute_of(gm, str(n.target))
        if isinstance(value, torch.Tensor):
            n.meta.setdefault("val", value)
            constants[n] = (str(n.target), value)
    for n, t in frozen.items():
        constants[n] = (n.name, t)
    return constants


class _GraphCompiler:
    """One graph of ATen operators: what AOTAutograd hands to a compiler."""

    def __init__(self, gm: torch.fx.GraphModule, kind: str, name: str, options: Options, frozen: Mapping[int, torch.Tensor], parameters: Collection[int]):
        self.gm, self.graph, self.options, self.name = gm, gm.graph, options, name
        self.placeholders = gm.graph.find_nodes(op="placeholder")
        self.constants = _unlocked_constants(gm, {self.placeholders[i]: t for i, t in frozen.items()})
        self.parameters = frozenset(self.placeholders[i] for i in parameters)
        self.device = _device_of(gm.graph)
        self.results = _results_of(gm.graph)
        meta = _metadata()
        returned = meta.num_forward_returns if kind == "forward" and meta is not None else len(self.results)
        self.result = CompiledGraph(kind, self.name, [], {}, 0, self.results, returned)
        self.symbols = {s for n in self.placeholders for s in _program.symbols_of(n)}
        self.compiled: dict[tuple[Node | None, ...], Subgraph] = {}  # by calls and results
        self.leave({})

    def leave(self, left: dict[Node, str]) -> None:
        """Decides what subgraphs return, when PyTorch runs the calls `left`."""
        self.left = left
        self.views, self.scattered = _views(self.graph, self.results, self.result.returned, left)
        self.returned = {self.views.get(r, r) for r in self.results if isinstance(r, Node)}
        self.shown = self.returned | {self.views.get(i, i) for n in left for i in n.all_input_nodes}
        # Sizes that PyTorch reads and the inputs do not have: it takes them from the tensors.
        pending = [n for n in self.shown if _partition.is_size(n)]
        while pending:
            n = pending.pop()
            if _program.symbols_of(n) <= self.symbols:
                continue
            for i in n.all_input_nodes:
                (pending.append if _partition.is_size(i) else self.shown.add)(i)

    def outputs_of(self, nodes: Sequence[Node]) -> list[Node]:
        """Tensors of these calls that the graph returns or that calls outside read."""
        inside = {*nodes, *self.left, self.graph.output_node()}

        def read(n: Node) -> bool:
            return n in self.shown or any(u not in inside and not _partition.is_size(u) for u in n.users)

        return [n for n in nodes if isinstance(n.meta.get("val"), torch.Tensor) and read(n)]

    def subgraph(self, nodes: Sequence[Node]) -> Subgraph:
        """The program of these calls. Raises NotExpressible and errors of the library."""
        outputs = self.outputs_of(nodes)
        key = (*nodes, None, *outputs)
        if key not in self.compiled:
            inputs = _inputs_of(nodes, outputs, self.graph, self.constants)
            self.compiled[key] = Subgraph(self.name, nodes, inputs, outputs, self.constants_of(nodes), self.device, self.options, statistics, self.parameters)
        return self.compiled[key]

    def constants_of(self, nodes: Sequence[Node]) -> dict[Node, tuple[str, torch.Tensor]]:
        read = {i for n in nodes for i in n.all_input_nodes}
        return {n: c for n, c in self.constants.items() if n in read}

    def compile(self) -> Callable[[list[Any]], list[Any]]:
        """A function of the graph's inputs, which it takes as a list and empties ("boxed")."""
        calls = [n for n in self.graph.nodes if n.op == "call_function" and not _partition.is_size(n)]
        if not any(n in self.returned or _partition.is_ordered(n) for n in calls):
            calls = []  # inputs, constants and views of them
        if calls and self.options.device not in ("auto", self.device.type):
            return self.assemble([], {n: f"it runs on {self.device.type}, and the option 'device' is '{self.options.device}'" for n in calls})
        return self.assemble(*self.programs(calls))

    def programs(self, calls: Sequence[Node]) -> tuple[list[Subgraph], dict[Node, str]]:
        """The calls as programs, and those that are left to PyTorch, with the reason.

        One program if the library takes them all; else the graph is divided where it refuses a call, as often as it does.
        """
        if not calls:
            return [], {}
        work = [n for n in calls if str(n.target) not in _partition._FACTS]
        division = Division(self.graph, self.subgraph, work)
        there = {} if self.options.strict else _partition.faster_there(self.graph)
        surveyed = bool(there) or not self.may_be_whole(work)
        stages, left = _partition.stages(self.graph, self.refusals() | there) if surveyed else ([work], {})
        while True:
            self.leave(left)
            parts: list[Subgraph] = []
            found: dict[Node, str] = {}
            for nodes in stages:
                made, at_fault = division.programs(nodes)
                parts += made
                found |= at_fault
            if found and not surveyed:  # other calls that are refused for what they are need no compile to be found
                surveyed, found = True, self.refusals() | found
            found = found or self.on_host(parts)
            if not found:
                if len(parts) > len(stages):
                    self.result.error = division.error
                return parts, left
            stages, left = _partition.stages(self.graph, {**left, **found})

    def on_host(self, parts: Sequence[Subgraph]) -> dict[Node, str]:
        """Calls that programs on a GPU would compute on the host, from copies there: PyTorch has kernels for them."""
        if self.device.type == "cpu" or self.options.strict:
            return {}
        return {n: reason for s in parts for n, reason in s.host_operators().items()}

    def may_be_whole(self, calls: Sequence[Node]) -> bool:
        """False if some calls have to be left to PyTorch, whatever the library says."""
        if not any(n in self.returned for n in calls):
            return False
        return not any(_partition.is_random(n) or _partition.reads_data(n) for n in calls) and not any(_partition._refused_value(n, self.device) for n in self.graph.nodes)

    def refusals(self) -> dict[Node, str]:
        """Calls that the library refuses for what they are. None where it cannot say: compiles find them."""
        try:
            return _partition.refusals(self.graph, self.device, self.constants)
        except Exception as e:
            log.debug("%s: no survey: %s", self.name, e)
            return _partition.refused_before(self.graph, self.device)

    def assemble(self, parts: Sequence[Subgraph], left: dict[Node, str]) -> Callable[[list[Any]], list[Any]]:
        """A graph of PyTorch's that calls the subgraphs, and runs the rest as it stands."""
        self.result.left = left
        self.result.subgraphs = list(parts)
        outside: set[Node] = {*self.placeholders, *self.constants}
        self.result.crossing = sum(_crossing(s, outside, self.returned) for s in parts)
        for i, s in enumerate(parts if left or len(parts) > 1 else ()):
            s.name = s.__name__ = f"{self.name} part {i}"
        self.donate(parts)
        graph = torch.fx.Graph()
        values: dict[Node, Node] = {n: graph.placeholder(n.name) for n in self.placeholders}
        views: dict[Node, Node] = {}
        owner = {n: s for s in parts for n in s.nodes}
        sizes = Sizes(graph, values)
        for n in self.placeholders:
            sizes.bind(n)

        def value(n: Node) -> Node:
            if n in values:
                return values[n]
            if _partition.is_size(n) and any(i in owner and i not in owner[i].outputs for i in n.all_input_nodes) and sizes.known(n):
                values[n] = sizes.node(n)  # of a tensor that its subgraph does not return
                return values[n]
            if n in owner:
                s = owner[n]
                call = graph.call_function(s, tuple(value(i) for i in s.inputs))
                for k, o in enumerate(s.outputs):
                    values[o] = graph.call_function(operator.getitem, (call, k))
                return values[n]
            for i in n.all_input_nodes:
                seen(i)
            values[n] = graph.node_copy(n, seen)
            return values[n]

        def seen(n: Node) -> Node:  # by PyTorch
            return view(n, self.views[n]) if n in self.views else value(n)

        def view(n: Node, base: Node) -> Node:
            if n is base or n.op != "call_function":
                return value(n)
            if n not in views:
                views[n] = graph.node_copy(n, lambda i: view(i, base) if _storage(i) == _storage(base) else value(i))
            return views[n]

        for n in self.order(left):
            value(n)
        scattered: dict[Node, Node] = {}

        def result(n: Node) -> Node:
            made = seen(n)
            if n not in self.scattered:
                return made
            if n not in scattered:
                scattered[n] = graph.call_function(_Scatter(n.meta["val"]), (made,))
            return scattered[n]

        graph.output([result(r) if isinstance(r, Node) else r for r in self.results])
        run = _boxed(self.gm, graph)
        _tell(self.result, self.options)
        return run

    def donate(self, parts: Sequence[Subgraph]) -> None:
        """Marks, for each subgraph, the inputs that it reads alone."""
        made = {o for s in parts for o in s.outputs}
        for s in parts:
            inside = set(s.nodes)
            alone = [n for n in s.inputs if n not in self.returned and all(u in inside or _partition.is_size(u) for u in n.users)]
            s.donate({n for n in alone if n in made}, {n for n in alone if n.meta.get(_decompositions.DONATED)})

    def order(self, left: Mapping[Node, str]) -> list[Node]:
        """Calls for PyTorch that must run even if nothing reads them, in their order."""
        return [n for n in self.graph.nodes if n in left and not _program.is_part(n) and (n.users or _partition.is_ordered(n))]


def _tell(result: CompiledGraph, options: Options) -> None:
    """Counts and reports what of a graph is left to PyTorch. Raises RuntimeError where an option forbids that."""
    left = {n: r for n, r in result.left.items() if not _program.is_part(n)}
    if left:
        by_reason: dict[tuple[str, str], int] = {}
        for n, reason in left.items():
            key = (str(n.target), reason)
            by_reason[key] = by_reason.get(key, 0) + 1
        text = "; ".join(f"{target}{f' x{count}' if count > 1 else ''}: {reason}" for (target, reason), count in by_reason.items())
        if options.strict:
            raise RuntimeError(f"tessera: {result.name} has operators for PyTorch, and the option 'strict' forbids it: {text}")
        statistics.operators_left += len(left)
        log.warning("%s: %d operators run in PyTorch: %s", result.name, len(left), text)
    for observer in list(_observers):
        observer(result)


def _boxed(root: torch.nn.Module, graph: torch.fx.Graph) -> Callable[[list[Any]], list[Any]]:
    """The graph as a function of a list of its inputs, which it empties: each input lives until its last reader has run."""
    placeholders = graph.find_nodes(op="placeholder")
    first = next(iter(graph.nodes))
    with graph.inserting_before(first):
        inputs = graph.placeholder("inputs")
        items = [graph.call_function(operator.getitem, (inputs, i)) for i in range(len(placeholders))]
        graph.call_method("clear", (inputs,))
    for placeholder, item in zip(placeholders, items, strict=True):
        item.meta = placeholder.meta
        placeholder.replace_all_uses_with(item)
        graph.erase_node(placeholder)
    forward = torch.fx.GraphModule(root, graph).forward

    def run(args: list[Any]) -> list[Any]:
        return list(forward(args))

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _crossing(s: Subgraph, outside: set[Node], results: set[Node]) -> int:
    return sum(value_bytes(n) for n in s.inputs if n not in outside) + sum(value_bytes(n) for n in s.outputs if n not in results)


def compile_graph(gm: torch.fx.GraphModule, kind: str, options: Options, frozen: Mapping[int, torch.Tensor] | None = None,
                  parameters: Collection[int] = ()) -> Callable[[list[Any]], list[Any]]:  # fmt: skip
    """Compiles one graph of ATen operators whose values are known (meta["val"]).

    kind: "inference", "forward", "backward". frozen: inputs that become constants, by position. parameters: positions of
    inputs that Dynamo guards: parameters and buffers.
    Returns a function of a list of the inputs, which it empties. What goes wrong here leaves the graph to PyTorch; with the
    option 'strict' it is raised.
    """
    statistics.graphs += 1
    name = _next_name(kind)
    try:
        return _GraphCompiler(gm, kind, name, options, frozen or {}, parameters).compile()
    except Exception as e:
        if options.strict:
            raise
        log.debug("%s is not compiled", name, exc_info=e)
        reason = f"its graph was not compiled: {reason_of(e)}"
        left = {n: reason for n in gm.graph.nodes if n.op == "call_function" and not _partition.is_size(n)}
        results = _results_of(gm.graph)
        _tell(CompiledGraph(kind, name, [], left, 0, results, len(results), reason), options)
        graph = torch.fx.Graph()
        graph.output(graph.graph_copy(gm.graph, {}))
        return _boxed(gm, graph)


def _metadata() -> Any:
    """AOTAutograd's metadata of the inputs and results of the forward graph that it compiles; None outside of a compile."""
    context = torch._guards.TracingContext.try_get()
    return context.fw_metadata if context is not None else None


def _allow_another_backward() -> None:
    """AOTAutograd refuses retain_graph=True where saved tensors could be overwritten; programs overwrite none in such a backward pass."""
    meta = _metadata()
    if meta is not None and meta.bw_donated_idxs:
        meta.bw_donated_idxs.clear()


def _parameters(aot: torch.fx.GraphModule) -> list[int]:
    """Positions of the inputs of AOTAutograd's graph that are parameters and buffers, whose sizes and strides Dynamo guards."""
    meta = _metadata()
    count = len(aot.graph.find_nodes(op="placeholder"))
    return [i for i in (meta.static_input_indices if meta is not None else ()) if i < count]


def _frozen_inputs(gm: torch.fx.GraphModule, aot: torch.fx.GraphModule, given: Sequence[Any]) -> dict[int, torch.Tensor]:
    """Inputs of AOTAutograd's graph that are parameters or buffers which it does not change."""
    meta = _metadata()
    count = len(aot.graph.find_nodes(op="placeholder"))
    if meta is None or count != len(given):  # inputs were joined or split: their places are not known
        return {}
    changed = {i for i, info in enumerate(meta.input_info) if info.mutates_data or info.mutates_metadata}
    frozen = {}
    for i in meta.static_input_indices:
        t = given[i]
        if i not in changed and isinstance(t, torch.Tensor) and not torch._subclasses.fake_tensor.is_fake(t):
            frozen[i] = t.detach()
    return frozen


def tessera(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, object] | None = None, mode: str | None = None) -> Callable[..., Any]:
    """The backend. gm: Dynamo's graph; options: see Options; mode: Inductor's, which has no meaning here.

    Raises ValueError for an unknown option. What goes wrong besides leaves calls to PyTorch, up to the whole graph; with the
    option 'strict' it is raised.
    """
    chosen = Options.of(options)
    if mode not in (None, "default"):
        log.warning("the mode '%s' is ignored; the options are %s", mode, ", ".join(Options.names()))

    given = list(example_inputs)  # real tensors: AOTAutograd keeps the compilers, which must not keep these

    def compiler(kind: str) -> Callable[..., Any]:
        def compile_one(aot: torch.fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
            if kind != "backward":  # whose symbols are the forward graph's: they take no more guards
                _known_sizes.make_known(aot.graph, _device_of(aot.graph))
            with unset_fake_temporarily():  # AOTAutograd calls in its mode, and constants are real tensors
                _allow_another_backward()
                frozen = _frozen_inputs(gm, aot, given) if chosen.freeze and kind == "inference" and given else {}
                return compile_graph(aot, kind, chosen, frozen, () if kind == "backward" else _parameters(aot))

        return compile_one

    _composites.keep(gm, example_inputs)
    table = _decompositions.training() if _composites.needs_gradients(gm, example_inputs) else _decompositions.inference()
    without: list[torch._ops.OpOverload] = []  # decompositions that raise for what this graph gives them
    while True:
        failed: list[torch._ops.OpOverload] = []
        try:
            compiled = aot_autograd(
                fw_compiler=compiler("forward"),
                bw_compiler=compiler("backward"),
                inference_compiler=compiler("inference"),
                partition_fn=_decompositions.partition,
                decompositions=_watched(table, without, failed),
            )(gm, example_inputs)
            given.clear()
            return compiled
        except (RestartAnalysis, SkipFrame):  # Dynamo's own way to begin again
            raise
        except Exception as e:
            if another := [op for op in failed if op not in without]:
                without.append(another[0])
                continue
            if chosen.strict:
                raise
            return _left_whole(gm, e, chosen)


def _watched(table: _decompositions.Table, without: Sequence[torch._ops.OpOverload], failed: list[torch._ops.OpOverload]) -> _decompositions.Table:
    """The decompositions of `table` but those of `without`. One that raises is noted in `failed`, the innermost first."""

    def watched(op: torch._ops.OpOverload, f: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(f)
        def decompose(*args: Any, **kwargs: Any) -> Any:
            try:
                return f(*args, **kwargs)
            except Exception:
                failed.append(op)
                raise

        return decompose

    return {op: watched(op, f) for op, f in table.items() if op not in without}


def _left_whole(gm: torch.fx.GraphModule, error: Exception, options: Options) -> Callable[..., Any]:
    """Dynamo's graph as PyTorch runs it without a compiler: tracing it failed."""
    statistics.graphs += 1
    log.debug("a graph is not traced", exc_info=error)
    reason = f"PyTorch does not trace its graph: {reason_of(error)}"
    left = {n: reason for n in gm.graph.nodes if n.op in ("call_function", "call_method", "call_module")}
    results = _results_of(gm.graph)
    _tell(CompiledGraph("inference", _next_name("inference"), [], left, 0, results, len(results), reason), options)
    return gm.forward


def register() -> None:
    """Makes backend="tessera" known where the package is not installed."""
    if "tessera" not in torch._dynamo.list_backends(exclude_tags=None):
        torch._dynamo.register_backend(compiler_fn=tessera, name="tessera")


register()
