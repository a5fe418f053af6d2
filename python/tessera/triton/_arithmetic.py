"""Elementwise operations on tensors of kernels, with Triton's promotion of dtypes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from . import _types as types
from ._errors import Refusal, lacking
from ._text import Ir, is_integer, literal, number_text, ranged, writer
from ._values import Pointee, as_offset, chosen, constant, is_number, kind_of, native, number_of, options_of, pointer, summed, tensor, to_tensor, unwrapped, whole, widened

Part = Ir | int  # of an integer: a scalar that all elements have


# ---- shapes


def broadcast_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape of two; dimensions are added in front."""
    rank = max(len(a), len(b))
    x, y = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    for i, (p, q) in enumerate(zip(x, y)):
        if p != q and 1 not in (p, q):
            raise Refusal(f"shapes {list(a)} and {list(b)} do not broadcast: {p} and {q} in dimension {i}", "add dimensions with [:, None] or [None, :]")
    return tuple(q if p == 1 else p for p, q in zip(x, y))


def expand_dims(t: tensor, axis: int) -> tensor:
    """A dimension of size 1 at an axis of the result."""
    rank = len(t.shape)
    if not -rank - 1 <= axis <= rank:
        raise Refusal(f"axis {axis} is out of range for a tensor with {rank} dimensions")
    axis %= rank + 1
    shape = t.shape[:axis] + (1,) + t.shape[axis:]
    if not t.shape:
        return _rebased(t, writer().value("broadcast", [t.base], t.base.dtype, (1,), low=t.base.low, high=t.base.high))
    return _rebased(t, writer().value("expand_dims", [t.base], t.base.dtype, shape, form=f"expand_dims({{}}) axis={axis}", low=t.base.low, high=t.base.high, axis=axis))


def broadcast_to(t: tensor, shape: tuple[int, ...]) -> tensor:
    """The tensor with a shape to which its own broadcasts; scalars become tiles."""
    if t.shape == shape:
        return t
    if t.shape and broadcast_shape(t.shape, shape) != shape:
        raise Refusal(f"a tensor of shape {list(t.shape)} does not broadcast to {list(shape)}")
    while t.shape and len(t.shape) < len(shape):
        t = expand_dims(t, 0)
    if t.shape == shape:
        return t
    if not t.base.text.startswith("%"):
        return _rebased(t, constant(t.base.low, types.int64, shape).base)
    return _rebased(t, writer().value("broadcast", [t.base], t.base.dtype, shape, low=t.base.low, high=t.base.high))


def _rebased(t: tensor, base: Ir) -> tensor:
    if isinstance(t, pointer):
        return pointer(t.pointee, tensor(base, types.int64, t.plus))
    return tensor(base, t.dtype, t.plus)


def together(*values: tensor) -> tuple[tensor, ...]:
    """Tensors of one shape, except that scalars stay scalars."""
    shape: tuple[int, ...] = ()
    for v in values:
        shape = broadcast_shape(shape, v.shape)
    return tuple(broadcast_to(v, shape) if v.shape else v for v in values)


def common_shape(*values: tensor) -> tuple[int, ...]:
    return max((v.shape for v in values), key=len)


# ---- casts


