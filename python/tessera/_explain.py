"""tessera.explain(): Dynamo's graph breaks and Tessera's fusion report of one call, together."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Callable
from typing import Any

import torch

from . import _program, backend
from ._options import Options
from ._program import value_bytes


@dataclasses.dataclass
class Break:
    """A graph break: why Dynamo ended a graph, and the user's line."""

    reason: str
    place: str  # "model.py:42 in forward", innermost call; empty where Dynamo does not know it
    line: str = ""  # text of that line

    def __str__(self) -> str:
        return (f"{self.place}: " if self.place else "") + self.reason


@dataclasses.dataclass
class Left:
    """Calls of one operator that run in PyTorch."""

    operator: str
    count: int
    reason: str
    place: str  # of the first one
    bytes: int  # that cross between Tessera and PyTorch through these calls, at the sizes of the call


@dataclasses.dataclass
class Graph:
    """One graph of the call: its compiled subgraphs and what runs in PyTorch."""

    name: str
    kind: str  # "inference", "forward", "backward"
    reports: list[dict[str, Any]]  # of the subgraphs, as `tessera explain --format json` shows them
    left: list[Left]
    crossing_bytes: int  # between the subgraphs and PyTorch inside the graph, at the sizes of the call
    boundary_bytes: int  # results of the graph that leave it, at the sizes of the call

    def total(self, what: str) -> int:
        """Sum over subgraphs of a count in the reports: "kernels", "library_calls", "host_operators", "copies"."""
        return sum(int(r.get("totals", {}).get(what, 0)) for r in self.reports)

    @property
    def launches(self) -> int:
        """Kernels, library calls, copies and calls of operators in PyTorch."""
        return sum(self.total(w) for w in ("kernels", "library_calls", "host_operators", "copies")) + sum(x.count for x in self.left)


@dataclasses.dataclass
class Explanation:
    """What became of one call. str() is a text, its first screen a summary; json() has everything."""

    graphs: list[Graph]
    breaks: list[Break]

    def json(self) -> dict[str, Any]:
        """graphs[i]["programs"] are the reports of `tessera explain --format json`; sizes are those of the call."""
        return {
            "breaks": [dataclasses.asdict(b) for b in self.breaks],
            "graphs": [
                {
                    "name": g.name,
                    "kind": g.kind,
                    "launches": g.launches,
                    "crossing_bytes": g.crossing_bytes,
                    "boundary_bytes": g.boundary_bytes,
                    "programs": g.reports,
                    "left_to_pytorch": [dataclasses.asdict(x) for x in g.left],
                }
                for g in self.graphs
            ],
        }

    def __str__(self) -> str:
        launches = sum(g.launches for g in self.graphs)
        out = [f"{_many(len(self.graphs), 'graph')}, {_many(len(self.breaks), 'graph break')}, {launches} {'launch' if launches == 1 else 'launches'}"]
        for b in self.breaks:
            out.append(f"  break   {b}")
            if b.line:
                out.append(f"            {b.line}")
        if self.breaks:
            lost = sum(g.boundary_bytes for g in self.graphs[:-1])
            out.append(f"  cost    each break ends a graph: {_bytes(lost)} leave graphs that another one reads, and nothing fuses across it")
        for g in self.graphs:
            parts = _many(len(g.reports), "program")
            counts = ", ".join(f"{n} {w}" for n, w in ((g.total("kernels"), "kernels"), (g.total("library_calls"), "library calls"),
                               (g.total("host_operators"), "CPU fallbacks"), (g.total("copies"), "copies")) if n)  # fmt: skip
            out.append(f"{g.name}: {parts}: {counts or 'no launch'}")
            if g.left:
                out.append(f"  left to PyTorch: {_many(sum(x.count for x in g.left), 'operator')}, {_bytes(g.crossing_bytes)} cross")
                for x in g.left:
                    times = f" x{x.count}" if x.count > 1 else ""
                    out.append(f"    {x.operator}{times}: {x.reason}" + (f" ({x.place})" if x.place else ""))
        for g in self.graphs:
            for r in g.reports:
                out.append("")
                out.append(f"{r['name']}:" if "name" in r else f"{g.name}:")
                for kind, label in (("kernels", "kernel"), ("library_calls", "library call"), ("host_operators", "CPU fallback")):
                    for k in r.get(kind, []):
                        operators = ", ".join(dict.fromkeys(o["op"] or o["name"] for o in k.get("operators", [])))
                        out.append(f"  {label:12}  {k.get('name', '')}  {k.get('iteration', k.get('library_call', ''))}  {operators}".rstrip())
        return "\n".join(out)


def _many(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


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


def _graph(g: backend.CompiledGraph) -> Graph:
    reports = []
    for s in g.subgraphs:
        report = json.loads(s.session.report())
        report.setdefault("name", s.name)
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
    return Graph(g.name, g.kind, reports, list(left.values()), g.crossing, sum(value_bytes(r) for r in g.results if isinstance(r, torch.fx.Node)))


def _breaks(reasons: list[Any]) -> list[Break]:
    out = []
    for r in reasons:
        if not getattr(r, "graph_break", True):
            continue
        frames = [f for f in getattr(r, "user_stack", None) or []]
        place = line = ""
        if frames:
            f = frames[-1]
            place, line = f"{os.path.basename(f.filename)}:{f.lineno} in {f.name}", (f.line or "").strip()
        out.append(Break(str(r.reason).strip().splitlines()[0], place, line))
    return out


def explain(fn: Callable[..., Any], *args: Any, options: dict[str, Any] | None = None, **kwargs: Any) -> Explanation:
    """Compiles `fn` for these arguments, calls it once, and says what became of it.

    fn: a module or function, compiled or not. The call has the effects that it has; what torch.compile compiled before is
    compiled again (torch._dynamo.reset()). If a result needs gradients, the graph of the backward pass is shown when it
    is compiled within the call.
    Raises what `fn` raises.
    """
    found: list[backend.CompiledGraph] = []
    chosen = {**dataclasses.asdict(Options()), **(options or {})}
    inner = getattr(fn, "_orig_mod", None) or getattr(fn, "_torchdynamo_orig_callable", None) or fn
    reasons: list[Any] = []

    def compiler(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        reason = getattr(gm, "compile_subgraph_reason", None)
        if reason is not None:
            reasons.append(reason)
        return backend.tessera(gm, inputs, options=chosen)

    torch._dynamo.reset()
    level = backend.log.level
    try:
        backend.log.setLevel(logging.ERROR)  # the explanation says it
        with backend.observed(found.append):
            torch.compile(inner, backend=compiler)(*args, **kwargs)
    finally:
        backend.log.setLevel(level)
        torch._dynamo.reset()
    return Explanation([_graph(g) for g in found], _breaks(reasons))
