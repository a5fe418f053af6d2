"""Sizes that become constants of the compiled code, though PyTorch has them as symbols.

With dynamic=True every size of a tensor is a symbol. Some code exists for a known size only: a GPU's attention for the width
of a head, which a model never changes. The library states for each operator which dimensions these are. Their values in the
call that is compiled become guards, PyTorch's own: another value is a recompile, and all other sizes stay symbols.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Mapping

import torch

from . import _library
from ._composites import ATEN_NAMES

Node = torch.fx.Node
DEVICES = frozenset({"cuda"})  # that have such code


@functools.cache
def _by_operator() -> dict[str, list[tuple[str, int, str]]]:
    """Operator -> (argument, dimension, argument whose equal dimension makes it unnecessary)."""
    return {name: [(s["argument"], s["dim"], s["differs_from"]) for s in sizes] for name, sizes in json.loads(_library.known_sizes()).items()}


def _arguments(node: Node, target: torch._ops.OpOverload) -> Mapping[str, object]:
    return dict(zip((a.name for a in target._schema.arguments), node.args)) | node.kwargs


def _size(argument: object, dim: int) -> int | torch.SymInt | None:
    """The dimension `dim`, counted from the end, of a node's tensor; None where there is none."""
    value = argument.meta.get("val") if isinstance(argument, Node) else None
    return value.shape[dim] if isinstance(value, torch.Tensor) and value.dim() >= -dim else None


def make_known(graph: torch.fx.Graph, device: torch.device) -> None:
    """Guards the sizes that operators of a graph need known, at the values of the call that it is compiled for.

    The graph's sizes are unchanged as objects: their expressions are numbers from now on. PyTorch must still take guards: a
    forward graph or one without gradients, while it is compiled. Sizes that are data are left as they are.
    """
    if device.type not in DEVICES:
        return
    for n in graph.nodes:
        target = n.target
        if n.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
            continue
        for argument, dim, differs_from in _by_operator().get(ATEN_NAMES.get(target, str(target)), ()):
            given = _arguments(n, target)
            size = _size(given.get(argument), dim)
            if not isinstance(size, torch.SymInt) or not size.node.has_hint():
                continue
            other = _size(given.get(differs_from), dim) if differs_from else None
            if other is None or not _same(size, other):
                operator.index(size)


def _same(a: torch.SymInt, b: int | torch.SymInt) -> bool:
    return isinstance(b, torch.SymInt) and bool(a.node.expr == b.node.expr)