def cast(value: Any, dtype: Any, bitcast: bool = False, rounding: str | None = None) -> tensor:
    """A value as a dtype. bitcast: its bits; rounding: None, "rtne" or "rtz" of floats that become narrower."""
    value, dtype = unwrapped(value), unwrapped(dtype)
    if isinstance(dtype, types.block_type):
        dtype = dtype.scalar
    if not isinstance(dtype, types.dtype):
        raise Refusal(f"expected a dtype, found {kind_of(dtype)}", "write one such as tl.float32")
    if is_number(value) and not bitcast:
        return constant(value if dtype.is_floating() else bool(value) if dtype.is_bool() else int(value), dtype)
    t = to_tensor(value)
    if isinstance(t, pointer) or dtype.is_ptr():
        return _cast_pointer(t, dtype)
    if t.dtype == dtype:
        return t
    if bitcast:
        return _bitcast(t, dtype)
    if rounding == "rtz" and t.dtype == types.float32 and dtype == types.bfloat16:
        bits = _bitcast(t, types.uint32)
        t = _bitcast(tensor(writer().value("and", [bits.base, literal(0xFFFF0000, "u32")], "u32", t.shape), types.uint32), types.float32)
    elif rounding not in (None, "rtne"):
        raise lacking("rounding")
    if dtype.is_bool():
        return compare("ne", t, 0)
    if dtype.is_int() and t.dtype.is_int():
        return _cast_integer(t, dtype)
    source = whole(t)
    return tensor(writer().value("cast", [source], dtype.ir, t.shape), dtype)


def _cast_integer(t: tensor, dtype: types.dtype) -> tensor:
    if dtype == types.int32 and t.base.dtype == "i64":  # wrapped when it is observed
        return tensor(t.base, dtype, t.plus)
    if dtype == types.int64 and t.wide:
        inside = types.int32.low <= t.low and t.high <= types.int32.high
        return tensor(t.base, dtype, t.plus) if inside else tensor(whole(t), dtype)
    source = summed(t)  # narrower types take the low bits
    if dtype.bits > t.dtype.bits:
        source = whole(t)
    fits = dtype.low <= source.low and source.high <= dtype.high
    bounds: dict[str, Any] = {"low": source.low, "high": source.high} if fits else {}
    return tensor(writer().value("cast", [source], dtype.ir, t.shape, **bounds), dtype)


def _cast_pointer(t: tensor, dtype: types.dtype) -> tensor:
    if isinstance(t, pointer) and isinstance(dtype, types.pointer_type):
        if dtype.element_ty == t.pointee.dtype:
            return t
        raise lacking("pointer type")
    raise lacking("pointer value")


def _bitcast(t: tensor, dtype: types.dtype) -> tensor:
    if t.dtype.bits != dtype.bits:
        raise Refusal(f"a bitcast keeps the number of bits: {t.dtype} has {t.dtype.bits}, {dtype} has {dtype.bits}")
    if t.dtype.is_int() and dtype.is_int():
        return _cast_integer(t, dtype)
    w = writer()
    if dtype.bits >= 32:
        return tensor(w.value("bitcast", [native(t)], dtype.ir, t.shape), dtype)
    if t.dtype == types.bfloat16:
        wide = w.value("bitcast", [w.value("cast", [t.base], "f32", t.shape)], "u32", t.shape)
        return tensor(w.value("cast", [w.value("shr", [wide, literal(16, "u32")], "u32", t.shape)], dtype.ir, t.shape), dtype)
    if dtype == types.bfloat16:
        wide = w.value("cast", [w.value("cast", [t.base], "u16", t.shape)], "u32", t.shape)
        real = w.value("bitcast", [w.value("shl", [wide, literal(16, "u32")], "u32", t.shape)], "f32", t.shape)
        return tensor(w.value("cast", [real], "bf16", t.shape), dtype)
    if t.dtype == types.float16:
        return _cast_integer(tensor(_bits_of_half(t.base), types.uint32), dtype)
    if dtype == types.float16:
        return tensor(_half_of_bits(w.value("cast", [w.value("cast", [t.base], "u16", t.shape)], "u32", t.shape)), dtype)
    raise lacking("bitcast")


def _on_bits(op: str, a: Ir, b: Ir | int, dtype: str = "u32") -> Ir:
    return writer().value(op, [a, literal(b, "u32") if isinstance(b, int) else b], dtype, a.shape)


