"""Values where control flow meets: what two branches yield, and what a loop carries."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from . import _types as types
from ._arithmetic import part_add, part_mul
from ._errors import Refusal, lacking
from ._memory import block_pointer
from ._text import Ir, Region, literal, writer
from ._values import chosen, full_bounds, is_number, native, number_of, options_of, pointer, tensor, to_tensor, whole


class Undefined:
    """A name that only one branch defines: an error as soon as it is read."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def leaves(value: Any) -> Iterator[Any]:
    """The tensors, numbers and constants that a value consists of."""
    if isinstance(value, tuple):
        for v in value:
            yield from leaves(v)
    elif isinstance(value, block_pointer):
        yield value.base
        for v in (*value.shape, *value.strides, *value.offsets):
            yield v
    else:
        yield value


def rebuilt(value: Any, of: Iterator[Any]) -> Any:
    """A value of the same structure from other leaves."""
    if isinstance(value, tuple):
        items = [rebuilt(v, of) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, block_pointer):
        base, n = next(of), len(value.block)
        rest = [next(of) for _ in range(3 * n)]
        return block_pointer(base, rest[:n], rest[n : 2 * n], rest[2 * n :], value.block, value.checked)
    return next(of)


def same(a: Any, b: Any) -> bool:
    """True if two leaves are one value."""
    if isinstance(a, tensor) or isinstance(b, tensor):
        if not isinstance(a, tensor) or not isinstance(b, tensor) or type(a) is not type(b) or a.dtype != b.dtype:
            return False
        if isinstance(a, pointer) and isinstance(b, pointer) and a.pointee != b.pointee:
            return False
        return a.base.text == b.base.text and _text(a.plus) == _text(b.plus)
    return a is b or (type(a) is type(b) and bool(a == b))


def _text(plus: Ir | int) -> str:
    return plus.text if isinstance(plus, Ir) else str(plus)


@dataclasses.dataclass
class Yields:
    """A leaf of a merge: what each side yields, run inside of its region, and the leaf that the results make."""

    sides: tuple[Callable[[], Ir], ...]
    result: Callable[[Ir], Any]


def merge(a: Any, b: Any, name: str) -> tuple[list[Yields], Callable[[Iterator[Ir]], Any]]:
    """The yields of two branches for a value, and the value of the results."""
    first, second = list(leaves(a)), list(leaves(b))
    if len(first) != len(second) or _form(a) != _form(b):
        raise Refusal(f"'{name}' is {a!r} in one branch and {b!r} in the other", "assign values of one type in both")
    yields: list[Yields] = []
    parts: list[Callable[[Iterator[Ir]], Any]] = []
    for x, y in zip(first, second):
        yielded, part = _merged_leaf(x, y, name)
        yields += yielded
        parts.append(part)
    return yields, lambda results: rebuilt(a, iter([p(results) for p in parts]))


def _merged_leaf(x: Any, y: Any, name: str) -> tuple[list[Yields], Callable[[Iterator[Ir]], Any]]:
    """The yields of two leaves, and the leaf of the results."""
    if same(x, y):
        return [], lambda results: x
    if isinstance(x, pointer) and isinstance(y, pointer) and x.pointee != y.pointee:
        options = options_of(x.pointee, y.pointee)
        a, b = x.pointee, y.pointee
        which = Yields((lambda: number_of(a, options), lambda: number_of(b, options)), lambda ir: chosen(options, ir.within(0, len(options) - 1)))
        moved, offset = _merged_leaf(x.offset, y.offset, name)
        return [which, *moved], lambda results: pointer(which.result(next(results)), offset(results))
    one = _merged(x, y, name)
    return [one], lambda results: one.result(next(results))


def joined(test: tensor, regions: list[Region], values: list[Any], name: str) -> Any:
    """Closes both branches of a run-time condition; the value of those of the branches."""
    yields, result = merge(values[0], values[1], name)
    w = writer()
    irs: list[list[Ir]] = []
    for side, region in enumerate(regions):
        with w.inside(region):
            irs.append([named(y.sides[side]()) for y in yields])
            if yields:
                w.line(f"yield {', '.join(ir.text for ir in irs[-1])}")
    results = w.results([(ir.dtype, ir.shape) for ir in irs[0]])
    head = f"{', '.join(r.text for r in results)} = " if results else ""
    if results or any(r.lines for r in regions):
        w.close(f"{head}if {test.base.text}", *regions)
    return result(iter(results))


def _form(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_form, value))
    return (value.block, value.checked) if isinstance(value, block_pointer) else None


