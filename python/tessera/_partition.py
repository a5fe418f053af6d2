"""Chooses the operators of a graph that Tessera takes, and splits it into as few subgraphs as the order of the
operators allows.

Stages alternate: what PyTorch runs in stage k reads subgraphs of stages before k, what Tessera runs in stage k reads what PyTorch
ran up to stage k. So the calls of a stage form one subgraph, subgraphs are never cyclic, and their number is the number of
times that the longest path changes sides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from . import _library, _program
from ._program import value_bytes

Node = torch.fx.Node

# Calls that state facts about sizes: the ranges of symbols in the program say the same.
_FACTS = {"aten._assert_scalar.default", "aten.sym_constrain_range.default", "aten.sym_constrain_range_for_size.default"}


def reads_data(node: Node) -> bool:
    """True for a call that yields a number of Python's from the elements of a tensor: item()."""
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.data_dependent_output in node.target.tags


def is_size(node: Node) -> bool:
    """True for a call whose value is a size or a condition on sizes."""
    v = node.meta.get("val")
    return node.op == "call_function" and not reads_data(node) and (isinstance(v, (torch.SymInt, torch.SymBool)) or (isinstance(v, int) and not isinstance(v, bool)))


# Arguments, with the value under which the operator draws no random numbers.
_NOT_RANDOM: dict[str, object] = {"dropout_p": 0.0, "train": False, "training": False}


def is_random(node: Node) -> bool:
    """True for a call that draws random numbers."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    for i, a in enumerate(target._schema.arguments):
        if a.name in _NOT_RANDOM:
            given = node.args[i] if i < len(node.args) else node.kwargs.get(a.name, a.default_value)
            return bool(given != _NOT_RANDOM[a.name])
    return True


# Calls that may raise an error, and whose value nothing reads.
_ASSERTIONS = {"aten._assert_async.default", "aten._assert_async.msg"}


def is_ordered(node: Node) -> bool:
    """True for calls that must run and keep their order among each other: random ones, those that change state, assertions, collectives."""
    target = node.target
    if node.op != "call_function":
        return False
    if not isinstance(target, torch._ops.OpOverload):
        return isinstance(target, torch._ops.HigherOrderOperator)
    return is_random(node) or target._schema.is_mutable or str(target) in _ASSERTIONS or target.namespace not in ("aten", "prims")


def is_view(node: Node) -> bool:
    target = node.target
    return _program.is_part(node) or is_size(node) or (isinstance(target, torch._ops.OpOverload) and target.is_view)


def tensors(value: object) -> Iterator[torch.Tensor]:
    """The tensors of a node's value."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from tensors(v)


def _refused_value(node: Node, device: torch.device) -> str | None:
    """Why the library cannot hold a tensor of this node's; None if it can."""
    for t in tensors(node.meta.get("val")):
        if t.dtype not in _library.DTYPES:
            return f"a tensor of {str(t.dtype).removeprefix('torch.')}"
        if t.layout != torch.strided or type(t) not in (torch.Tensor, torch.nn.Parameter) and not torch._subclasses.fake_tensor.is_fake(t):
            return f"a tensor of layout {t.layout} and type {type(t).__name__}"
        if t.device != device and not (t.device.type == "cpu" and t.dim() == 0):
            return f"a tensor on {t.device} in a graph on {device}"
    return None


# Attention with the sums that its gradient reads, and the gradient.
_KERNELS = ("flash_attention", "efficient_attention", "cudnn_attention", "fused_attention_overrideable")
_WITH_SUMS = {f"aten._scaled_dot_product_{name}.default" for name in _KERNELS}
_GRADIENTS = {f"aten._scaled_dot_product_{name}_backward.default" for name in _KERNELS}


_TILE_ROWS = 128  # of PyTorch's kernel for products of groups


def _grouped_there(n: Node) -> str | None:
    """Why PyTorch's kernel is the faster one for a product of groups on a GPU: of the depth, whose copies here are no bulk ones; of rows
    that fill its tiles. Tiles here are as small as the groups."""
    arguments: list[Any] = list(n.args)
    a, b = (x.meta["val"] for x in arguments[:2])
    if a.device.type != "cuda":
        return None
    if a.dim() == b.dim() == 2:
        return "groups of the depth come by bulk copies in PyTorch's kernel"
    if a.dim() != 2:
        return None
    rows = _program.count([a.shape[0]]) // max(1, _program.count([b.shape[0]]))
    return f"its groups of about {rows} rows fill the tiles of PyTorch's kernel" if rows >= _TILE_ROWS else None


def faster_there(graph: torch.fx.Graph) -> dict[Node, str]:
    """Calls on a GPU for which PyTorch has a kernel that is faster than a program here, with the reason: attention of a training
    step. Here it is products with the scores in memory, as often as they are read; PyTorch's kernel keeps them on the chip. Scores that
    fit into the level-2 cache stay here, where a division of the graph costs more. Some products of groups, likewise."""
    found: dict[Node, str] = {}
    for n in graph.nodes:
        if str(n.target) == "aten._grouped_mm.default":
            if reason := _grouped_there(n):
                found[n] = reason
            continue
        if str(n.target) not in _GRADIENTS and not (str(n.target) in _WITH_SUMS and any(u.args[1] == 1 for u in n.users if _program.is_part(u))):
            continue
        arguments = {a.name: value for a, value in zip(n.target._schema.arguments, n.args)}
        q, k = (arguments[name].meta["val"] for name in ("query", "key"))
        scores = _program.count([*q.shape[:-1], k.shape[-2]]) * torch.float32.itemsize
        if q.device.type == "cuda" and scores > torch.cuda.get_device_properties(q.device).L2_cache_size:
            reason = f"its {scores / 1e6:.0f} MB of scores stay on the chip in PyTorch's kernel"
            found |= dict.fromkeys([n, *(u for u in n.users if _program.is_part(u))], reason)
    return found


