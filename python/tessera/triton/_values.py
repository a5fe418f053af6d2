"""Values of kernels while they are compiled: tensors, pointers, and constants.

An integer is base + plus: a tile and a scalar that is the same for all elements. Offsets of programs and of loops stay scalars in this
way, until an operation needs the elements. An int32 may be computed in i64 ("wide"): its bounds say where the result must be wrapped to 32
bits to be Triton's, and whole() does so.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from . import _types as types
from ._errors import Refusal, lacking
from ._text import Ir, bounds_of, is_integer, literal, number_text, ranged, writer


class constexpr:
    """A constant of a kernel, as annotation or as value; operators compute on the value."""

    def __init__(self, value: Any) -> None:
        self.value: Any = value.value if isinstance(value, constexpr) else value

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"

    def __hash__(self) -> int:
        return hash(self.value)

    def __index__(self) -> int:
        return int(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.value(*args, **keywords)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["value"], name)


def _constant_operator(name: str) -> Any:
    def operate(self: constexpr, *others: Any) -> Any:
        result = getattr(self.value, name)(*(unwrapped(o) for o in others))
        return result if result is NotImplemented else constexpr(result)

    return operate


for _name in ("add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow and rand or ror xor rxor lshift rlshift rshift rrshift "
              "eq ne lt le gt ge neg pos invert getitem").split():  # fmt: skip
    setattr(constexpr, f"__{_name}__", _constant_operator(f"__{_name}__"))


def unwrapped(value: Any) -> Any:
    """A constexpr's value; anything else as it is."""
    return value.value if isinstance(value, constexpr) else value


def is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


class tensor:
    """A tile or scalar of a kernel. dtype, shape: of Triton. Operators are added in _arithmetic.py, methods in language/."""

    def __init__(self, base: Ir, dtype: types.dtype, plus: Ir | int = 0) -> None:
        self.base, self.plus, self.dtype = base, plus, dtype
        self.shape = base.shape

    @property
    def type(self) -> Any:
        """The block type of a tile, the dtype of a scalar."""
        return types.block_type(self.dtype, self.shape) if self.shape else self.dtype

    @property
    def wide(self) -> bool:
        """True of an int32 that is computed in i64."""
        return self.base.dtype == "i64" and self.dtype != types.int64

    @property
    def low(self) -> int:
        return self.base.low + (self.plus if isinstance(self.plus, int) else self.plus.low)

    @property
    def high(self) -> int:
        return self.base.high + (self.plus if isinstance(self.plus, int) else self.plus.high)

    def __repr__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    def __bool__(self) -> bool:
        raise Refusal(f"the truth of {self!r} is known only at run time", "use tl.where, &, |, or an 'if' statement on a scalar")

    def __iter__(self) -> Any:
        raise Refusal(f"a tensor {self!r} cannot be unpacked")

    def __len__(self) -> int:
        raise Refusal(f"a tensor {self!r} has no len()", "use its shape")

    __hash__ = object.__hash__


@dataclasses.dataclass(frozen=True)
class Pointee:
    """The parameter that pointers point into. index: in Writer.parameters.

    options, which: of a pointer into one of several parameters, the parameters, and the number of the one in a scalar.
    """

    ir: Ir
    dtype: types.dtype
    index: int
    options: tuple[Pointee, ...] = ()
    which: Ir | None = None


class pointer(tensor):
    """Pointers into one parameter: `offset` counts elements of it, int64, a scalar or a tile."""

    def __init__(self, pointee: Pointee, offset: tensor) -> None:
        super().__init__(offset.base, types.pointer_type(pointee.dtype), offset.plus)
        self.pointee, self.offset = pointee, offset


def constant(value: Any, dtype: types.dtype, shape: tuple[int, ...] = ()) -> tensor:
    """A tensor of one number."""
    ir = "i64" if dtype == types.int32 else dtype.ir
    if is_integer(ir):
        value = _wrapped_number(int(value), dtype)
        return tensor(writer().value("const", [], ir, shape, low=value, high=value, form=f"const {number_text(value, ir)}"), dtype)
    return tensor(writer().value("const", [], ir, shape, form=f"const {number_text(value, ir)}"), dtype)


def _wrapped_number(value: int, dtype: types.dtype) -> int:
    if dtype.is_bool():
        return int(value != 0)
    value &= 2**dtype.bits - 1
    return value - 2**dtype.bits if value > dtype.high else value