def _bits_of_half(x: Ir) -> Ir:
    """The bits of float16 elements in u32: from those of float32, which has each of their values; subnormals are counted."""
    w = writer()
    real = w.value("cast", [x], "f32", x.shape)
    wide = w.value("bitcast", [real], "u32", x.shape)
    size = _on_bits("and", wide, 0x7FFFFFFF)
    normal = _on_bits("shr", _on_bits("sub", size, 0x38000000), 13)
    special = _on_bits("or", _on_bits("and", _on_bits("shr", size, 13), 0x3FF), 0x7C00)
    magnitude = w.value("abs", [real], "f32", x.shape)
    counted = w.value("mul", [magnitude, Ir(number_text(2.0**24, "f32"), "f32")], "f32", x.shape)
    small = w.value("cast", [counted], "u32", x.shape)
    result = w.value("select", [_on_bits("ge", size, 0x38800000, "bool"), normal, small], "u32", x.shape)
    result = w.value("select", [_on_bits("ge", size, 0x47800000, "bool"), special, result], "u32", x.shape)
    return _on_bits("or", result, _on_bits("and", _on_bits("shr", wide, 16), 0x8000))


def _half_of_bits(bits: Ir) -> Ir:
    """float16 elements of bits in u32: by way of float32."""
    w = writer()
    size = _on_bits("and", bits, 0x7FFF)
    shifted = _on_bits("shl", size, 13)
    normal = w.value("bitcast", [_on_bits("add", shifted, 0x38000000)], "f32", bits.shape)
    special = w.value("bitcast", [_on_bits("or", shifted, 0x7F800000)], "f32", bits.shape)
    small = w.value("mul", [w.value("cast", [size], "f32", bits.shape), Ir(number_text(2.0**-24, "f32"), "f32")], "f32", bits.shape)
    result = w.value("select", [_on_bits("ge", size, 0x400, "bool"), normal, small], "f32", bits.shape)
    result = w.value("select", [_on_bits("ge", size, 0x7C00, "bool"), special, result], "f32", bits.shape)
    signed = _on_bits("or", w.value("bitcast", [result], "u32", bits.shape), _on_bits("shl", _on_bits("and", bits, 0x8000), 16))
    return w.value("cast", [w.value("bitcast", [signed], "f32", bits.shape)], "f16", bits.shape)


# ---- operands


def pair(a: Any, b: Any, divides: bool = False) -> tuple[Any, Any, types.dtype]:
    """Two operands in their common dtype, and it. A number stays one; at least one is a tensor."""
    a, b = unwrapped(a), unwrapped(b)
    for x in (a, b):
        if not isinstance(x, tensor) and not is_number(x):
            raise Refusal(f"an operand is a tensor or a number, not {kind_of(x)}")
    if not isinstance(a, tensor) and not isinstance(b, tensor):
        a = to_tensor(a)
    for x in (a, b):
        if isinstance(x, pointer):
            raise Refusal("this operation is not defined on pointers", "compute on the offsets, before they are added to the pointer")
    if isinstance(a, tensor) and isinstance(b, tensor):
        kind = types.promote(a.dtype, b.dtype, divides)
    elif isinstance(a, tensor):
        kind = types.promote_number(a.dtype, b, divides)
    else:
        kind = types.promote_number(b.dtype, a, divides)
    x, y = (cast(v, kind) if isinstance(v, tensor) else v for v in (a, b))
    if isinstance(x, tensor) and isinstance(y, tensor):
        x, y = together(x, y)
    if any(isinstance(v, tensor) and v.wide for v in (x, y)):
        x, y = (widened(v) if isinstance(v, tensor) else v for v in (x, y))
    return x, y, kind


def _form(x: tensor | Any, y: tensor | Any, kind: types.dtype) -> tuple[str, str]:
    """The dtypes of the tile IR in which operands are computed and in which the result lies."""
    base = x.base.dtype if isinstance(x, tensor) else y.base.dtype
    return ("f32" if kind.is_floating() and kind.bits < 32 else base), base


def operands(x: tensor | Any, y: tensor | Any, compute: str) -> tuple[Ir, Ir]:
    """Operands of an operation in a dtype of the tile IR."""
    return _operand(x, compute), _operand(y, compute)


