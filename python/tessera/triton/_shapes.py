"""Shapes of tiles: permutation, reshape, and what follows from them.

The tile IR has no operation that moves elements. A permuted tile is computed again from permuted parts where it is made of ranges, loads
and elementwise operations, so that a load reads in the other order; any other tile goes through memory of the program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import _types as types
from ._arithmetic import add, broadcast_to, cast, compare, expand_dims, mul, together
from ._errors import Refusal
from ._text import Ir, Writer, literal, writer
from ._values import constant, native, pointer, tensor, to_tensor, unwrapped, whole

ELEMENTWISE = frozenset(
    "cast bitcast neg abs sign floor ceil round trunc sqrt rsqrt reciprocal exp exp2 expm1 log log2 log1p sin cos tan asin acos atan sinh cosh tanh asinh "
    "acosh atanh erf sigmoid isnan isinf not add sub mul div mod fmod pow min max and or xor shl shr eq ne lt le gt ge select fma".split()
)


def as_shape(shape: Any) -> tuple[int, ...]:
    """The sizes of a tile, which are constants."""
    shape = unwrapped(shape)
    sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
    out = []
    for s in map(unwrapped, sizes):
        if not isinstance(s, int) or isinstance(s, bool):
            raise Refusal(f"the shape of a tile is of constants, found {s!r}", "make the size a tl.constexpr parameter")
        if s < 1:
            raise Refusal(f"a tile has sizes from 1 on, found {s}")
        out.append(s)
    return tuple(out)


def arange(start: Any, end: Any) -> tensor:
    """start, ..., end - 1 as int32."""
    start, end = unwrapped(start), unwrapped(end)
    for bound in (start, end):
        if not isinstance(bound, int):
            raise Refusal("the bounds of tl.arange are constants", "use tl.arange(0, BLOCK) + start, where BLOCK is a tl.constexpr")
    if end <= start:
        raise Refusal(f"tl.arange({start}, {end}) is empty: the end lies behind the start")
    n = end - start
    base = writer().value("range", [], "i64", (n,), low=0, high=n - 1, form=f"range {n}")
    return tensor(base, types.int32, start)


def rebased(t: tensor, base: Ir) -> tensor:
    """The tensor with other elements of the same kind."""
    if isinstance(t, pointer):
        return pointer(t.pointee, tensor(base, types.int64, t.plus))
    return tensor(base, t.dtype, t.plus)


# ---- permutation


def permute(t: tensor, order: Sequence[int]) -> tensor:
    """Dimension i of the result is dimension order[i] of the tensor."""
    rank = len(t.shape)
    if sorted(o % rank if -rank <= o < rank else -1 for o in order) != list(range(rank)):
        raise Refusal(f"{list(order)} is no order of {rank} dimensions")
    order = tuple(o % rank for o in order)
    if order == tuple(range(rank)):
        return t
    again = _permuted(writer(), t.base, order, {})
    if again is not None:
        return rebased(t, again)
    shape = tuple(t.shape[o] for o in order)
    strides = [math.prod(t.shape[o + 1 :]) for o in order]
    return rebased(t, _reloaded(t.base, shape, _linear(shape, strides)))


def _permuted(w: Writer, ir: Ir, order: tuple[int, ...], done: dict[str, Ir | None]) -> Ir | None:
    """A tile computed in another order of its dimensions; None where it cannot be computed again."""
    if not ir.shape:
        return ir
    if ir.text not in done:
        done[ir.text] = _compute_permuted(w, ir, order, done)
    return done[ir.text]


def _compute_permuted(w: Writer, ir: Ir, order: tuple[int, ...], done: dict[str, Ir | None]) -> Ir | None:
    definition = w.definitions.get(ir.text)
    if definition is None:
        return None
    shape = tuple(ir.shape[o] for o in order)
    bounds: dict[str, Any] = {"low": ir.low, "high": ir.high}
    if definition.op == "const":
        return w.value("const", [], ir.dtype, shape, form=definition.attributes["form"], **bounds)
    if definition.op == "broadcast":
        part = _permuted(w, definition.operands[0], order, done)
        return part and w.value("broadcast", [part], ir.dtype, shape, **bounds)
    if definition.op == "expand_dims":
        axis = definition.attributes["axis"]
        inner = tuple(o - (o > axis) for o in order if o != axis)
        part = _permuted(w, definition.operands[0], inner, {}) if inner != tuple(range(len(inner))) else definition.operands[0]
        at = order.index(axis)
        return part and w.value("expand_dims", [part], ir.dtype, shape, form=f"expand_dims({{}}) axis={at}", axis=at, **bounds)
    if definition.op == "load" and (definition.path != w.path or definition.epoch != w.epoch):
        return None
    if definition.op not in ELEMENTWISE and definition.op != "load":
        return None
    parts = [_permuted(w, o, order, done) for o in definition.operands]
    if None in parts:
        return None
    moved = {o.text: p for o, p in zip(definition.operands, parts) if p is not None}
    form = definition.attributes["form"]
    operands = [moved.get(t, t) for t in definition.attributes["texts"]]
    return w.value(definition.op, operands, ir.dtype, shape, pure=definition.op != "load", form=form, **bounds)


# ---- memory of the program


def _linear(shape: tuple[int, ...], strides: Sequence[int]) -> Ir:
    """Offsets: the sum of index times stride, over the dimensions of a shape."""
    total: tensor | int = 0
    for d, (size, stride) in enumerate(zip(shape, strides)):
        index = arange(0, size)
        for axis in range(len(shape)):
            if axis != d:
                index = expand_dims(index, axis)
        total = add(mul(index, stride), total)
    assert isinstance(total, tensor)
    return whole(broadcast_to(total, shape))


def row_major(shape: tuple[int, ...]) -> Ir:
    """The position of each element of a shape."""
    return _linear(shape, [math.prod(shape[d + 1 :]) for d in range(len(shape))])


def _stored(values: Sequence[tuple[Ir, Ir]], elements: int) -> Ir:
    """Memory of the program with elements stored at offsets."""
    w = writer()
    memory = w.scratch(values[0][0].dtype, elements)
    for value, offsets in values:
        w.line(f"store {memory.text}[{offsets.text}] = {value.text}")
    w.wrote()
    return memory


def _loaded(memory: Ir, offsets: Ir, shape: tuple[int, ...], mask: Ir | None = None) -> Ir:
    form = "load {}[{}]" + (" mask={} other=0" if mask else "")
    return writer().value("load_own", [memory, offsets, *([mask] if mask else [])], memory.dtype, shape, pure=False, form=form)


def _reloaded(ir: Ir, shape: tuple[int, ...], offsets: Ir) -> Ir:
    return _loaded(_stored([(ir, row_major(ir.shape))], math.prod(ir.shape)), offsets, shape).within(ir.low, ir.high)


def reshape(t: tensor, shape: tuple[int, ...]) -> tensor:
    """The elements in row-major order as another shape."""
    if math.prod(shape) != math.prod(t.shape):
        raise Refusal(f"a tensor of shape {list(t.shape)} has no {list(shape)}: {math.prod(t.shape)} elements are not {math.prod(shape)}")
    if shape == t.shape:
        return t
    if not t.shape:
        return broadcast_to(t, shape)
    if [d for d in shape if d > 1] == [d for d in t.shape if d > 1]:
        return _with_ones(t, shape)
    return rebased(t, _reloaded(t.base, shape, row_major(shape)))


def _with_ones(t: tensor, shape: tuple[int, ...]) -> tensor:
    """A reshape that only adds and removes dimensions of size 1."""
    for axis in reversed(range(len(t.shape))):
        if t.shape[axis] == 1 and len(t.shape) > 1:
            t = squeeze(t, axis)
    at = next((d for d, size in enumerate(shape) if size == t.shape[0]), 0)
    for d in range(len(shape)):
        if len(t.shape) < len(shape) and (d >= len(t.shape) or (shape[d] == 1 and (t.shape[d] != 1 or d < at))):
            t = expand_dims(t, d)
    return t


def squeeze(t: tensor, axis: int) -> tensor:
    """The tensor without a dimension of size 1; a fold of its one element."""
    w = writer()
    definition = w.definitions.get(t.base.text)
    shape = t.shape[:axis] + t.shape[axis + 1 :]
    if definition and definition.op == "expand_dims" and definition.attributes["axis"] == axis:
        return rebased(t, definition.operands[0])
    if definition and definition.op == "broadcast" and not definition.operands[0].shape and not shape:
        return rebased(t, definition.operands[0])
    fold, ir = ("any", t.base) if t.base.dtype == "bool" else ("max", t.base)
    compute = "f32" if ir.dtype in ("f16", "bf16") or ir.dtype.startswith("f8") else ir.dtype
    if compute != ir.dtype:
        ir = w.value("cast", [ir], compute, ir.shape)
    folded = w.value(f"reduce.{fold}", [ir], compute, shape, form=f"reduce.{fold}({{}}) axis={axis}", low=ir.low, high=ir.high)
    return rebased(t, folded if compute == t.base.dtype else w.value("cast", [folded], t.base.dtype, shape))


# ---- joining and splitting


def aligned(*values: Any) -> tuple[tensor, ...]:
    """Tensors of one dtype and shape, each in one value of the same form."""
    tensors = [to_tensor(v) for v in values]
    kind = tensors[0].dtype
    for t in tensors[1:]:
        kind = types.promote(kind, t.dtype)
    tensors = list(together(*(cast(t, kind) for t in tensors)))
    return tuple(tensor(native(t), kind) for t in tensors)


def join(a: Any, b: Any) -> tensor:
    """Both tensors along a new last dimension of size 2."""
    x, y = aligned(a, b)
    shape = (*x.shape, 2)
    if not x.shape:
        x, y = broadcast_to(x, (1,)), broadcast_to(y, (1,))
    strides = [2 * math.prod(x.shape[d + 1 :]) for d in range(len(x.shape))]
    even = _linear(x.shape, strides)
    odd = writer().value("add", [even, literal(1)], "i64", x.shape, low=1, high=even.high + 1)
    memory = _stored([(x.base, even), (y.base, odd)], math.prod(shape))
    return tensor(_loaded(memory, row_major(shape), shape), x.dtype)


def split(t: tensor) -> tuple[tensor, tensor]:
    """The two tensors of a last dimension of size 2."""
    if not t.shape or t.shape[-1] != 2:
        raise Refusal(f"tl.split takes a last dimension of size 2, not a tensor of shape {list(t.shape)}")
    if len(t.shape) == 1:
        ends = [squeeze(x, 0) for x in _parts(t, 0, 1)]
        return ends[0], ends[1]
    first, second = (squeeze(x, len(t.shape) - 1) for x in _parts(t, len(t.shape) - 1, 1))
    return first, second


def _parts(t: tensor, axis: int, size: int) -> list[tensor]:
    """The tensor cut along an axis into parts of a size."""
    ir = native(t)
    memory = _stored([(ir, row_major(t.shape))], math.prod(t.shape))
    shape = (*t.shape[:axis], size, *t.shape[axis + 1 :])
    strides = [math.prod(t.shape[d + 1 :]) for d in range(len(t.shape))]
    offsets = _linear(shape, strides)
    out = []
    for start in range(0, t.shape[axis], size):
        at = writer().value("add", [offsets, literal(start * strides[axis])], "i64", shape, low=0, high=math.prod(t.shape)) if start else offsets
        out.append(tensor(_loaded(memory, at, shape), t.dtype))
    return out


def slices(t: tensor) -> list[tensor]:
    """The tensors of the first dimension."""
    return [squeeze(p, 0) for p in _parts(t, 0, 1)]


def stacked(tensors: Sequence[tensor]) -> tensor:
    """Tensors of one shape along a new first dimension."""
    shape, n = tensors[0].shape, math.prod(tensors[0].shape)
    first = row_major(shape)
    parts = [(native(t), writer().value("add", [first, literal(i * n)], "i64", shape, low=0, high=n * len(tensors)) if i else first) for i, t in enumerate(tensors)]
    whole_shape = (len(tensors), *shape)
    return tensor(_loaded(_stored(parts, n * len(tensors)), row_major(whole_shape), whole_shape), tensors[0].dtype)


def pairs(t: tensor, axis: int) -> tuple[tensor, tensor]:
    """The elements with even and with odd index along an axis."""
    ir = native(t)
    memory = _stored([(ir, row_major(t.shape))], math.prod(t.shape))
    shape = (*t.shape[:axis], t.shape[axis] // 2, *t.shape[axis + 1 :])
    strides = [math.prod(t.shape[d + 1 :]) for d in range(len(t.shape))]
    offsets = _linear(shape, [s * (2 if d == axis else 1) for d, s in enumerate(strides)])
    odd = writer().value("add", [offsets, literal(strides[axis])], "i64", shape, low=0, high=math.prod(t.shape))
    return tensor(_loaded(memory, offsets, shape), t.dtype), tensor(_loaded(memory, odd, shape), t.dtype)


def shifted(t: tensor, axis: int, distance: int) -> tuple[tensor, tensor]:
    """Element i - distance in the place of element i along an axis, and where there is one; others are 0."""
    ir = native(t)
    memory = _stored([(ir, row_major(t.shape))], math.prod(t.shape))
    index = index_along(t.shape, axis)
    inside = compare("ge", index, distance) if distance > 0 else compare("lt", index, t.shape[axis] + distance)
    stride = math.prod(t.shape[axis + 1 :])
    offsets = writer().value("sub", [row_major(t.shape), literal(distance * stride)], "i64", t.shape)
    return tensor(_loaded(memory, offsets, t.shape, inside.base), t.dtype), inside


class Exchange:
    """Memory of the program through which tiles of one shape and dtype are read at other positions, several times."""

    def __init__(self, like: tensor) -> None:
        self.shape, self.dtype = like.shape, like.dtype
        self.memory = writer().scratch(native(like).dtype, math.prod(like.shape))
        self.positions = row_major(like.shape)

    def read(self, t: tensor, positions: tensor) -> tensor:
        """The elements of a tile at row-major positions."""
        writer().line(f"store {self.memory.text}[{self.positions.text}] = {native(t).text}")
        writer().wrote()
        return tensor(_loaded(self.memory, whole(cast(positions, types.int64)), self.shape), self.dtype)


def cat(a: Any, b: Any, axis: int = 0) -> tensor:
    """Both tensors one behind the other along an axis."""
    x, y = aligned(a, b)
    shape = (*x.shape[:axis], 2 * x.shape[axis], *x.shape[axis + 1 :])
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    first = _linear(x.shape, strides)
    second = writer().value("add", [first, literal(x.shape[axis] * strides[axis])], "i64", x.shape, low=0, high=math.prod(shape))
    memory = _stored([(x.base, first), (y.base, second)], math.prod(shape))
    return tensor(_loaded(memory, row_major(shape), shape), x.dtype)


def index_along(shape: tuple[int, ...], axis: int) -> tensor:
    """The index along an axis, for each element of a shape."""
    index = arange(0, shape[axis])
    for d in range(len(shape)):
        if d != axis:
            index = expand_dims(index, d)
    return broadcast_to(index, shape)


def gather(t: tensor, index: tensor, axis: int) -> tensor:
    """Elements of t at an index along an axis; the other indices are those of `index`."""
    ir = native(t)
    memory = _stored([(ir, row_major(t.shape))], math.prod(t.shape))
    strides = [math.prod(t.shape[d + 1 :]) for d in range(len(t.shape))]
    rest = tensor(_linear(index.shape, [0 if d == axis else s for d, s in enumerate(strides)]), types.int64)
    at = add(rest, mul(cast(index, types.int64), strides[axis]))
    return tensor(_loaded(memory, whole(at), index.shape), t.dtype)


def scattered(t: tensor, positions: tensor) -> tensor:
    """A tensor of the same shape with each element at its row-major position."""
    memory = _stored([(native(t), whole(cast(positions, types.int64)))], math.prod(t.shape))
    return tensor(_loaded(memory, row_major(t.shape), t.shape), t.dtype)


def flip(t: tensor, axis: int) -> tensor:
    """The elements in reverse order along an axis."""
    strides = [math.prod(t.shape[d + 1 :]) for d in range(len(t.shape))]
    last = (t.shape[axis] - 1) * strides[axis]
    forward = _linear(t.shape, [-s if d == axis else s for d, s in enumerate(strides)])
    at = writer().value("add", [forward, literal(last)], "i64", t.shape, low=0, high=math.prod(t.shape))
    return rebased(t, _reloaded(t.base, t.shape, at))


def full(shape: Any, value: Any, dtype: types.dtype) -> tensor:
    """A tile of one value."""
    sizes = as_shape(shape)
    value = unwrapped(value)
    if isinstance(value, tensor):
        return broadcast_to(cast(value, dtype), sizes)
    return constant(value, dtype, sizes)


