"""A subgraph compiled by Tessera: how PyTorch's tensors become its inputs and outputs."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.printers import PythonPrinter
from torch.utils._sympy.reference import PythonReferenceAnalysis

from . import _library, _native, _program, _settings
from ._errors import Error, OutOfMemoryError
from ._log import log
from ._options import Options, Statistics

Node = torch.fx.Node


# Errors that say something of the sizes or the memory of one call, and nothing of the next one.
_OF_ONE_CALL = frozenset({"bad-input", "guard-failed", "out-of-memory"})


def _static(sizes: Sequence[Any]) -> bool:
    return all(isinstance(s, int) for s in sizes)


class Subgraph:
    """Calls of a graph as one compiled program.

    inputs: nodes whose values a call gives, in order: tensors and sizes. outputs: nodes whose tensors it returns.
    Called with the values of `inputs`; returns the list of tensors of `outputs`.
    """

    def __init__(self, name: str, nodes: Sequence[Node], inputs: Sequence[Node], outputs: Sequence[Node],
                 constants: Mapping[Node, tuple[str, torch.Tensor]], device: torch.device, options: Options, statistics: Statistics,
                 parameters: frozenset[Node] = frozenset()):  # fmt: skip
        """Compiles. parameters: inputs whose strides are guarded by Dynamo: no call checks them. Raises NotExpressible and
        errors of the library."""
        self.name, self.nodes, self.inputs, self.outputs, self.constants = name, nodes, inputs, outputs, constants
        self.device, self.options, self.statistics = device, options, statistics
        self.__name__ = name  # of a call in a graph
        self.failed: str | None = None  # why it runs in PyTorch from now on
        self._told = False  # that a call ran there
        self._eager: Callable[..., Any] | None = None
        # Flags of inputs whose memory a call may use for what lies between: of values of the compiled graph alone, and with what the forward
        # pass saved, which lives on where the backward pass is to run again.
        self._own = bytes(len(inputs))
        self._own_and_saved: bytes | None = None
        self._cuda = device.type == "cuda"
        settings = _settings.current(options, self._cuda)
        self._threads = settings.threads if self._cuda else 0  # where the host does little, its number of threads is kept
        self.session, self._settings = self._open(settings), settings
        self._others: dict[_settings.Settings, _native.Session] = {}
        # For each input that is a tensor: position, order of its dimensions in memory, whether it is moved to the
        # device.
        self._moved = [i for i, n in enumerate(inputs) if isinstance(n.meta["val"], torch.Tensor) and n.meta["val"].device != device]
        tensors = [(i, n.meta["val"]) for i, n in enumerate(inputs) if isinstance(n.meta["val"], torch.Tensor)]
        self._resolved = [i for i, t in tensors if t.is_neg() or t.is_conj()]
        orders = {i: _program.memory_order(t) for i, t in tensors}
        trusted = {i for i, (_, dense) in orders.items() if dense and inputs[i] in parameters and _static(inputs[i].meta["val"].shape)}
        self._plain = [i for i, (order, _) in orders.items() if not order and i not in trusted]
        self._permuted = [(i, order) for i, (order, _) in orders.items() if order and i not in trusted]
        self._makers = [self._maker(n.meta["val"]) for n in outputs]
        self._back = [(i, n.meta["val"].device) for i, n in enumerate(outputs) if n.meta["val"].device != device]
        self._stream: Callable[[], int] | None = None
        self._scratch: Callable[[int], torch.Tensor] | None = None
        if device.type == "cuda":
            index = device.index if device.index is not None else torch.cuda.current_device()
            self._stream = functools.partial(torch._C._cuda_getCurrentRawStream, index)  # as Inductor's programs have it
            # The memory between inputs and outputs comes from PyTorch's allocator, and goes back when the call returns.
            self._scratch = functools.partial(torch.empty, dtype=torch.uint8, device=torch.device("cuda", index))

    def _open(self, settings: _settings.Settings) -> _native.Session:
        program = _program.write_program(self.inputs, self.nodes, self.outputs, self.constants)
        weights = _program.host_values(self.constants)
        session = _library.open_program(self.name, _program.dumps(program.json), weights, str(self.device), settings)
        self.statistics.compiles += 1
        kernels, cached = session.kernels
        self.statistics.kernels += kernels
        self.statistics.cached_kernels += cached
        self.statistics.contained_failures += session.metrics()["contained_failures"]
        return session

    def _session_now(self) -> _native.Session:
        """The program as PyTorch's settings want it at the moment: Dynamo guards some of them, and none in a backward pass."""
        settings = _settings.current(self.options, self._cuda, self._threads)
        if settings == self._settings:
            return self.session
        session = self._others.get(settings)
        return session if session is not None else self._others.setdefault(settings, self._open(settings))

    def donate(self, own: Collection[Node], saved: Collection[Node]) -> None:
        """`own`: inputs that nothing else reads, now or later; `saved`: that nothing reads behind the backward pass."""
        self._own = bytes(n in own for n in self.inputs)
        self._own_and_saved = bytes(n in own or n in saved for n in self.inputs) if saved else None

    def _donated(self) -> bytes:
        if self._own_and_saved is None or torch._C._autograd._get_current_graph_task_keep_graph():
            return self._own
        return self._own_and_saved

    def _maker(self, t: torch.Tensor) -> Callable[[Sequence[int]], torch.Tensor]:
        """Memory for an output like `t`: (sizes in the order of memory) -> tensor."""
        order, dense = _program.memory_order(t)
        dtype, device = t.dtype, self.device
        if dense and _static(t.shape) and _static(t.stride()):
            shape, strides = tuple(t.shape), t.stride()
            return lambda _sizes: torch.empty_strided(shape, strides, dtype=dtype, device=device)
        if not order:
            return lambda sizes: torch.empty(sizes, dtype=dtype, device=device)
        back = tuple(order.index(k) for k in range(len(order)))
        return lambda sizes: torch.empty(sizes, dtype=dtype, device=device).permute(back)

    def _make(self, i: int, sizes: Sequence[int]) -> torch.Tensor:
        return self._makers[i](tuple(sizes))

    def _copied(self, t: torch.Tensor) -> torch.Tensor:
        self.statistics.copies += 1
        self.statistics.copied_bytes += t.numel() * t.element_size()
        return t.clone(memory_format=torch.contiguous_format)

    def __call__(self, *args: Any) -> list[torch.Tensor]:
        if self.failed is not None:
            return self._run_eager(args)
        try:
            return self._run(list(args))
        except torch.OutOfMemoryError:  # PyTorch's allocator has tried all that it can, as in eager mode
            raise
        except Exception as e:
            return self._failed_call(e, args)

    def _run(self, given: list[Any]) -> list[torch.Tensor]:
        for i in self._moved:
            given[i] = given[i].to(self.device)
            self.statistics.copies += 1
        for i in self._resolved:
            given[i] = given[i].resolve_neg().resolve_conj()
        for i in self._plain:
            t = given[i]
            if not t.is_contiguous() or t.data_ptr() % t.element_size():
                given[i] = self._copied(t)
        for i, order in self._permuted:
            t = given[i].permute(order)
            if not t.is_contiguous() or t.data_ptr() % t.element_size():
                t = self._copied(t)
            given[i] = t
        out = self._call(given)
        for i, device in self._back:
            out[i] = out[i].to(device)
        self.statistics.calls += 1
        return out

    def _may_run_eager(self, error: Exception) -> None:
        """Raises the error where PyTorch is not to compute the call instead: while a CUDA graph is captured, too, since PyTorch may not be
        ready for these operators, which would spoil the capture."""
        if self.options.strict or (self._stream is not None and torch.cuda.is_current_stream_capturing()):
            raise error

    def _call(self, given: Sequence[Any]) -> list[torch.Tensor]:
        """The program's call; once more where PyTorch's allocator keeps memory of the GPU that nothing uses."""
        stream = 0 if self._stream is None else self._stream()
        donated = self._donated()
        session = self._session_now()
        try:
            return session.call(given, self._make, stream, self._scratch, donated)
        except OutOfMemoryError as e:
            if self._stream is None or getattr(e, "inputs_overwritten", False) or torch.cuda.is_current_stream_capturing():
                raise
            torch.cuda.empty_cache()
            return session.call(given, self._make, stream, self._scratch, donated)

    def _failed_call(self, error: Exception, args: Sequence[Any]) -> list[torch.Tensor]:
        """A call that failed here: PyTorch computes it, and raises what is an error there.

        Nothing is done twice: a program draws no random number, its results are new ones, and where it has overwritten inputs that were
        donated, the error is raised.
        """
        if getattr(error, "inputs_overwritten", False) or (isinstance(error, Error) and error.name == "earlier-call"):
            raise error  # of an earlier call: nobody else would raise it, and this one can be made again
        self._may_run_eager(error)
        result = self._run_eager(args)  # an error of the inputs, such as an index out of range, is raised here
        of_this_call = isinstance(error, Error) and error.name in _OF_ONE_CALL
        if not of_this_call:
            self.failed = str(error).splitlines()[0] if str(error) else type(error).__name__
        if not of_this_call or not self._told:
            self._told = True
            log.warning("%s runs in PyTorch %s: %s", self.name, "for such calls" if of_this_call else "from now on", error)
        return result

    def _run_eager(self, args: Sequence[Any]) -> list[torch.Tensor]:
        self.statistics.fallback_calls += 1
        if self._eager is None:
            self._eager = eager(self.nodes, self.inputs, self.outputs, self.constants)
        return list(self._eager(*args))

    def host_operators(self) -> dict[Node, str]:
        """Calls that the program computes by operators without generated code, with the reason."""
        found: dict[Node, str] = {}
        by_name = {n.name: n.args[0] if _program.is_part(n) else n for n in self.nodes}
        for step in json.loads(self.session.report())["steps"]:
            for operator in step["operators"] if step["kind"] == "host" else ():
                call = by_name.get(operator.rsplit(".", 1)[-1])  # behind the path of the module
                if isinstance(call, Node):
                    found |= dict.fromkeys([call, *(u for u in call.users if _program.is_part(u))], step["reason"])
        return found


