"""Decompositions for AOTAutograd, applied before Tessera sees a graph, and the division of a training step into forward
and backward.

PyTorch's partition decides what the forward pass saves for the backward pass. It computes cheap operators again, but an
operator with several results, such as a normalization, counts as one that is not: its result would be saved beside its
input. Taken apart, its statistics are saved (a number a row or channel), and its result is computed again where the
backward pass reads it.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.utils.checkpoint import CheckpointPolicy

aten = torch.ops.aten
Table = dict[Any, Callable[..., Any]]  # of overloads

# Composites whose meaning is worth more than their parts: the importer takes them whole.
_KEPT = (
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    # Their parts count negative positions from the end, which are errors of these.
    "aten.index_add.default", "aten.index_add_.default", "aten.index_copy.default", "aten.index_copy_.default",
    # Its parts do not, and it does.
    "aten.index_fill.int_Scalar", "aten.index_fill_.int_Scalar", "aten.index_fill.int_Tensor", "aten.index_fill_.int_Tensor",
    # A number that the dtype does not hold is an error, and of their parts another number.
    "aten.masked_fill.Scalar", "aten.masked_fill_.Scalar", "aten.masked_fill.Tensor", "aten.masked_fill_.Tensor",
    "aten.addcmul.default", "aten.addcmul_.default",
    # Its parts take negative positions for 0.
    "aten._unsafe_masked_index.default",
    # Its parts accept what is not between 0 and 1.
    "aten.binary_cross_entropy.default", "aten.bernoulli.default",
    # Its parts make 0 of NaN.
    "aten.smooth_l1_loss_backward.default",
    # Its parts make -0 of -0.
    "aten.frac.default", "aten.frac_.default",
)  # fmt: skip
_KEPT_IN_INFERENCE = ("aten.silu.default", "aten.hardswish.default", "aten.hardsigmoid.default", "aten._fused_rms_norm.default")


@functools.cache
def inference() -> Table:
    table = {op: f for op, f in core_aten_decompositions().items() if str(op) not in _KEPT + _KEPT_IN_INFERENCE}
    return table | _checking(table) | _of_lists()


@functools.cache
def _of_lists() -> Table:
    """Operators of lists of tensors (_foreach_add), by PyTorch's own kernels for any device, which call an operator for each tensor."""
    table: Table = {}
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("aten::_foreach_") and torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeExplicitAutograd"):
            packet, _, overload = name.removeprefix("aten::").partition(".")
            op = getattr(getattr(aten, packet), overload or "default")
            if not op._schema.is_mutable:
                table[op] = functools.partial(op._op_dk, torch._C.DispatchKey.CompositeExplicitAutograd)
    return table | {aten._foreach_zero.default: lambda tensors: [torch.zeros_like(t) for t in tensors]}  # whose kernel writes to a copy


def _checking(table: Table) -> Table:
    """Decompositions of the table that do not refuse what their operator refuses, with the check."""
    return {op: functools.partial(_max_unpool, table[op]) for op in (aten.max_unpool2d.default, aten.max_unpool3d.default) if op in table}


@functools.cache
def training() -> Table:
    table = {op: f for op, f in core_aten_decompositions().items() if str(op) not in _KEPT}
    table |= _checking(table) | _of_lists()
    table |= get_decompositions([
        aten.native_layer_norm, aten.native_group_norm, aten._softmax, aten._log_softmax,
        aten._native_batch_norm_legit_no_training, aten._batch_norm_no_update,
    ])  # fmt: skip
    return table | {
        aten._native_batch_norm_legit_functional.default: _batch_norm_functional,
        aten._native_batch_norm_legit.no_stats: _batch_norm_without_running,
        aten.native_dropout.default: _dropout,
        aten.bmm.default: _bmm,
        aten.cat.default: _cat,
        aten.max_pool2d_with_indices.default: functools.partial(_max_pool, aten.max_pool2d_with_indices, 2),
        aten.max_pool3d_with_indices.default: functools.partial(_max_pool, aten.max_pool3d_with_indices, 3),
        aten.max_pool2d_with_indices_backward.default: functools.partial(_max_pool_backward, aten.max_pool2d_with_indices_backward),
        aten.max_pool3d_with_indices_backward.default: functools.partial(_max_pool_backward, aten.max_pool3d_with_indices_backward),
    }


def partition(joint: torch.fx.GraphModule, inputs: Sequence[Any], **given: Any) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule]:
    """The forward and the backward graph of a joint one. given: what AOTAutograd knows of the inputs and results."""
    for index, mask in enumerate(joint.graph.find_nodes(op="call_function", target=torch.ops.tessera.dropout_mask.default)):
        mask.kwargs = {**mask.kwargs, "index": index}  # equal calls are made once
    _save_what_is_compared(joint.graph)
    forward, backward = min_cut_rematerialization_partition(joint, inputs, compiler="inductor", **given)
    _mark_donated(forward, backward, given["num_fwd_outputs"])
    return forward, backward


