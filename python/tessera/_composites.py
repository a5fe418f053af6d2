"""Attention reaches the importer whole.

PyTorch takes scaled_dot_product_attention apart while it traces, by what its own kernels accept: for a mask that they do not
take, two products of f32. Where no gradient is needed, Dynamo's graph calls an operator of ours instead, which tracing
leaves as it is and which programs name as PyTorch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_SDPA = torch.nn.functional.scaled_dot_product_attention


@torch.library.custom_op("tessera::scaled_dot_product_attention", mutates_args=())
def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor:  # fmt: skip
    """torch.nn.functional.scaled_dot_product_attention, contiguous."""
    y = _SDPA(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    return y.contiguous()


@attention.register_fake
def _(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: Any = 0.0, is_causal: Any = False, scale: Any = None, enable_gqa: Any = False) -> Any:
    return query.new_empty((*query.shape[:-1], value.shape[-1]))


# Operators of ours, and what they are to the importer.
ATEN_NAMES = {torch.ops.tessera.scaled_dot_product_attention.default: "aten.scaled_dot_product_attention.default"}


def needs_gradients(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """True if a call of Dynamo's graph `gm` is followed by a backward pass."""
    tensors = (*inputs, *gm.parameters())
    return torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in tensors)


def _is_plain(node: torch.fx.Node) -> bool:
    """True for an attention on a GPU without dropout, whose dtype autocast does not change, with one batch of heads."""
    given = dict(zip(("query", "key", "value", "attn_mask", "dropout_p"), node.args)) | node.kwargs
    query, *others = (getattr(given.get(k), "meta", {}).get("example_value") for k in ("query", "key", "value"))
    result = node.meta.get("example_value")
    if not isinstance(query, torch.Tensor) or not isinstance(result, torch.Tensor) or given.get("dropout_p", 0.0) != 0.0:
        return False
    if any(not isinstance(t, torch.Tensor) for t in others):
        return False
    return query.device.type == "cuda" and result.dtype == query.dtype and result.shape[:-1] == query.shape[:-1]


def keep(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Replaces what is to reach the importer whole in Dynamo's graph `gm`."""
    if needs_gradients(gm, inputs):
        return
    changed = False
    for node in gm.graph.find_nodes(op="call_function", target=_SDPA):
        if _is_plain(node):
            node.target = torch.ops.tessera.scaled_dot_product_attention.default
            changed = True
    if changed:
        gm.recompile()