class Sizes:
    """Sizes as nodes of a graph that is being made, from those that its values are or have as dimensions."""

    def __init__(self, graph: torch.fx.Graph, values: Mapping[Node, Node]):
        """values: nodes of the graph that is copied, and what they are in `graph`."""
        self._graph, self._values = graph, values
        self._symbols: dict[sympy.Expr, Callable[[], Node]] = {}

    def _extent(self, n: Node, d: int) -> Node:
        return self._graph.call_function(torch.ops.aten.sym_size.int, (self._values[n], d))

    def bind(self, n: Node) -> None:
        """From now on the value of `n`, which is there, states sizes."""
        v = n.meta.get("val")  # none of an assertion
        if isinstance(v, torch.SymInt):
            self._symbols.setdefault(v.node.expr, functools.partial(self._values.__getitem__, n))
        elif isinstance(v, torch.Tensor):
            for d, s in enumerate(v.shape):
                if isinstance(s, torch.SymInt):
                    self._symbols.setdefault(s.node.expr, functools.partial(self._extent, n, d))

    def known(self, n: Node) -> bool:
        return _program.symbols_of(n) <= self._symbols.keys()

    def node(self, n: Node) -> Any:
        """The value of a size: a number, or a node. Its symbols are known."""
        v = n.meta["val"]
        if isinstance(v, int):
            return v
        expr = v.node.expr
        if expr in self._symbols:
            return self._symbols[expr]()
        terms = sorted(expr.free_symbols, key=str)
        return self._graph.call_function(SizeFunction(expr, terms), tuple(self._symbols[s]() for s in terms))