_EXTREMES = {aten.amax.default, aten.amin.default, aten.max.default, aten.min.default}
_COMPARISONS = {aten.eq.Tensor, aten.ne.Tensor, aten.ge.Tensor, aten.gt.Tensor, aten.le.Tensor, aten.lt.Tensor}


def _shown(value: object) -> object:
    """The value that another one shows, through views and widening conversions."""
    while isinstance(value, torch.fx.Node) and isinstance(value.target, torch._ops.OpOverload) and value.args:
        source = value.args[0]
        widens = value.target is torch.ops.prims.convert_element_type.default or value.target is aten._to_copy.default
        if not isinstance(source, torch.fx.Node) or not (value.target.is_view or value.target is aten.clone.default or (widens and _widens(source, value))):
            break
        value = source
    return value


def _widens(source: torch.fx.Node, to: torch.fx.Node) -> bool:
    return bool(torch.promote_types(source.meta["val"].dtype, to.meta["val"].dtype) == to.meta["val"].dtype)


def _save_what_is_compared(joint: torch.fx.Graph) -> None:
    """The gradient of an extreme goes to the elements that equal it: none would if the backward pass rounded them otherwise than the forward pass."""
    for n in joint.nodes:
        if n.target not in _COMPARISONS:
            continue
        a, b = (_shown(v) for v in n.args[:2])
        for extreme, of in ((a, b), (b, a)):
            if isinstance(extreme, torch.fx.Node) and extreme.target in _EXTREMES and isinstance(of, torch.fx.Node) and of.op == "call_function" and _shown(extreme.args[0]) is of:
                of.meta["recompute"] = CheckpointPolicy.MUST_SAVE


# Key of meta, of an input of a backward graph: a saved tensor whose memory nothing else has, and that nobody needs behind the backward pass.
DONATED = "tessera_donated"


def _mark_donated(forward: torch.fx.GraphModule, backward: torch.fx.GraphModule, returned: int) -> None:
    """`returned`: how many of the forward graph's results are not for the backward graph."""
    results: Sequence[Any] = forward.graph.output_node().args[0]  # type: ignore[assignment]
    tensors = {n for n in (*forward.graph.find_nodes(op="placeholder"), *results) if isinstance(n, torch.fx.Node) and isinstance(n.meta.get("val"), torch.Tensor) and n.meta["val"].layout == torch.strided}
    owners = collections.Counter(_storage(n) for n in tensors)
    saved = {n.name for n in results[returned:] if n in tensors and n.op != "placeholder" and owners[_storage(n)] == 1} - {
        n.name for n in results[:returned] if isinstance(n, torch.fx.Node)
    }
    for placeholder in backward.graph.find_nodes(op="placeholder"):
        if placeholder.name in saved:
            placeholder.meta[DONATED] = True


def _storage(n: torch.fx.Node) -> int:
    return int(n.meta["val"].untyped_storage()._cdata)


_state = threading.local()


@contextlib.contextmanager
def _whole() -> Iterator[None]:
    """Decompositions of ours leave what is called inside as it is."""
    before = getattr(_state, "whole", False)
    _state.whole = True
    try:
        yield
    finally:
        _state.whole = before


def _is_whole() -> bool:
    return bool(getattr(_state, "whole", False))


# ---- dropout
_LIBRARY = torch.library.Library("tessera", "FRAGMENT")
_LIBRARY.define(
    "dropout_mask(SymInt[] size, SymInt[] stride, float p, *, ScalarType dtype, Device device, int index=0) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded,),
)


def _dropout_mask(size: Any, stride: Any, p: float, *, dtype: torch.dtype, device: torch.device, index: int = 0) -> torch.Tensor:
    """The mask of a dropout of probability p, true where it leaves an element, by the random numbers that eager mode draws
    for it.

    size, stride, dtype, device: of that tensor. index: tells masks of equal tensors apart in a graph, and has no other use.
    """
    if device.type == "cpu":
        return torch.empty_strided(size, stride, dtype=torch.bool, device=device).bernoulli_(1 - p)
    return aten.native_dropout(torch.empty_strided(size, stride, dtype=dtype, device=device), p, True)[1]  # type: ignore[no-any-return]


def _fake_dropout_mask(size: Any, stride: Any, p: float, *, dtype: Any, device: Any, index: int = 0) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=torch.bool, device=device)


_LIBRARY.impl("dropout_mask", _dropout_mask, "CompositeExplicitAutograd")
torch.library.register_fake("tessera::dropout_mask", _fake_dropout_mask, lib=_LIBRARY)


def _dropout(x: torch.Tensor, p: float, train: bool | None) -> Any:
    """PyTorch draws the mask alone, which waits for nothing that the graph computes; the product is the graph's."""
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    mask = torch.ops.tessera.dropout_mask(x.shape, x.stride(), p, dtype=x.dtype, device=x.device)
    return x * mask * (1 / (1 - p)), mask


