"""Functions of triton.language that Triton writes in its own language: reductions, scans, orders, activations."""

from __future__ import annotations

from typing import Any

from .. import _arithmetic as _a
from .. import _folds, _shapes
from .._values import tensor, to_tensor, unwrapped
from . import core


def cdiv(x: Any, div: Any) -> Any:
    """x / div, rounded up; of positive integers."""
    x, div = unwrapped(x), unwrapped(div)
    if isinstance(x, tensor) or isinstance(div, tensor):
        return _a.floordiv(_a.add(x, div - 1 if isinstance(div, int) else _a.sub(div, 1)), div)
    return (x + div - 1) // div


def sigmoid(x: Any) -> tensor:
    """1 / (1 + exp(-x)), of float32 and float64."""
    from .math import _one

    return _one("sigmoid", x)


def softmax(x: Any, dim: Any = None, keep_dims: Any = False, ieee_rounding: Any = False) -> tensor:
    """exp(x - max(x)) over its sum, along a dimension (the first one for None)."""
    from .math import exp

    t = to_tensor(x)
    axis = _folds.axis_of(t, 0 if unwrapped(dim) is None else dim)
    e = exp(_a.sub(t, max(t, axis, keep_dims=True)))
    return _a.truediv(e, sum(e, axis, keep_dims=True))


def sum(input: Any, axis: Any = None, keep_dims: Any = False, dtype: Any = None) -> tensor:  # noqa: A001
    """The sum along an axis, or of all elements; integers of fewer than 32 bits are summed in 32."""
    return _folds.total(to_tensor(input), axis, keep_dims, dtype)


def _extreme(kind: str, input: Any, axis: Any, indices: Any, left: Any, keep_dims: Any) -> Any:
    t = to_tensor(input)
    if unwrapped(indices):
        return _folds.extreme_and_index(kind, t, axis, keep_dims)
    return _folds.extreme(kind, t, axis, keep_dims)


def max(input: Any, axis: Any = None, return_indices: Any = False, return_indices_tie_break_left: Any = True, keep_dims: Any = False) -> Any:  # noqa: A001
    """The maximum along an axis, or of all elements; with return_indices also its lowest index, int32."""
    return _extreme("max", input, axis, return_indices, return_indices_tie_break_left, keep_dims)


def min(input: Any, axis: Any = None, return_indices: Any = False, return_indices_tie_break_left: Any = True, keep_dims: Any = False) -> Any:  # noqa: A001
    """The minimum along an axis, or of all elements; with return_indices also its lowest index, int32."""
    return _extreme("min", input, axis, return_indices, return_indices_tie_break_left, keep_dims)


def argmax(input: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False) -> tensor:
    """The lowest index of the maximum along an axis, int32."""
    return _folds.extreme_and_index("max", to_tensor(input), axis, keep_dims)[1]


def argmin(input: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False) -> tensor:
    """The lowest index of the minimum along an axis, int32."""
    return _folds.extreme_and_index("min", to_tensor(input), axis, keep_dims)[1]


def _bitwise(op: str, input: Any, axis: Any, keep_dims: Any) -> Any:
    t = to_tensor(input)
    if t.dtype.is_bool() and op != "xor":
        kind = "any" if op == "or" else "all"
        return _folds.along(t, axis, keep_dims, lambda t, a: tensor(_folds.fold_ir(kind, t.base, a), t.dtype))
    return _folds.reduce(t, axis, lambda a, b: _a.bits(op, a, b), keep_dims)


def xor_sum(input: Any, axis: Any = None, keep_dims: Any = False) -> tensor:
    """The exclusive or along an axis."""
    return _bitwise("xor", input, axis, keep_dims)  # type: ignore[no-any-return]


def reduce_or(input: Any, axis: Any, keep_dims: Any = False) -> tensor:
    """The or along an axis."""
    return _bitwise("or", input, axis, keep_dims)  # type: ignore[no-any-return]


def cumsum(input: Any, axis: Any = 0, reverse: Any = False, dtype: Any = None) -> tensor:
    """The sum of all elements up to each one along an axis."""
    return _folds.scan("sum", to_tensor(input), axis, reverse, dtype)


def cumprod(input: Any, axis: Any = 0, reverse: Any = False) -> tensor:
    """The product of all elements up to each one along an axis."""
    return _folds.scan("prod", to_tensor(input), axis, reverse)


def sort(x: Any, dim: Any = None, descending: Any = False) -> tensor:
    """Sorted along the last dimension."""
    return _folds.sort(to_tensor(x), dim, descending)


def topk(x: Any, k: Any, dim: Any = None) -> tensor:
    """The k greatest elements of the last dimension, the greatest first."""
    return _folds.topk(to_tensor(x), int(unwrapped(k)), dim)


def bitonic_merge(x: Any, dim: Any = None, descending: Any = False) -> tensor:
    """A bitonic sequence sorted along the last dimension."""
    return _folds.sort(to_tensor(x), dim, descending)


def flip(x: Any, dim: Any = None) -> tensor:
    """The elements in reverse order along a dimension, the last one for None."""
    t = to_tensor(x)
    return _shapes.flip(t, _folds.axis_of(t, -1 if unwrapped(dim) is None else dim))


def interleave(a: Any, b: Any) -> tensor:
    """Elements of a and b in turn along the last dimension."""
    joined = _shapes.join(a, b)
    return _shapes.reshape(joined, (*joined.shape[:-2], 2 * joined.shape[-2])) if len(joined.shape) > 1 else joined


def swizzle2d(i: Any, j: Any, size_i: Any, size_j: Any, size_g: Any) -> tuple[Any, Any]:
    """Indices of a [size_i, size_j] matrix in column-major order within groups of size_g rows."""
    ij = _a.add(_a.mul(i, size_j), j)
    size_gj = _a.mul(size_g, size_j)
    group = _a.floordiv(ij, size_gj)
    off_i = _a.mul(group, size_g)
    rows = _a.extreme("min", _a.sub(size_i, off_i), size_g)
    inside = _a.mod(ij, size_gj)
    return _a.add(off_i, _a.mod(inside, rows)), _a.floordiv(inside, rows)


zeros, zeros_like = core.zeros, core.zeros_like
_log2 = lambda i: unwrapped(i).bit_length() - 1  # noqa: E731


def _install_methods() -> None:
    """The methods that tensor has in Triton."""
    for name in ("sum", "max", "min", "argmax", "argmin", "xor_sum", "cumsum", "cumprod", "sort", "flip", "sigmoid", "softmax"):
        setattr(tensor, name, globals()[name])


_install_methods()
__all__ = [n for n in dir() if (not n.startswith("_") or n == "_log2") and n not in ("Any", "annotations", "tensor", "to_tensor", "unwrapped", "core")]