def refused_before(graph: torch.fx.Graph, device: torch.device) -> dict[Node, str]:
    """The calls of a graph that are left to PyTorch before the library sees them, with the reason."""
    refused: dict[Node, str] = {}
    for n in graph.nodes:
        if n.op != "call_function" or is_size(n) or str(n.target) in _FACTS:
            continue
        reason = None
        if _program.is_part(n):
            source = n.args[0]
            reason = refused.get(source) if isinstance(source, Node) else None
        elif is_random(n):
            reason = "random numbers are PyTorch's, so that a seed gives what it gives there"
        elif reads_data(n):
            reason = "it makes a number of Python's from an element of a tensor"
        elif any(i in refused and isinstance(i.meta.get("val"), (torch.SymFloat, torch.SymBool)) for i in n.all_input_nodes):
            reason = "it reads a number that PyTorch computes"
        else:
            for v in (n, *n.all_input_nodes):
                reason = reason or _refused_value(v, device)
            reason = reason or _program.not_expressible(n)
        if reason:
            refused[n] = reason
    return refused


def refusals(graph: torch.fx.Graph, device: torch.device, constants: Mapping[Node, tuple[str, torch.Tensor]]) -> dict[Node, str]:
    """The calls of a graph that Tessera does not take, with the reason. Raises an error of the library."""
    refused = refused_before(graph, device)
    calls = [n for n in graph.nodes if n.op == "call_function" and not is_size(n)]
    taken = [n for n in calls if n not in refused and str(n.target) not in _FACTS]
    # Values of calls that are not taken are inputs of what the library surveys.
    inputs = [n for n in graph.nodes if (n.op == "placeholder" or n in refused) and isinstance(n.meta.get("val"), (torch.Tensor, torch.SymInt))]
    inputs = [n for n in inputs if _refused_value(n, device) is None]
    if taken:
        program = _program.write_program(inputs, taken, [], constants)
        found = json.loads(_library.survey_program(_program.dumps(program.json), _program.host_values(constants)))
        for r in found:
            n = program.nodes[r["node"]]
            if n is not None:
                refused[n] = r["reason"]
        for n in taken:
            if _program.is_part(n) and n.args[0] in refused:
                refused[n] = refused[n.args[0]]
    return refused


def _is_work(node: Node) -> bool:
    return not is_view(node)


def stages(graph: torch.fx.Graph, refused: Mapping[Node, str]) -> tuple[list[list[Node]], dict[Node, str]]:
    """The subgraphs for Tessera in the order in which they run, and the calls for PyTorch with the reason.

    Sizes belong to both sides and are in neither. A stage of views, or of a single operator, is left to PyTorch when
    there is anything else that PyTorch runs: a call would cost more than it gains.
    """
    left = dict(refused)
    while True:
        level: dict[Node, int] = {}  # of calls; of sizes: the stage whose subgraph can state them
        ready: dict[Node, int] = {}  # first stage in which PyTorch can read the value
        last_ordered = 0
        for n in graph.nodes:
            if n.op != "call_function" or str(n.target) in _FACTS:
                continue
            if n in left:
                at = max((ready.get(i, 0) for i in n.all_input_nodes), default=0)
                if is_ordered(n):
                    at = last_ordered = max(at, last_ordered)
                level[n] = ready[n] = at
            else:
                level[n] = max((level.get(i, 0) for i in n.all_input_nodes), default=0)
                ready[n] = max((ready.get(i, 0) for i in n.all_input_nodes), default=0) if is_size(n) else level[n] + 1
        # Calls run where they are read, if that lets no more bytes cross.
        for n in reversed(list(graph.nodes)):
            if n not in level or n in left or is_size(n) or _program.is_part(n) or isinstance(n.meta.get("val"), (list, tuple)):
                continue
            if not n.users or not all(u in level and u not in left and not is_size(u) for u in n.users):
                continue
            at = min(level[u] for u in n.users)
            more = sum(value_bytes(i) for i in n.all_input_nodes if i in level and i not in left and not is_size(i)
                       and all(u is n or u not in left and level.get(u, -1) <= level[i] for u in i.users))  # fmt: skip
            if at > level[n] and more <= value_bytes(n):
                level[n] = at
        groups: dict[int, list[Node]] = {}
        for n in graph.nodes:
            if n in level and n not in left and not is_size(n):
                groups.setdefault(level[n], []).append(n)
        small = [g for g in groups.values() if sum(map(_is_work, g)) <= 1] if left else []
        if not small:
            return [groups[k] for k in sorted(groups)], left
        for g in small:
            for n in g:
                left[n] = "a subgraph of one operator between operators that PyTorch runs" if any(map(_is_work, g)) else "a subgraph of views"