def eager(nodes: Sequence[Node], inputs: Sequence[Node], outputs: Sequence[Node],
          constants: Mapping[Node, tuple[str, torch.Tensor]]) -> Callable[..., Any]:  # fmt: skip
    """The same calls by PyTorch."""
    graph = torch.fx.Graph()
    values: dict[Node, Node] = {n: graph.placeholder(n.name) for n in inputs}
    root = torch.nn.Module()
    for i, (n, (_, value)) in enumerate(constants.items()):
        root.register_buffer(f"constant_{i}", value, persistent=False)
        values[n] = graph.get_attr(f"constant_{i}")
    sizes = Sizes(graph, values)
    for n in inputs:
        sizes.bind(n)
    for n in nodes:
        values[n] = graph.node_copy(n, lambda i: values[i] if i in values else sizes.node(i))
        sizes.bind(n)  # sizes that are data
    graph.output([values[n] for n in outputs])
    return torch.fx.GraphModule(root, graph)


class SizeFunction:
    """An expression over sizes as a function of integers, in the order of `symbols`.

    An object with a name and not a lambda: graphs that call it are printed, copied and pickled.
    """

    def __init__(self, expr: sympy.Expr, symbols: Sequence[sympy.Symbol]):
        self.expr, self.symbols = expr, tuple(symbols)
        self.__name__ = self.__qualname__ = "size"
        self._compute = self._compiled()

    def _compiled(self) -> Callable[..., Any]:
        """The function that PyTorch's printer makes of the expression, as Inductor's programs have it; its interpreter, which is slower, where the printer
        lacks a function."""
        try:
            code = compile(f"lambda {', '.join(map(str, self.symbols))}: {PythonPrinter().doprint(self.expr)}", "<size>", "eval")
        except (NotImplementedError, SyntaxError):  # functions that it does not print, or prints as sympy does
            return self._interpreted
        scope = {"math": math, "torch": torch}
        if set(code.co_consts[0].co_names) <= {*scope, *_BUILTINS, *dir(math), *dir(torch)}:
            return eval(code, scope)  # type: ignore[no-any-return]
        return self._interpreted

    def _interpreted(self, *values: int) -> Any:
        return sympy_interp(PythonReferenceAnalysis, dict(zip(self.symbols, values)), self.expr)

    def __call__(self, *values: int) -> int:
        return int(self._compute(*values))

    def __reduce__(self) -> tuple[Any, ...]:
        return SizeFunction, (self.expr, self.symbols)


# Functions of Python's that printed sizes call.
_BUILTINS = ("abs", "bool", "float", "int", "max", "min", "pow", "round")