def _operand(x: tensor | Any, compute: str) -> Ir:
    if not isinstance(x, tensor):
        return literal(int(x), compute) if is_integer(compute) else Ir(number_text(x, compute), compute)
    ir = whole(x)
    return ir if ir.dtype == compute else writer().value("cast", [ir], compute, x.shape)


def shape_of(*values: Any) -> tuple[int, ...]:
    return common_shape(*(v for v in values if isinstance(v, tensor)))


def _computed(op: str, x: Any, y: Any, kind: types.dtype, **bounds: Any) -> tensor:
    """One operation, in f32 for smaller floats, and rounded to its dtype."""
    compute, result = _form(x, y, kind)
    shape = shape_of(x, y)
    ir = writer().value(op, operands(x, y, compute), compute, shape, **bounds)
    return tensor(ir if compute == result else writer().value("cast", [ir], result, shape), kind)


# ---- sums and products: integers in two parts


def part_add(a: Part, b: Part, op: str = "add") -> Part:
    """a + b, or a - b for op "sub", of scalar parts."""
    low_b, high_b = _bounds(b)
    low_a, high_a = _bounds(a)
    if isinstance(a, int) and isinstance(b, int):
        return a + b if op == "add" else a - b
    if isinstance(b, int) and b == 0 or isinstance(a, int) and a == 0 and op == "add":
        return a if isinstance(b, int) else b
    bounds = ranged(low_a + low_b, high_a + high_b) if op == "add" else ranged(low_a - high_b, high_a - low_b)
    return writer().value(op, [_part(a), _part(b)], "i64", (), **bounds)


