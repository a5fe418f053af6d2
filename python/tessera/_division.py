"""How calls are divided where something among them cannot be compiled, so that a call at fault costs only itself.

Most errors of the library name the node that they are about. Where one names none, halves of the calls are compiled, halves of the half that
fails, and so on: the call that fails alone is at fault. Where both halves compile, they stay two programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from . import _program
from ._errors import Error
from ._subgraph import Subgraph

Node = torch.fx.Node

# Calls in compiles that fail, at most, by the number of calls of the graph, and a constant added to it: what is spent on finding those at fault.
_WORK_PER_CALL, _WORK = 12, 256


def reason_of(error: BaseException) -> str:
    """The first line of an error, without the place that the call itself says."""
    text = error.message if isinstance(error, Error) else str(error)
    return text.splitlines()[0] if text else type(error).__name__


def _at_fault(calls: Sequence[Node], error: BaseException) -> Node | None:
    """The call that an error names; None if it names none of them."""
    name = error.output if isinstance(error, Error) else getattr(error, "node_name", "")
    for n in calls if name else ():
        if name == n.name or name.startswith(f"{n.name}_unused_"):
            source = n.args[0] if _program.is_part(n) else n
            return source if isinstance(source, Node) and source in calls else None
    return None


def _with_parts(call: Node) -> list[Node]:
    return [call, *(u for u in call.users if _program.is_part(u))]


def _signature(n: Node) -> tuple[object, ...]:
    """The key of a call that decides whether it can be compiled by itself: the operator, its constants, and the types of its operands and results."""

    def kind(v: object) -> object:
        if isinstance(v, torch.Tensor):
            return (str(v.dtype), tuple(map(str, v.shape)), tuple(map(str, v.stride())) if v.layout == torch.strided else ())
        return tuple(map(kind, v)) if isinstance(v, (list, tuple)) else type(v).__name__

    def argument(a: object) -> object:
        if isinstance(a, Node):
            return kind(a.meta.get("val"))
        return tuple(map(argument, a)) if isinstance(a, (list, tuple)) else str(a)

    return (n.target, argument(n.args), argument(tuple(n.kwargs.items())), kind(n.meta.get("val")))


class Division:
    """Programs of the calls of one graph."""

    def __init__(self, graph: torch.fx.Graph, compile_calls: Callable[[Sequence[Node]], Subgraph], calls: Sequence[Node]):
        """compile_calls: makes one program, or raises; calls: all of the graph."""
        self._compile, self._calls = compile_calls, calls
        self._place = {n: i for i, n in enumerate(graph.nodes)}
        self._work = _WORK_PER_CALL * len(calls) + _WORK
        self.error = ""  # the first one that named no call

    def _attempt(self, calls: Sequence[Node]) -> Subgraph | Exception:
        try:
            return self._compile(calls)
        except Exception as e:
            self._work -= len(calls)
            return e

    def _alike(self, call: Node, reason: str) -> dict[Node, str]:
        """This call with its parts, and, if it cannot be compiled alone either, all calls like it: they fail for the same reason."""
        found = [call]
        if isinstance(self._attempt(_with_parts(call)), Exception):
            signature = _signature(call)
            found += [n for n in self._calls if n is not call and n.target is call.target and _signature(n) == signature]
        return {part: reason for n in found for part in _with_parts(n)}

    def programs(self, calls: Sequence[Node]) -> tuple[list[Subgraph], dict[Node, str]]:
        """Programs that together are these calls, in order; or calls of the graph that have to be left to PyTorch, with the reason."""
        made = self._attempt(calls)
        if isinstance(made, Subgraph):
            return [made], {}
        reason = reason_of(made)
        if (call := _at_fault(calls, made)) is not None and self._work > 0:
            return [], self._alike(call, reason)
        self.error = self.error or reason
        heads = [n for n in calls if not (_program.is_part(n) and n.args[0] in calls)]
        if len(heads) == 1:
            return [], self._alike(heads[0], reason)
        if self._work <= 0:
            return [], dict.fromkeys(calls, f"its subgraph was not compiled: {reason}")
        parts: list[Subgraph] = []
        refused: dict[Node, str] = {}
        for half in (heads[: len(heads) // 2], heads[len(heads) // 2 :]):
            inside = set(half)
            nodes = [n for n in calls if n in inside or (_program.is_part(n) and n.args[0] in inside)]
            nodes.sort(key=self._place.__getitem__)
            more, faults = self.programs(nodes)
            parts += more
            refused |= faults
        return ([], refused) if refused else (parts, {})