def _merged(x: Any, y: Any, name: str) -> Yields:
    for v in (x, y):
        if not isinstance(v, tensor) and not is_number(v):
            raise Refusal(f"'{name}' is {x!r} in one branch and {y!r} in the other, by a run-time condition", "make the condition a tl.constexpr, or assign tensors")
    if isinstance(x, pointer) or isinstance(y, pointer):
        if not isinstance(x, pointer) or not isinstance(y, pointer):
            raise Refusal(f"'{name}' is a pointer in one branch only")
        inner = _merged_integers(x.offset, y.offset, name)
        pointee = x.pointee
        return Yields(inner.sides, lambda ir: pointer(pointee, inner.result(ir)))
    kind = common_dtype(x, y, name)
    if isinstance(x, tensor) and isinstance(y, tensor) and kind in (types.int32, types.int64):
        return _merged_integers(x, y, name)
    shape = x.shape if isinstance(x, tensor) else y.shape if isinstance(y, tensor) else ()
    for v in (x, y):
        if (v.shape if isinstance(v, tensor) else ()) != shape:
            raise Refusal(f"'{name}' is {x!r} in one branch and {y!r} in the other: the shapes differ", "make both tiles of one shape with tl.full or tl.broadcast_to")
    sides = tuple(lambda v=v: native(to_tensor(v, kind)) for v in (x, y))
    return Yields(sides, lambda ir: tensor(full_bounds(ir), kind))


def common_dtype(x: Any, y: Any, name: str) -> types.dtype:
    """The dtype of two tensors or numbers that must agree."""
    if isinstance(x, tensor) and isinstance(y, tensor):
        if x.dtype != y.dtype:
            raise Refusal(f"'{name}' is {x!r} in one branch and {y!r} in the other: the dtypes differ", "cast one of them with .to()")
        return x.dtype
    if isinstance(x, tensor):
        return types.promote_number(x.dtype, y)
    return types.promote_number(y.dtype, x) if isinstance(y, tensor) else types.promote(types.of_number(x), types.of_number(y))


def _merged_integers(x: tensor, y: tensor, name: str) -> Yields:
    if x.shape != y.shape:
        raise Refusal(f"'{name}' is {x!r} in one branch and {y!r} in the other: the shapes differ", "make both tiles of one shape with tl.full or tl.broadcast_to")
    kind = x.dtype
    if x.base.text == y.base.text and x.base.dtype == "i64":  # only the scalar parts differ
        low, high = min(_low(x.plus), _low(y.plus)), max(_high(x.plus), _high(y.plus))
        base = x.base
        return Yields((lambda: _named(x.plus), lambda: _named(y.plus)), lambda ir: tensor(base, kind, ir.within(low, high)))
    if x.base.dtype == y.base.dtype == "i64":
        a, b = _observed(x), _observed(y)
        bounds = min(a[0], b[0]), max(a[1], b[1])
        return Yields((lambda: whole(x), lambda: whole(y)), lambda ir: tensor(ir.within(*bounds), kind))
    return Yields((lambda: native(x), lambda: native(y)), lambda ir: tensor(full_bounds(ir), kind))


def _observed(t: tensor) -> tuple[int, int]:
    return (t.low, t.high) if t.dtype.low <= t.low and t.high <= t.dtype.high else (t.dtype.low, t.dtype.high)


def _low(plus: Ir | int) -> int:
    return plus.low if isinstance(plus, Ir) else plus


def _high(plus: Ir | int) -> int:
    return plus.high if isinstance(plus, Ir) else plus


def _named(plus: Ir | int) -> Ir:
    """A part as a value with a name, which yield requires."""
    if isinstance(plus, Ir) and plus.text.startswith("%"):
        return plus
    number = plus if isinstance(plus, int) else plus.low
    return writer().value("const", [], "i64", (), low=number, high=number, form=f"const {number}")


def named(ir: Ir) -> Ir:
    """A value with a name."""
    return ir if ir.text.startswith("%") else _named(ir)


# ---- loops


@dataclasses.dataclass
class Leaf:
    """How a loop carries a leaf, as far as attempts have shown. full: also its tile part; step: what each iteration adds, of a sum that is not carried."""

    full: bool = False
    linear: bool = True  # the scalar part may be a sum
    step: Ir | int | None = None


class Changed(Exception):
    """Leaves that a loop carries in another way than assumed: the loop is written again."""

    def __init__(self, how: dict[int, Leaf]) -> None:
        super().__init__()
        self.how = how


@dataclasses.dataclass
class Iterations:
    """Numbers of a loop, as i64 scalars. index(): of the current iteration; count(): of all."""

    index: Callable[[], Ir | int]
    count: Callable[[], Ir | int]


@dataclasses.dataclass
class Carried:
    """A leaf that a loop carries. initial: before the loop; result(ir): the leaf of a value of the tile IR; next(v): what is yielded.

    A sum is not carried: initial is None, result(number of iterations) is its value after them, and next(v) checks that v is the next sum.
    """

    initial: Ir | None
    result: Callable[[Any], Any]
    next: Callable[[Any], Ir]