def part_mul(a: Part, b: Part) -> Part:
    """a * b of scalar parts."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if 0 in (a, b):
        return 0
    if 1 in (a, b):
        return b if a == 1 else a
    return writer().value("mul", [_part(a), _part(b)], "i64", (), **_product_bounds(_bounds(a), _bounds(b)))


def _part(a: Part) -> Ir:
    return literal(a) if isinstance(a, int) else a


def _bounds(a: Any) -> tuple[int, int]:
    if isinstance(a, (Ir, tensor)):
        return a.low, a.high
    return int(a), int(a)


def _product_bounds(a: tuple[int, int], b: tuple[int, int]) -> dict[str, Any]:
    products = [x * y for x in a for y in b]
    return ranged(min(products), max(products))


def _in_parts(x: Any, y: Any) -> bool:
    return any(isinstance(v, tensor) and v.base.dtype == "i64" and not v.dtype.is_int_unsigned() for v in (x, y))


def _scalar_part(v: Any) -> Part | None:
    """An operand that is the same for all elements; None for tiles."""
    if not isinstance(v, tensor):
        return int(v)
    if v.shape:
        return None
    return v.low if v.low == v.high else summed(v)


def add(a: Any, b: Any) -> tensor:
    """a + b; one may be a pointer."""
    a, b = unwrapped(a), unwrapped(b)
    for p, offset in ((a, b), (b, a)):
        if isinstance(p, pointer):
            return _moved(p, offset, add)
    x, y, kind = pair(a, b)
    if kind.is_bool():
        return _computed("xor", x, y, kind)
    if not _in_parts(x, y):
        return _computed("add", x, y, kind)
    if isinstance(x, tensor) and x.shape:
        if (scalar := _scalar_part(y)) is not None:
            return tensor(x.base, kind, part_add(x.plus, scalar))
        base = writer().value("add", [x.base, y.base], "i64", x.shape, **ranged(x.base.low + y.base.low, x.base.high + y.base.high))
        return tensor(base, kind, part_add(x.plus, y.plus))
    if isinstance(y, tensor) and y.shape:
        return tensor(y.base, kind, part_add(y.plus, _scalar_part(x) or 0))
    total = part_add(_scalar_part(x) or 0, _scalar_part(y) or 0)
    return tensor(_part(total), kind) if isinstance(total, Ir) else constant(total, kind)


def sub(a: Any, b: Any) -> tensor:
    """a - b; a may be a pointer."""
    a, b = unwrapped(a), unwrapped(b)
    if isinstance(a, pointer) and not isinstance(b, pointer):
        return _moved(a, b, sub)
    x, y, kind = pair(a, b)
    if kind.is_bool():
        return _computed("xor", x, y, kind)
    if not _in_parts(x, y):
        return _computed("sub", x, y, kind)
    if isinstance(x, tensor) and x.shape:
        if (scalar := _scalar_part(y)) is not None:
            return tensor(x.base, kind, part_add(x.plus, scalar, "sub"))
        base = writer().value("sub", [x.base, y.base], "i64", x.shape, **ranged(x.base.low - y.base.high, x.base.high - y.base.low))
        return tensor(base, kind, part_add(x.plus, y.plus, "sub"))
    scalar = _scalar_part(x)
    if isinstance(y, tensor) and y.shape and scalar is not None:
        low, high = _bounds(scalar)
        base = writer().value("sub", [_part(scalar), y.base], "i64", y.shape, **ranged(low - y.base.high, high - y.base.low))
        return tensor(base, kind, part_add(0, y.plus, "sub"))
    total = part_add(scalar or 0, _scalar_part(y) or 0, "sub")
    return tensor(total, kind) if isinstance(total, Ir) else constant(total, kind)


def _moved(p: pointer, offset: Any, by: Callable[[Any, Any], tensor]) -> pointer:
    offset = unwrapped(offset)
    if isinstance(offset, pointer):
        raise Refusal("two pointers cannot be added or subtracted", "subtract their offsets")
    moved = by(p.offset, as_offset(offset) if isinstance(offset, tensor) else int(offset))
    return pointer(p.pointee, moved)


def mul(a: Any, b: Any) -> tensor:
    """a * b."""
    x, y, kind = pair(a, b)
    if kind.is_bool():
        return _computed("and", x, y, kind)
    if not _in_parts(x, y):
        return _computed("mul", x, y, kind)
    for tile, other in ((x, y), (y, x)):
        scalar = _scalar_part(other)
        if isinstance(tile, tensor) and tile.shape and scalar is not None:
            base = writer().value("mul", [tile.base, _part(scalar)], "i64", tile.shape, **_product_bounds(_bounds(tile.base), _bounds(scalar)))
            return tensor(base, kind, part_mul(tile.plus, scalar))
    if shape_of(x, y):
        p, q = summed(x), summed(y)
        return tensor(writer().value("mul", [p, q], "i64", x.shape, **_product_bounds(_bounds(p), _bounds(q))), kind)
    total = part_mul(_scalar_part(x) or 0, _scalar_part(y) or 0)
    return tensor(total, kind) if isinstance(total, Ir) else constant(total, kind)


# ---- division


def truediv(a: Any, b: Any) -> tensor:
    """a / b: of integers in float32."""
    a, b = unwrapped(a), unwrapped(b)
    integers = [not _is_float(v) for v in (a, b)]
    if all(integers):
        a, b = (cast(v, types.float32) if isinstance(v, tensor) else float(v) for v in (a, b))
    elif any(integers):
        a, b = (cast(v, other.dtype) if isinstance(v, tensor) and integer and isinstance(other, tensor) else v for v, integer, other in ((a, integers[0], b), (b, integers[1], a)))
        a, b = (float(v) if is_number(v) else v for v in (a, b))
    x, y, kind = pair(a, b, divides=True)
    return _computed("div", x, y, kind)


def _is_float(v: Any) -> bool:
    return v.dtype.is_floating() if isinstance(v, tensor) else isinstance(v, float)


def floordiv(a: Any, b: Any) -> tensor:
    """a // b of integers, truncated as in C."""
    x, y, kind = pair(a, b, divides=True)
    if kind.is_floating():
        raise Refusal(f"// is not defined on {kind}", "use / and tl.floor")
    return _computed("div", x, y, kind, **_quotient_bounds(x, y, kind))