# ---- batch normalization
def _batch_norm_functional(x: torch.Tensor, weight: Any, bias: Any, running_mean: torch.Tensor, running_var: torch.Tensor,
                           training: bool, momentum: float, eps: float) -> Any:  # fmt: skip
    """Computes PyTorch's function, which on a CPU rounds the statistics to x's dtype."""
    if not training:
        y, mean, rstd = aten._native_batch_norm_legit_no_training(x, weight, bias, running_mean, running_var, momentum, eps)
        return y, mean, rstd, running_mean, running_var
    y, mean, rstd, variance = _normalized(x, weight, bias, eps)
    count = x.numel() / x.shape[1]
    unbiased = variance * (count / (count - 1))
    return y, mean, rstd, (1 - momentum) * running_mean + momentum * mean, (1 - momentum) * running_var + momentum * unbiased


def _batch_norm_without_running(x: torch.Tensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> Any:
    return _normalized(x, weight, bias, eps)[:3]


def _normalized(x: torch.Tensor, weight: Any, bias: Any, eps: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """x [N, C, ...] normalized by its own statistics, and these, [C]: the mean, the reciprocal deviation, the variance."""
    dims = [0, *range(2, x.dim())]
    wide = torch._prims_common.get_computation_dtype(x.dtype)
    variance, mean = torch.var_mean(x.to(wide), dims, correction=0, keepdim=True)
    rstd = torch.rsqrt(variance + eps)
    y = (x - mean) * rstd
    along = (-1, *[1] * (x.dim() - 2))
    if weight is not None:
        y = y * weight.reshape(along)
    if bias is not None:
        y = y + bias.reshape(along)
    return y.to(x.dtype), mean.squeeze(dims), rstd.squeeze(dims), variance.squeeze(dims)


# ---- products
def _bmm(a: torch.Tensor, b: torch.Tensor) -> Any:
    """One term a sum: no product of matrices, and cheap to compute again."""
    if isinstance(a.shape[2], int) and a.shape[2] == 1 and a.dtype == b.dtype:
        return a * b
    return NotImplemented


# ---- concatenation
def _cat(tensors: Sequence[torch.Tensor], dim: int = 0) -> Any:
    """A concatenation of one tensor, which is not empty, or of one several times, as views: these are computed again, a concatenation is not."""
    parts = [t for t in tensors if not (isinstance(t.numel(), int) and t.numel() == 0)]
    if not parts or any(t is not parts[0] for t in parts):
        return NotImplemented
    y, count = parts[0], len(parts)
    dtype = functools.reduce(torch.promote_types, (t.dtype for t in tensors))
    if count > 1:
        dim %= y.dim()
        wide = y.unsqueeze(dim).expand(*y.shape[:dim], count, *y.shape[dim:])
        y = wide.reshape(*y.shape[:dim], count * y.shape[dim], *y.shape[dim + 1 :])
    return y.to(dtype) if dtype != y.dtype else y.clone(memory_format=torch.contiguous_format)


# ---- maxima of windows
def _filled(sizes: Sequence[int], n: int, default: Sequence[int]) -> list[int]:
    """An argument of a pooling operator for each of its n dimensions."""
    return list(sizes) * n if len(sizes) == 1 else list(sizes) or list(default)


def _max_pool(op: Any, n: int, x: torch.Tensor, kernel_size: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
              dilation: Sequence[int] = (1,), ceil_mode: bool = False) -> Any:  # fmt: skip
    """Indices, of 64 bits, by way of the positions in their windows, which a byte holds: these are what is saved."""
    kernel = _filled(kernel_size, n, ())
    if _is_whole() or math.prod(kernel) > 128:
        return NotImplemented
    stride, padding, dilation = _filled(stride, n, kernel), _filled(padding, n, ()), _filled(dilation, n, ())
    with _whole():
        y, index = op(x, kernel, stride, padding, dilation, ceil_mode)
    sizes = x.shape[-n:]
    starts = []  # of windows, along each dimension
    for d in range(n):
        start = torch.arange(y.shape[d - n], device=x.device) * stride[d] - padding[d]
        starts.append(start.reshape(-1, *[1] * (n - 1 - d)))
    window: Any = 0
    rest = index
    for d in reversed(range(n)):
        tap = (rest % sizes[d] - starts[d]) // dilation[d]
        rest = rest // sizes[d]
        window = window + tap * math.prod(kernel[d + 1 :])
    saved = window.to(torch.int8)
    rest, again = saved.to(torch.int64), 0
    taps = [rest // math.prod(kernel[d + 1 :]) % kernel[d] for d in range(n)]
    for d in range(n):
        again = again * sizes[d] + starts[d] + taps[d] * dilation[d]
    return y, again


def _max_unpool(decomposition: Any, x: torch.Tensor, indices: torch.Tensor, output_size: Sequence[int], *given: Any) -> Any:
    """PyTorch's parts take an index outside of its channel for one of the next channel."""
    places = torch.arange(math.prod(output_size), device=x.device)
    return decomposition(x, torch.gather(places, 0, indices.reshape(-1)).reshape(indices.shape), output_size, *given)


def _max_pool_backward(op: Any, grad: torch.Tensor, x: torch.Tensor, *given: Any) -> Any:
    """The gradient reads the layout of x alone."""
    if _is_whole():
        return NotImplemented
    with _whole():
        return op(grad, torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device), *given)