def to_tensor(value: Any, dtype: types.dtype | None = None) -> tensor:
    """A tensor of a tensor or a Python number."""
    value = unwrapped(value)
    if isinstance(value, tensor):
        return value
    if not is_number(value):
        raise Refusal(f"expected a tensor or a number, found {kind_of(value)}")
    return constant(value, dtype or types.of_number(value))


def kind_of(value: Any) -> str:
    """A value in words, for messages."""
    if isinstance(value, (tensor, bool, int, float, str)) or value is None:
        return repr(value)
    return f"a {type(value).__name__}"


def summed(t: tensor) -> Ir:
    """base + plus, not wrapped."""
    if isinstance(t.plus, int) and t.plus == 0:
        return t.base
    plus = literal(t.plus) if isinstance(t.plus, int) else t.plus
    return writer().value("add", [t.base, plus], t.base.dtype, t.shape, **ranged(t.low, t.high))


def whole(t: tensor) -> Ir:
    """The elements, as Triton has them: an int32 in i64 is wrapped to 32 bits where its bounds do not exclude that it differs."""
    if isinstance(t, pointer):
        raise Refusal("a pointer is not a number", "load from it with tl.load")
    ir = summed(t)
    if not t.wide or (t.dtype.low <= t.low and t.high <= t.dtype.high):
        return ir
    narrow = writer().value("cast", [ir], t.dtype.ir, t.shape)
    return writer().value("cast", [narrow], "i64", t.shape, low=t.dtype.low, high=t.dtype.high)


def normal(t: tensor) -> tensor:
    """The tensor with its elements in one value."""
    return t if isinstance(t, pointer) else tensor(whole(t), t.dtype)


def widened(t: tensor) -> tensor:
    """An int32 computed in i64; others as they are."""
    if t.dtype != types.int32 or t.wide:
        return t
    return tensor(writer().value("cast", [t.base], "i64", t.shape, low=t.base.low, high=t.base.high), t.dtype)


def native(t: tensor) -> Ir:
    """The elements in the dtype's own type of the tile IR."""
    ir = whole(t)
    return writer().value("cast", [ir], t.dtype.ir, t.shape, low=ir.low, high=ir.high) if t.wide else ir


def as_offset(t: tensor) -> tensor:
    """An integer as an int64 count of elements. An int32 that is computed in i64 is not wrapped: addresses do not overflow."""
    if t.dtype == types.int64 and t.base.dtype == "i64":
        return t
    if not is_integer(t.base.dtype) or t.dtype.is_bool():
        raise Refusal(f"an offset of a pointer is an integer, not {t!r}", "cast it with .to(tl.int64)")
    if t.wide:
        return tensor(t.base, types.int64, t.plus)
    return tensor(writer().value("cast", [t.base], "i64", t.shape, low=t.base.low, high=min(t.base.high, 2**63 - 1)), types.int64)


def options_of(a: Pointee, b: Pointee) -> tuple[Pointee, ...]:
    """The parameters of two pointers, of which one is chosen at run time."""
    if a.dtype != b.dtype:
        raise lacking("two parameters")
    first, second = a.options or (a,), b.options or (b,)
    return (*first, *(o for o in second if o not in first))


def number_of(p: Pointee, options: tuple[Pointee, ...]) -> Ir:
    """The number of a pointer's parameter among options."""
    w = writer()
    if p.which is None:
        n = options.index(p)
        return w.value("const", [], "i64", (), low=n, high=n, form=f"const {n}")
    numbers = [options.index(o) for o in p.options]
    result = p.which
    if numbers != list(range(len(numbers))):
        result = number_of(p.options[0], options)
        for i, n in list(enumerate(numbers))[1:]:
            here = w.value("eq", [p.which, literal(i)], "bool", ())
            result = w.value("select", [here, number_of(options[n], options), result], "i64", ())
    return result.within(0, len(options) - 1)


def chosen(options: tuple[Pointee, ...], which: Ir) -> Pointee:
    """A pointee that is one of several."""
    return Pointee(which, options[0].dtype, -1, options, which)


def full_bounds(ir: Ir) -> Ir:
    """The value without knowledge of its bounds."""
    return ir.within(*bounds_of(ir.dtype)) if is_integer(ir.dtype) else ir