def _quotient_bounds(x: Any, y: Any, kind: types.dtype) -> dict[str, Any]:
    if kind.kind != "signed":
        return {}
    (a, b), (c, d) = _observed(x, kind), _observed(y, kind)
    most = max(abs(a), abs(b))
    if c < 0:
        return ranged(-most, most, "i64") if kind.bits >= 32 else {}
    ends = [_truncated(p, max(q, 1)) for p in (a, b) for q in (c, d)]
    return {"low": min(0, *ends) if c == 0 else min(ends), "high": max(0, *ends) if c == 0 else max(ends)}


def _truncated(a: int, b: int) -> int:
    return abs(a) // b if a >= 0 else -(abs(a) // b)


def _observed(v: Any, kind: types.dtype) -> tuple[int, int]:
    low, high = _bounds(v)
    return (low, high) if kind.low <= low and high <= kind.high else (kind.low, kind.high)


def mod(a: Any, b: Any) -> tensor:
    """a % b, with the sign of a, as in C."""
    x, y, kind = pair(a, b, divides=True)
    if kind.is_floating() or kind.is_int_unsigned():
        return _computed("fmod", x, y, kind)
    (low, high), (c, d) = _observed(x, kind), _observed(y, kind)
    most = max(abs(c), abs(d), 1) - 1
    bounds: dict[str, Any] = {"low": -most if low < 0 else 0, "high": min(most, max(high, 0))}
    return _computed("mod" if low >= 0 and c >= 0 else "fmod", x, y, kind, **bounds)


# ---- bits


def bits(op: str, a: Any, b: Any) -> tensor:
    """a & b, a | b, a ^ b: op "and", "or", "xor"."""
    x, y, kind = pair(a, b)
    if kind.is_floating():
        raise Refusal(f"bits of {kind} cannot be combined", "bitcast to an integer first, with .to(tl.int32, bitcast=True)")
    (low, high), (c, d) = _observed(x, kind), _observed(y, kind)
    bounds: dict[str, Any] = {}
    if low >= 0 and c >= 0:
        bounds = {"low": 0, "high": min(high, d) if op == "and" else (1 << max(high, d).bit_length()) - 1}
    elif op == "and" and max(low, c) >= 0:
        bounds = {"low": 0, "high": high if low >= 0 else d}
    elif kind == types.int32:
        bounds = {"low": kind.low, "high": kind.high}
    return _computed(op, x, y, kind, **bounds)


def shift(op: str, a: Any, b: Any) -> tensor:
    """a << b and a >> b: op "shl", "shr"."""
    x, y, kind = pair(a, b)
    if kind.is_floating():
        raise Refusal(f"{kind} cannot be shifted", "bitcast to an integer first, with .to(tl.int32, bitcast=True)")
    if op == "shl" and isinstance(x, tensor) and is_number(y) and 0 <= y < 31:
        return mul(x, 1 << int(y)) if kind.kind == "signed" and kind.bits >= 32 else _computed(op, x, y, kind)
    if kind != types.int32:
        return _computed(op, x, y, kind)
    p, q = (tensor(native(v), kind) if isinstance(v, tensor) else v for v in (x, y))
    result = _computed(op, p, q, kind)
    low, high = _observed(x, kind)
    if op == "shr" and is_number(y) and 0 <= y < 32:
        return tensor(dataclasses.replace(result.base, low=low >> int(y), high=high >> int(y)), kind)
    return result


def invert(a: Any) -> tensor:
    """~a."""
    t = to_tensor(a)
    if t.dtype.is_floating():
        raise Refusal(f"~ is not defined on {t.dtype}")
    ir = native(t)
    return tensor(writer().value("not", [ir], ir.dtype, t.shape), t.dtype)


def negative(a: Any) -> tensor:
    """-a."""
    t = to_tensor(a)
    return sub(0.0 if t.dtype.is_floating() else 0, t)


