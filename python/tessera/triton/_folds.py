"""Reductions, scans and products of tiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from . import _shapes as shapes
from . import _types as types
from ._arithmetic import add, bits, broadcast_to, cast, compare, expand_dims, is_nan, logical, sub, where
from ._errors import Refusal, lacking
from ._text import Ir, ranged, writer
from ._values import constant, kind_of, native, tensor, to_tensor, unwrapped, whole


def axis_of(t: tensor, axis: Any) -> int:
    """A constant axis of a tensor, counted from the front."""
    axis = unwrapped(axis)
    if not isinstance(axis, int):
        raise Refusal(f"an axis is a constant integer, found {kind_of(axis)}")
    if not -len(t.shape) <= axis < len(t.shape):
        raise Refusal(f"axis {axis} is out of range for a tensor of shape {list(t.shape)}")
    return axis % len(t.shape)


def along(t: tensor, axis: Any, keep_dims: Any, fold: Callable[[tensor, int], tensor]) -> tensor:
    """A fold over one axis, or over all for None."""
    axis, keep = unwrapped(axis), bool(unwrapped(keep_dims))
    if not t.shape:
        return t
    axes = range(len(t.shape)) if axis is None else sorted(axis_of(t, a) for a in (axis if isinstance(axis, (tuple, list)) else (axis,)))
    for a in reversed(axes):
        t = fold(t, a)
    for a in axes if keep else ():
        t = expand_dims(t, a)
    return t


def fold_ir(kind: str, ir: Ir, axis: int, scan: bool = False, **bounds: Any) -> Ir:
    """reduce.KIND or scan.KIND, in f32 for smaller floats."""
    w = writer()
    small = ir.dtype in ("f16", "bf16") or ir.dtype.startswith("f8")
    shape = ir.shape if scan else ir.shape[:axis] + ir.shape[axis + 1 :]
    word = f"{'scan' if scan else 'reduce'}.{kind}"
    if small:
        wide = w.value("cast", [ir], "f32", ir.shape)
        return w.value("cast", [w.value(word, [wide], "f32", shape, form=f"{word}({{}}) axis={axis}")], ir.dtype, shape)
    return w.value(word, [ir], ir.dtype, shape, form=f"{word}({{}}) axis={axis}", **bounds)


def _at_least_32(t: tensor) -> tensor:
    """Integers of fewer than 32 bits as 32 bits."""
    if t.dtype.is_int() and t.dtype.bits < 32:
        return cast(t, types.uint32 if t.dtype.is_int_unsigned() else types.int32)
    return t


def total(t: tensor, axis: Any, keep_dims: Any = False, dtype: Any = None) -> tensor:
    """tl.sum."""
    dtype = unwrapped(dtype)
    t = cast(t, dtype) if dtype is not None else _at_least_32(t)

    def fold(t: tensor, a: int) -> tensor:
        ir, n = whole(t), t.shape[a]
        return tensor(fold_ir("sum", ir, a, **(ranged(n * ir.low, n * ir.high) if ir.dtype == "i64" else {})), t.dtype)

    return along(t, axis, keep_dims, fold)


def product(t: tensor, axis: Any, keep_dims: Any = False) -> tensor:
    return along(_at_least_32(t), axis, keep_dims, lambda t, a: tensor(fold_ir("prod", whole(t), a), t.dtype))


def _comparable(t: tensor) -> tensor:
    """The dtype in which tl.max and tl.argmax compare."""
    if t.dtype.bits < 32:
        return cast(t, types.float32 if t.dtype.is_floating() else types.int32)
    return t


def extreme(kind: str, t: tensor, axis: Any, keep_dims: Any = False) -> tensor:
    """tl.max, tl.min: NaN are passed over, unless all are NaN."""
    t = _comparable(t)

    def fold(t: tensor, a: int) -> tensor:
        if not t.dtype.is_floating():
            ir = whole(t)
            return tensor(fold_ir(kind, ir, a, low=ir.low, high=ir.high), t.dtype)
        nan = is_nan(t)
        lowest = float("-inf") if kind == "max" else float("inf")
        best = tensor(fold_ir(kind, where(nan, lowest, t).base, a), t.dtype)
        return where(tensor(fold_ir("all", nan.base, a), types.int1), float("nan"), best)

    return along(t, axis, keep_dims, fold)


def extreme_and_index(kind: str, t: tensor, axis: Any, keep_dims: Any = False, last: bool = False) -> tuple[tensor, tensor]:
    """The extreme along an axis and its index, int32: the lowest of equal ones, or the greatest with `last`."""
    t = _comparable(t)
    if unwrapped(axis) is None:
        if len(t.shape) != 1:
            raise lacking("64-bit index")
        axis = 0
    a, keep = axis_of(t, axis), bool(unwrapped(keep_dims))
    index = whole(shapes.index_along(t.shape, a))
    ir = whole(t)
    shape = t.shape[:a] + t.shape[a + 1 :]
    w = writer()
    value, at = w.results([(ir.dtype, shape), ("i64", shape)])
    w.line(f"{value.text}, {at.text} = reduce.arg{kind}({ir.text}, {index.text}) axis={a}{' last' if last else ''} : {value.type}, {at.type}")
    results = tensor(value.within(ir.low, ir.high), t.dtype), tensor(at.within(0, t.shape[a] - 1), types.int32)
    return (expand_dims(results[0], a), expand_dims(results[1], a)) if keep else results


# ---- scans


def scan(kind: str, t: tensor, axis: Any, reverse: Any = False, dtype: Any = None) -> tensor:
    """tl.cumsum, tl.cumprod: kind "sum", "prod"."""
    dtype = unwrapped(dtype)
    t = cast(t, dtype) if dtype is not None else _at_least_32(t)
    a = axis_of(t, axis)
    if unwrapped(reverse):
        return shapes.flip(scan(kind, shapes.flip(tensor(whole(t), t.dtype), a), a), a)
    ir = whole(t)
    bounds: dict[str, Any] = {}
    if kind == "sum" and ir.dtype == "i64":
        n = t.shape[a]
        bounds = ranged(min(n * ir.low, ir.low), max(n * ir.high, ir.high))
    return tensor(fold_ir(kind, ir, a, scan=True, **bounds), t.dtype)


# ---- folds with a function of the user


def _many(values: Any) -> tuple[bool, list[tensor]]:
    values = unwrapped(values)
    if isinstance(values, (tuple, list)):
        return True, [to_tensor(v) for v in values]
    return False, [to_tensor(values)]


def _combined(combine: Callable[..., Any], first: Sequence[tensor], second: Sequence[tensor]) -> list[tensor]:
    result = combine(*first, *second)
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    if len(results) != len(first):
        raise Refusal(f"the combining function yields {len(results)} values, expected {len(first)}")
    return [cast(r, f.dtype) for r, f in zip(results, first)]


def reduce(values: Any, axis: Any, combine: Callable[..., Any], keep_dims: Any = False) -> Any:
    """A reduction by a function of the user: neighbours are combined until one is left."""
    several, tensors = _many(values)
    axis = unwrapped(axis)
    if axis is None:
        tensors = [shapes.reshape(t, (math.prod(t.shape),)) for t in tensors]
    a = axis_of(tensors[0], 0 if axis is None else axis)
    n = tensors[0].shape[a]
    if n & (n - 1):
        raise Refusal(f"a reduction by a function takes a power of two of elements, not {n}")
    while tensors[0].shape[a] > 1:
        halves = [shapes.pairs(t, a) for t in tensors]
        tensors = _combined(combine, [h[0] for h in halves], [h[1] for h in halves])
    if not unwrapped(keep_dims):
        tensors = [shapes.squeeze(tensor(whole(t), t.dtype), a) for t in tensors]
    return tuple(tensors) if several else tensors[0]


def associative_scan(values: Any, axis: Any, combine: Callable[..., Any], reverse: Any = False) -> Any:
    """An inclusive scan by a function of the user, in as many steps as the logarithm of the length."""
    several, tensors = _many(values)
    a = axis_of(tensors[0], axis)
    distance, n = 1, tensors[0].shape[a]
    while distance < n:
        moved = [shapes.shifted(t, a, -distance if unwrapped(reverse) else distance) for t in tensors]
        combined = _combined(combine, [m[0] for m in moved], tensors)
        tensors = [where(moved[0][1], c, t) for c, t in zip(combined, tensors)]
        distance *= 2
    return tuple(tensors) if several else tensors[0]


# ---- orders


MAX_RANKED = 64  # elements that are sorted by comparing each with each


def _bitonic(t: tensor, descending: bool) -> tensor:
    """Sorted along the last dimension, whose size is a power of two, by a bitonic network (Batcher, 1968)."""
    n, axis = t.shape[-1], len(t.shape) - 1
    t = tensor(native(t), t.dtype)
    exchange = shapes.Exchange(t)
    index = shapes.index_along(t.shape, axis)
    row = sub(tensor(exchange.positions, types.int64), cast(index, types.int64))
    size = 2
    while size <= n:
        distance = size // 2
        while distance:
            other = exchange.read(t, add(row, cast(bits("xor", index, distance), types.int64)))
            lower = compare("eq", bits("and", index, distance), 0)
            first, second = where(lower, t, other), where(lower, other, t)
            rising = compare("ne" if descending else "eq", bits("and", index, size), 0)
            swaps = where(rising, compare("lt", second, first), compare("lt", first, second))
            t = where(bits("xor", swaps, lower), first, second)
            distance //= 2
        size *= 2
    return t


def sort(t: tensor, axis: Any = None, descending: Any = False) -> tensor:
    """Sorted along the last dimension: few elements by the rank of each, others by a network."""
    a = axis_of(t, -1 if unwrapped(axis) is None else axis)
    if a != len(t.shape) - 1:
        raise Refusal("tl.sort sorts the last dimension", "transpose the tensor with tl.trans")
    n = t.shape[a]
    if n > MAX_RANKED and n & (n - 1) == 0:
        return _bitonic(t, bool(unwrapped(descending)))
    mine, others = expand_dims(t, a + 1), expand_dims(t, a)
    index = shapes.arange(0, n)
    before = compare("gt" if unwrapped(descending) else "lt", others, mine)
    earlier = compare("lt", expand_dims(index, 0), expand_dims(index, 1))
    first = logical("or", before, logical("and", compare("eq", others, mine), earlier))
    rank = total(cast(first, types.int32), a + 1)
    row = tensor(shapes.row_major(t.shape), types.int64)
    return shapes.scattered(t, add(sub(row, cast(shapes.index_along(t.shape, a), types.int64)), cast(rank, types.int64)))


def topk(t: tensor, k: int, axis: Any = None, descending: bool = True) -> tensor:
    """The k first of the sorted elements of the last dimension."""
    ordered = sort(t, axis, descending)
    a = len(t.shape) - 1
    return shapes.gather(ordered, shapes.index_along((*t.shape[:-1], k), a), a)


def histogram(t: tensor, bins: int, mask: Any = None) -> tensor:
    """How many elements equal 0, ..., bins - 1."""
    equal = compare("eq", expand_dims(t, 1), expand_dims(shapes.arange(0, bins), 0))
    if unwrapped(mask) is not None:
        equal = logical("and", equal, expand_dims(to_tensor(mask), 1))
    return total(cast(equal, types.int32), 0)


# ---- products


def _batched(a: tensor, b: tensor, acc: Any, out_dtype: Any) -> tensor:
    """A product of tiles with three dimensions: one of each slice."""
    if a.shape[0] != b.shape[0]:
        raise Refusal(f"tl.dot of shapes {list(a.shape)} and {list(b.shape)}: {a.shape[0]} and {b.shape[0]} differ")
    sums = [None] * a.shape[0] if acc is None else shapes.slices(broadcast_to(acc, (a.shape[0], a.shape[1], b.shape[2])))
    return shapes.stacked([dot(x, y, z, out_dtype) for x, y, z in zip(shapes.slices(a), shapes.slices(b), sums)])


def dot(a: Any, b: Any, acc: Any = None, out_dtype: Any = None) -> tensor:
    """acc + a b, summed in float32 for small floats, in int32 for int8."""
    a, b, acc, out_dtype = (unwrapped(v) for v in (a, b, acc, out_dtype))
    for t in (a, b):
        if not isinstance(t, tensor) or len(t.shape) not in (2, 3):
            raise Refusal(f"tl.dot multiplies tiles of two dimensions, found {kind_of(t)}")
    if len(a.shape) == len(b.shape) == 3:
        return _batched(a, b, acc, out_dtype)
    if a.shape[1] != b.shape[0]:
        raise Refusal(f"tl.dot of shapes {list(a.shape)} and {list(b.shape)}: {a.shape[1]} and {b.shape[0]} differ")
    if a.dtype != b.dtype and not (a.dtype.is_fp8() and b.dtype.is_fp8() or a.dtype.bits == b.dtype.bits == 8 and a.dtype.is_int() and b.dtype.is_int()):
        raise Refusal(f"tl.dot of {a.dtype} and {b.dtype}: both have one dtype", "cast one of them with .to()")
    if a.dtype.is_int() and a.dtype.bits != 8:
        raise Refusal(f"tl.dot does not multiply {a.dtype}", "cast to float16, bfloat16, float32 or int8")
    sums = types.int32 if a.dtype.is_int() else types.float64 if a.dtype == types.float64 else types.float32
    out = out_dtype if out_dtype is not None and not a.dtype.is_int() and sums != types.float64 else sums
    if isinstance(acc, tensor):
        out = acc.dtype
    shape = (a.shape[0], b.shape[1])
    w = writer()
    start = broadcast_to(cast(acc, sums), shape) if acc is not None else constant(0, sums, shape)
    start_ir = whole(start)
    if start_ir.dtype != sums.ir:
        start_ir = w.value("cast", [start_ir], sums.ir, shape) if acc is not None else w.value("const", [], sums.ir, shape, form="const 0")
    result = w.value("dot", [whole(a), whole(b), start_ir], sums.ir, shape)
    return cast(tensor(result, sums), out)
