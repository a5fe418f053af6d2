"""tessera.explain(): Dynamo's graph breaks and Tessera's fusion report of one call, together."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from . import _program, backend
from ._log import log
from ._program import value_bytes


@dataclasses.dataclass
class Break:
    """A graph break: why Dynamo ended a graph, and the user's line."""

    reason: str
    place: str  # "model.py:42 in forward", innermost call; empty where Dynamo does not know it
    line: str = ""  # text of that line
    help: str = ""  # Dynamo's explanation and hints, a line each
    graph: str = ""  # name of the graph that it ended
    bytes: int = 0  # results of that graph, which the code behind the break reads from memory, at the sizes of the call


@dataclasses.dataclass
class Left:
    """Calls of one operator that run in PyTorch."""

    operator: str
    count: int
    reason: str
    place: str  # of the first one
    bytes: int  # that cross between Tessera and PyTorch through these calls, at the sizes of the call
    code: str = "FUS-046"  # `tessera explain --code FUS-046`
    price_us: float | None = None  # of moving these bytes and of the launches, predicted; None where nothing is compiled


@dataclasses.dataclass
class Graph:
    """One graph of the call: its compiled subgraphs and what runs in PyTorch."""

    name: str
    kind: str  # "inference", "forward", "backward"
    reports: list[dict[str, Any]]  # of the subgraphs, as `tessera explain --format json` shows them
    left: list[Left]
    crossing_bytes: int  # between the subgraphs and PyTorch inside the graph, at the sizes of the call
    boundary_bytes: int  # results of the graph that the caller gets, at the sizes of the call
    saved_bytes: int  # of a forward graph: what it keeps for the backward one

    def total(self, what: str) -> int:
        """Sum over subgraphs of a count in the reports: "kernels", "library_calls", "host_operators", "copies"."""
        return sum(int(r.get("totals", {}).get(what, 0)) for r in self.reports)

    @property
    def launches(self) -> int:
        """Kernels, library calls, copies and calls of operators in PyTorch."""
        return sum(self.total(w) for w in ("kernels", "library_calls", "host_operators", "copies")) + sum(x.count for x in self.left)


_COLUMNS: tuple[tuple[str, Callable[[Graph], str]], ...] = (
    ("launches", lambda g: str(g.launches)),
    ("kernels", lambda g: str(g.total("kernels"))),
    ("library calls", lambda g: str(g.total("library_calls"))),
    ("copies", lambda g: str(g.total("copies"))),
    ("CPU fallbacks", lambda g: str(g.total("host_operators"))),
    ("in PyTorch", lambda g: str(sum(x.count for x in g.left))),
    ("results", lambda g: _bytes(g.boundary_bytes)),
    ("saved", lambda g: _bytes(g.saved_bytes)),
)  # fmt: skip


# Kinds of steps, as people know them.
_KINDS = {"library": "library call", "attention": "library call", "separate": "kernel", "host": "CPU fallback", "control": "control flow", "read": "read of a size"}  # fmt: skip