# ---- comparison and choice


def compare(op: str, a: Any, b: Any) -> tensor:
    """A comparison: op "eq", "ne", "lt", "le", "gt" or "ge"; int1."""
    x, y, kind = pair(a, b)
    if kind.is_bool():
        x, y = (cast(v, types.int32) if isinstance(v, tensor) else int(v) for v in (x, y))
        kind = types.int32
    if isinstance(x, tensor) and isinstance(y, tensor) and y.shape and not x.shape:
        x, y, op = y, x, _MIRRORED[op]
    x, y = _difference_moved(x, y, kind)
    compute, _ = _form(x, y, kind)
    return tensor(writer().value(op, operands(x, y, compute), "bool", shape_of(x, y)), types.int1)


_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


def _difference_moved(x: Any, y: Any, kind: types.dtype) -> tuple[Any, Any]:
    """A tile against a - b as the tile + b against a, where nothing overflows: the mask is then of an index and an extent, as layouts understand."""
    if not (isinstance(x, tensor) and isinstance(y, tensor) and x.shape and not y.shape and x.base.dtype == y.base.dtype == "i64"):
        return x, y
    definition = writer().definitions.get(y.base.text)
    if definition is None or definition.op != "sub" or y.plus != 0:
        return x, y
    a, b = definition.operands
    within = all(kind.low <= v.low and v.high <= kind.high for v in (x, y)) and max(map(abs, (x.low, x.high, a.low, a.high, b.low, b.high))) < 2**62
    if not within or not a.text.startswith("%"):
        return x, y
    return tensor(x.base, types.int64, part_add(x.plus, b)), tensor(a, types.int64)


def truth(a: Any) -> tensor:
    """a as int1."""
    t = to_tensor(a)
    return t if t.dtype.is_bool() else compare("ne", t, 0)


def logical(op: str, a: Any, b: Any) -> tensor:
    """'a and b', 'a or b': op "and", "or", of truths."""
    return bits(op, truth(a), truth(b))


def logical_not(a: Any) -> tensor:
    return invert(truth(a))


def where(condition: Any, a: Any, b: Any) -> tensor:
    """Elements of a where the condition is true, of b elsewhere."""
    c, a, b = truth(condition), unwrapped(a), unwrapped(b)
    if isinstance(a, pointer) and isinstance(b, pointer):
        return pointer(_chosen_pointee(c, a.pointee, b.pointee), where(c, a.offset, b.offset))
    if not isinstance(a, tensor) and not isinstance(b, tensor):
        b = to_tensor(b, types.promote(types.of_number(a), types.of_number(b)))
    x, y, kind = pair(a, b)
    tiles = [v for v in (c, x, y) if isinstance(v, tensor)]
    aligned = list(together(*tiles))
    c = aligned.pop(0)
    x, y = (aligned.pop(0) if isinstance(v, tensor) else v for v in (x, y))
    form = x.base.dtype if isinstance(x, tensor) else y.base.dtype
    p, q = operands(x, y, form)
    if not p.text.startswith("%") and not q.text.startswith("%"):  # the dtype of a literal is that of a value next to it
        q = constant(q.low, kind).base
    if not isinstance(y, tensor) and isinstance(x, tensor):  # a literal takes the dtype of the value before it
        q = Ir(q.text, form, (), q.low, q.high)
    ir = writer().value("select", [c.base, p, q], form, common_shape(*(v for v in (c, x, y) if isinstance(v, tensor))), low=min(p.low, q.low), high=max(p.high, q.high))
    return tensor(ir, kind)


def _chosen_pointee(c: tensor, a: Pointee, b: Pointee) -> Pointee:
    """The pointee of one of two pointers."""
    if a == b:
        return a
    if c.shape:
        raise lacking("two parameters")
    options = options_of(a, b)
    which = writer().value("select", [c.base, number_of(a, options), number_of(b, options)], "i64", (), low=0, high=len(options) - 1)
    return chosen(options, which)