def carried(value: Any, name: str, index: int, how: Leaf, iterations: Iterations) -> Carried | None:
    """How a loop carries a leaf; None for constants, which it may not change."""
    if is_number(value):
        value = to_tensor(value)
    if not isinstance(value, tensor):
        return None
    if isinstance(value, pointer):
        pointee = value.pointee
        inner = _carried_integer(value.offset, name, index, how, how.full, iterations)
        return Carried(inner.initial, lambda ir: pointer(pointee, inner.result(ir)), lambda v: inner.next(_offset(v, pointee, name)))
    if value.base.dtype == "i64" and value.dtype in (types.int32, types.int64):
        definition = writer().definitions.get(value.base.text)
        constant = definition is not None and definition.op == "const"
        return _carried_integer(value, name, index, how, how.full or not value.shape or constant, iterations)
    kind, shape = value.dtype, value.shape
    return Carried(named(native(value)), lambda ir: tensor(full_bounds(ir), kind), lambda v: named(native(_fitting(v, kind, shape, name))))


def _offset(v: Any, pointee: Any, name: str) -> tensor:
    if not isinstance(v, pointer):
        raise Refusal(f"'{name}' is a pointer before the loop and {v!r} after an iteration")
    if v.pointee != pointee:
        raise lacking("two parameters")
    return v.offset


def _fitting(v: Any, kind: types.dtype, shape: tuple[int, ...], name: str) -> tensor:
    """The value after an iteration, of the type before the loop."""
    if is_number(v):
        v = to_tensor(v, types.promote_number(kind, v) if not kind.is_bool() or isinstance(v, bool) else None)
    if not isinstance(v, tensor) or isinstance(v, pointer):
        raise Refusal(f"'{name}' is {kind}{list(shape)} before the loop and {v!r} after an iteration", "keep its type through the loop")
    if v.dtype != kind or v.shape != shape:
        raise Refusal(f"'{name}' is {kind}{list(shape)} before the loop and {v!r} after an iteration", "give it that dtype and shape before the loop, or cast with .to()")
    return v


def _carried_integer(value: tensor, name: str, index: int, how: Leaf, full: bool, iterations: Iterations) -> Carried:
    kind, shape, base = value.dtype, value.shape, value.base
    low, high = (kind.low, kind.high) if kind == types.int32 else (-(2**63), 2**63 - 1)
    if full:

        def next_whole(v: Any) -> Ir:
            ir = whole(_fitting(v, kind, shape, name))
            return named(ir if ir.dtype == "i64" else writer().value("cast", [ir], "i64", shape, low=ir.low, high=ir.high))

        return Carried(named(whole(value)), lambda ir: tensor(ir.within(low, high), kind), next_whole)

    inside: list[Ir | int] = []  # the scalar part in the loop

    def checked(v: Any) -> tensor:
        t = _fitting(v, kind, shape, name)
        if t.base.text != base.text:
            raise Changed({index: Leaf(full=True)})
        return t

    if how.step is not None:
        step, first = how.step, value.plus

        def sum_after(number: Ir | int) -> tensor:
            inside.append(part_add(first, part_mul(number, step)))
            return tensor(base, kind, inside[-1])

        def next_sum(v: Any) -> Ir:
            if _text(checked(v).plus) != _text(part_add(inside[0], step)):
                raise Changed({index: Leaf(linear=False)})
            return base

        return Carried(None, sum_after, next_sum)

    def next_part(v: Any) -> Ir:
        t = checked(v)
        step = _step(t.plus, inside[0]) if how.linear else None
        if step is not None:
            raise Changed({index: Leaf(step=step)})
        return _named(_wrapped_part(t.plus, kind))

    def part(ir: Ir) -> tensor:
        inside.append(ir.within(low, high))
        return tensor(base, kind, inside[-1])

    return Carried(_named(_wrapped_part(value.plus, kind)), part, next_part)


def _step(after: Ir | int, before: Ir | int) -> Ir | int | None:
    """The summand of each iteration, where a scalar is a sum."""
    w = writer()
    definition = w.definitions.get(_text(after))
    if definition is None or definition.op != "add" or len(definition.operands) != 2:
        return None
    others = [o for o in definition.operands if o.text != _text(before)]
    if len(others) != 1 or w.level(others[0]) >= len(w.path):
        return None
    return others[0] if others[0].text.startswith("%") else others[0].low


def _wrapped_part(plus: Ir | int, kind: types.dtype) -> Ir | int:
    """A scalar part within the bounds of its dtype."""
    if kind != types.int32 or (kind.low <= _low(plus) and _high(plus) <= kind.high):
        return plus
    ir = plus if isinstance(plus, Ir) else literal(plus)
    narrow = writer().value("cast", [named(ir)], "i32", ())
    return writer().value("cast", [narrow], "i64", (), low=kind.low, high=kind.high)