@dataclasses.dataclass
class Explanation:
    """The explanation of one call. str() is a text, its first screen a summary; json() has everything."""

    graphs: list[Graph]
    breaks: list[Break]
    skipped: list[str] = dataclasses.field(default_factory=list)  # what Dynamo gave no graph of, and why; PyTorch ran it

    def json(self) -> dict[str, Any]:
        """graphs[i]["programs"] are the reports of `tessera explain --format json`; sizes are those of the call."""
        return {
            "breaks": [dataclasses.asdict(b) for b in self.breaks],
            "skipped": self.skipped,
            "graphs": [
                {
                    "name": g.name,
                    "kind": g.kind,
                    "launches": g.launches,
                    "crossing_bytes": g.crossing_bytes,
                    "boundary_bytes": g.boundary_bytes,
                    "saved_bytes": g.saved_bytes,
                    "programs": g.reports,
                    "left_to_pytorch": [dataclasses.asdict(x) for x in g.left],
                }
                for g in self.graphs
            ],
        }

    def __str__(self) -> str:
        return "\n".join((*self._summary(), *self._skipped(), *self._breaks(), *self._left(), *self._programs()))

    def _summary(self) -> Iterator[str]:
        yield f"{_many(len(self.graphs), 'graph')}, {_many(len(self.breaks), 'graph break')}, {_many(sum(g.launches for g in self.graphs), 'launch', 'es')}"
        columns = [c for c in _COLUMNS if any(c[1](g) not in ("0", "0 bytes") for g in self.graphs)]
        rows = [["", *(title for title, _ in columns)], *([g.name, *(text(g) for _, text in columns)] for g in self.graphs)]
        widths = [max(map(len, column)) for column in zip(*rows)]
        for row in rows if self.graphs else ():
            yield "  " + "   ".join(cell.rjust(w) if i else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths)))

    def _skipped(self) -> Iterator[str]:
        for text in self.skipped:
            yield ""
            yield f"in PyTorch, without a graph: {text}"

    def _breaks(self) -> Iterator[str]:
        for b in self.breaks:
            yield ""
            yield f"graph break{f' at {b.place}' if b.place else ''}: {b.reason}"
            if b.line:
                yield f"    {b.line}"
            for line in b.help.splitlines():
                yield f"  {line}"
            yield f"  It ends {b.graph}: {_bytes(b.bytes)} go through memory to the code behind it, and nothing fuses across it."

    def _left(self) -> Iterator[str]:
        for g in self.graphs:
            if g.left:
                yield ""
                yield f"{g.name}: {_many(sum(x.count for x in g.left), 'operator')} left to PyTorch, {_bytes(g.crossing_bytes)} cross"
            for x in g.left:
                price = "" if x.price_us is None else f", {x.price_us:.3g} us"
                yield f"  {x.code} {x.operator}{f' x{x.count}' if x.count > 1 else ''}{f' ({x.place})' if x.place else ''}{price}: {x.reason}"

    def _programs(self) -> Iterator[str]:
        for g in self.graphs:
            for r in g.reports:
                yield ""
                yield f"{r['model']}:"
                operators = {o["id"]: o for o in r.get("operators", [])}
                for s in r.get("steps", []):
                    origins = _origins([operators[o] for o in s["operators"] if o in operators])
                    yield f"  {_KINDS.get(s['kind'], s['kind']):12}  {s['id']}  {origins}".rstrip()


def _many(n: int, what: str, plural: str = "s") -> str:
    return f"{n} {what}{'' if n == 1 else plural}"


def _origins(operators: Sequence[Mapping[str, str]]) -> str:
    """The origins of operators, in the user's terms: "norm1: native_layer_norm (model.py:12)"."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for o in operators:
        parts = (o.get("op") or o.get("name") or "").split(".")
        name = parts[1] if parts[0] in ("aten", "prims") and len(parts) > 1 else ".".join(parts)
        found.setdefault((o.get("module", ""), o.get("source", "")), {})[name] = None
    return "; ".join(f"{f'{m}: ' if m else ''}{', '.join(names)}{f' ({line})' if line else ''}" for (m, line), names in found.items())


def _bytes(n: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n} bytes"


def _place_of(node: torch.fx.Node) -> str:
    """The user's line of a call: "model.py:42"."""
    stack = node.meta.get("stack_trace") or ""
    lines = [x.strip() for x in stack.splitlines() if x.strip().startswith('File "')]
    if not lines:
        return ""
    file, line = lines[-1].split('"')[1], lines[-1].split("line ")[-1].split(",")[0]
    return f"{os.path.basename(file)}:{line}"


def _node_bytes(node: torch.fx.Node, left: dict[torch.fx.Node, str]) -> int:
    """Bytes that a call which PyTorch runs reads from subgraphs and writes for them."""
    crossing = sum(value_bytes(i) for i in node.all_input_nodes if i.op == "call_function" and i not in left)
    if any(u.op == "call_function" and u not in left for u in node.users):
        crossing += value_bytes(node)
    return crossing


def _graph(g: backend.CompiledGraph, name: str) -> Graph:
    reports = []
    for s in g.subgraphs:
        report = json.loads(s.session.report())
        report["model"] = s.name.replace(g.name, name, 1)
        reports.append(report)
    left: dict[tuple[str, str], Left] = {}
    for n, reason in g.left.items():
        if _program.is_part(n):
            continue
        key = (str(n.target), reason)
        if key not in left:
            left[key] = Left(str(n.target), 0, reason, _place_of(n), 0)
        left[key].count += 1
        left[key].bytes += _node_bytes(n, g.left)
    for x in left.values() if reports else ():
        figures = reports[0]["device"]
        x.price_us = x.bytes / figures["memory_bytes_per_us"] + x.count * (figures["launch_us"] + figures["host_launch_us"])
    returned, saved = (sum(value_bytes(r) for r in dict.fromkeys(results) if isinstance(r, torch.fx.Node))
                       for results in (g.results[: g.returned], g.results[g.returned :]))  # fmt: skip
    return Graph(name, g.kind, reports, list(left.values()), g.crossing, returned, saved)