def extreme(op: str, a: Any, b: Any, propagate_nan: bool = False) -> tensor:
    """The maximum or minimum: op "max" or "min". A NaN is taken only if both are NaN, or with propagate_nan."""
    x, y, kind = pair(a, b)
    if kind.is_bool():
        return _computed("or" if op == "max" else "and", x, y, kind)
    if not kind.is_floating():
        pick = max if op == "max" else min
        (low, high), (c, d) = _observed(x, kind), _observed(y, kind)
        bounds: dict[str, Any] = {"low": pick(low, c), "high": pick(high, d)} if kind.kind == "signed" else {}
        return _computed(op, x, y, kind, **bounds)
    if propagate_nan:
        return _computed(op, x, y, kind)
    better = "gt" if op == "max" else "lt"
    if not isinstance(x, tensor):
        x, y = y, x
    if not isinstance(y, tensor) and y == y:  # a number: where x is NaN, the comparison is false
        return where(compare(better, x, y), x, y)
    return where(is_nan(x), y, where(is_nan(y), x, _computed(op, x, y, kind)))


def is_nan(a: Any) -> tensor:
    t = to_tensor(a)
    return tensor(writer().value("isnan", [_operand(t, _form(t, t, t.dtype)[0])], "bool", t.shape), types.int1)


def unary(op: str, a: Any, rounds: bool = True) -> tensor:
    """An operation of one operand in its own dtype; smaller floats are computed in f32."""
    t = to_tensor(a)
    compute, result = _form(t, t, t.dtype)
    ir = writer().value(op, [_operand(t, compute)], compute, t.shape)
    return tensor(ir if compute == result else writer().value("cast", [ir], result, t.shape), t.dtype)


def absolute(a: Any) -> tensor:
    """|a|."""
    t = to_tensor(a)
    if not t.wide:
        return t if t.dtype.is_int_unsigned() or t.dtype.is_bool() else unary("abs", t)
    ir = whole(t)
    most = max(abs(ir.low), abs(ir.high))
    return tensor(writer().value("abs", [ir], "i64", t.shape, low=0, high=most), t.dtype)


def fused(a: Any, b: Any, c: Any) -> tensor:
    """a * b + c, rounded once."""
    values = [unwrapped(v) for v in (a, b, c)]
    kind = None
    for v in values:
        if isinstance(v, tensor):
            kind = v.dtype if kind is None else types.promote(kind, v.dtype)
    kind = kind or types.float32
    tensors = together(*(cast(v, kind) for v in values))
    if not kind.is_floating():
        return add(mul(tensors[0], tensors[1]), tensors[2])
    compute, result = _form(tensors[0], tensors[1], kind)
    shape = common_shape(*tensors)
    ir = writer().value("fma", [_operand(v, compute) for v in tensors], compute, shape)
    return tensor(ir if compute == result else writer().value("cast", [ir], result, shape), kind)


def _install_operators() -> None:
    """The operators of tensor."""
    table: dict[str, Callable[[Any, Any], Any]] = {
        "add": add, "sub": sub, "mul": mul, "truediv": truediv, "floordiv": floordiv, "mod": mod,
        "and": lambda a, b: bits("and", a, b), "or": lambda a, b: bits("or", a, b), "xor": lambda a, b: bits("xor", a, b),
        "lshift": lambda a, b: shift("shl", a, b), "rshift": lambda a, b: shift("shr", a, b),
    }  # fmt: skip
    for name, of in table.items():
        setattr(tensor, f"__{name}__", lambda a, b, of=of: of(a, b))
        setattr(tensor, f"__r{name}__", lambda a, b, of=of: of(b, a))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(tensor, f"__{name}__", lambda a, b, name=name: compare(name, a, b))
    for name, one in {"neg": negative, "invert": invert, "pos": lambda a: a}.items():
        setattr(tensor, f"__{name}__", one)


_install_operators()