# Dynamo names its own function for a branch on a tensor's value.
_BRANCH = ("generic_jump", "a branch on the value of a tensor", "torch.where() and torch.cond() keep it in the graph; the one computes both sides, the other one of them.")


def _break(reason: Any, graph: Graph) -> Break:
    text, *lines = str(reason.reason).strip().splitlines()
    help = [x.strip() for x in lines if x.strip().startswith(("Explanation:", "Hint:"))]
    if text.startswith(_BRANCH[0]):
        text, help = _BRANCH[1], [f"Hint: {_BRANCH[2]}"]
    place = line = ""
    if frames := list(getattr(reason, "user_stack", None) or []):
        f = frames[-1]
        function = re.sub(r"^torch_dynamo_resume_in_(.*)_at_\d+$", r"\1", f.name)
        place, line = f"{os.path.basename(f.filename)}:{f.lineno} in {function}", (f.line or "").strip()
    return Break(text, place, line, "\n".join(help), graph.name, graph.boundary_bytes)


def _break_counts() -> Mapping[str, int]:
    return torch._dynamo.utils.counters["graph_break"]


def _skipped(nothing: bool, reasons: Sequence[str]) -> list[str]:
    """The reasons of Dynamo that no graph ends with; and a reason for a call of which it captured nothing, without a word."""
    out = []
    for reason in reasons:
        text, *lines = reason.strip().splitlines()
        out.append("\n  ".join((text, *(x.strip() for x in lines if x.strip().startswith(("Explanation:", "Hint:"))))))
    if nothing and not out:
        out.append("Dynamo captured nothing: the call does nothing with tensors, or is in a file that Dynamo skips\n  Hint: TORCH_LOGS=+dynamo says which")
    return out


def explain(fn: Callable[..., Any], *args: Any, options: dict[str, Any] | None = None, dynamic: bool | None = None, **kwargs: Any) -> Explanation:
    """Compiles `fn` for these arguments, calls it once, and says what became of it.

    fn: a module or function, compiled or not. options, dynamic: those of torch.compile; the others are the call's. The call
    has the effects that it has; what torch.compile compiled before is compiled again (torch._dynamo.reset()). If a result
    needs gradients, the graphs of the backward pass are compiled and shown, too.
    Raises what `fn` raises.
    """
    inner = getattr(fn, "_orig_mod", None) or getattr(fn, "_torchdynamo_orig_callable", None) or fn
    parts: list[tuple[Any, list[backend.CompiledGraph]]] = []  # of each graph of Dynamo's: why it ends, what it became

    def compiler(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        found: list[backend.CompiledGraph] = []
        parts.append((getattr(gm, "compile_subgraph_reason", None), found))
        with backend.observed(found.append):
            return backend.tessera(gm, inputs, options=options)

    torch._dynamo.reset()
    before = dict(_break_counts())
    level = log.logger.level
    try:
        log.setLevel(logging.ERROR)  # the explanation says it
        with torch._functorch.config.patch(force_non_lazy_backward_lowering=True):
            torch.compile(inner, backend=compiler, dynamic=dynamic)(*args, **kwargs)
        fresh = [text for text, count in _break_counts().items() if count > before.get(text, 0)]
    finally:
        log.setLevel(level)
        torch._dynamo.reset()
    graphs: list[Graph] = []
    breaks: list[Break] = []
    for i, (reason, found) in enumerate(parts):
        made = [_graph(g, f"graph {i}" + ("" if g.kind == "inference" else f" {g.kind}")) for g in found]
        made.sort(key=lambda g: g.kind == "backward")  # PyTorch compiles it first
        graphs += made
        if made and getattr(reason, "graph_break", False):
            breaks.append(_break(reason, made[0]))
    known = {str(reason.reason).strip().splitlines()[0] for reason, found in parts if found and getattr(reason, "graph_break", False)}
    return Explanation(graphs, breaks, _skipped(not graphs, [text for text in fresh if text.strip().splitlines()[0] not in known]))
