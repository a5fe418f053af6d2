"""Loads, stores and atomic operations; pointers to blocks, and tensor descriptors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import _types as types
from ._arithmetic import add, broadcast_shape, broadcast_to, cast, compare, expand_dims, logical, mul, truth
from ._errors import Refusal, lacking
from ._text import Ir, literal, writer
from ._values import Pointee, is_number, kind_of, native, pointer, summed, tensor, unwrapped

_CACHING = {".cg": "no_allocate", ".cs": "evict_first", ".wt": "", ".wb": "", ".ca": "", ".cv": "", "": ""}


class Unavailable:
    """A result that the tile IR does not have: an error as soon as it is used."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal


class block_pointer:
    """tl.make_block_ptr and tensor descriptors: a window of a strided tensor, at offsets."""

    def __init__(self, base: pointer, shape: Sequence[Any], strides: Sequence[Any], offsets: Sequence[Any], block: tuple[int, ...], checked: bool = False) -> None:
        self.base, self.block = base, block
        self.shape, self.strides, self.offsets = list(shape), list(strides), list(offsets)
        self.checked = checked  # of a descriptor: all dimensions are checked
        for name, values in (("shape", shape), ("strides", strides), ("offsets", offsets)):
            if len(values) != len(block):
                raise Refusal(f"a block of {len(block)} dimensions has {len(values)} {name}")
        self.dtype = base.pointee.dtype

    @property
    def type(self) -> Any:
        return types.pointer_type(types.block_type(self.dtype, self.block))

    def moved(self, offsets: Sequence[Any]) -> block_pointer:
        """tl.advance."""
        return block_pointer(self.base, self.shape, self.strides, [_plus(o, d) for o, d in zip(self.offsets, offsets)], self.block, self.checked)

    def at(self, offsets: Sequence[Any]) -> block_pointer:
        """The block at other offsets."""
        return block_pointer(self.base, self.shape, self.strides, offsets, self.block, self.checked)

    def access(self, dimensions: Sequence[int]) -> tuple[pointer, tensor | None]:
        """Pointers to the elements, and where they are inside in the checked dimensions."""
        p: tensor = self.base
        inside: tensor | None = None
        for d, size in enumerate(self.block):
            index = _index(self.offsets[d], size, d, len(self.block))
            p = add(p, mul(index, as_offset_or_number(self.strides[d])))
            if d in dimensions:
                good = logical("and", compare("ge", index, 0), compare("lt", index, as_offset_or_number(self.shape[d])))
                inside = good if inside is None else logical("and", inside, good)
        assert isinstance(p, pointer)
        return p, inside

    def load(self, offsets: Any) -> tensor:
        """The block of a descriptor at offsets; 0 outside."""
        return load(self.at(_list(offsets)))

    def store(self, offsets: Any, value: Any) -> None:
        """Writes the part of a block of a descriptor that is inside."""
        store(self.at(_list(offsets)), value)

    def atomic_add(self, offsets: Any, value: Any) -> Any:
        """Adds the part of a block of a descriptor that is inside."""
        p, inside = self.at(_list(offsets)).access(range(len(self.block)))
        return atomic("atomic_add", p, value, inside)


def _list(values: Any) -> list[Any]:
    values = unwrapped(values)
    return [unwrapped(v) for v in (values if isinstance(values, (tuple, list)) else [values])]


def _plus(a: Any, b: Any) -> Any:
    return a + b if is_number(a) and is_number(b) else add(a, b)


def as_offset_or_number(v: Any) -> Any:
    v = unwrapped(v)
    return cast(v, types.int64) if isinstance(v, tensor) else v


def _index(offset: Any, size: int, d: int, rank: int) -> tensor:
    from ._shapes import arange

    index = cast(arange(0, size), types.int64)
    for axis in range(rank):
        if axis != d:
            index = expand_dims(index, axis)
    return add(index, as_offset_or_number(offset))


def _checked_dimensions(block: block_pointer, boundary_check: Any) -> list[int]:
    if block.checked:
        return list(range(len(block.block)))
    return [int(d) for d in _list(boundary_check)] if unwrapped(boundary_check) not in (None, ()) else []


def _target(p: Any, what: str) -> pointer:
    p = unwrapped(p)
    if not isinstance(p, pointer):
        raise Refusal(f"{what} takes a pointer, found {kind_of(p)}", "pass the tensor itself, and add offsets to it")
    return p


def _shaped(p: pointer, mask: Any) -> tuple[pointer, tensor | None]:
    """Pointers and mask of one shape; a mask that is always true is none."""
    mask = unwrapped(mask)
    if mask is None or mask is True:
        return p, None
    m = truth(mask)
    shape = broadcast_shape(p.shape, m.shape)
    if shape != p.shape:
        p = pointer(p.pointee, broadcast_to(p.offset, shape))
    return p, broadcast_to(m, shape) if m.shape else m


def _place(p: pointer) -> tuple[Ir, bool]:
    """The offset, and whether consecutive elements of the tile are consecutive in memory."""
    if not p.shape and p.offset.low == p.offset.high:
        return literal(p.offset.low), False
    definition = writer().definitions.get(p.offset.base.text)
    return summed(p.offset), bool(definition and definition.op == "range")


def for_parameter(p: pointer, do: Callable[[pointer], Any], first: int = 0) -> Any:
    """An access through a pointer into one of several parameters: a branch for each."""
    from ._merge import joined

    options, which = p.pointee.options, p.pointee.which
    here = pointer(options[first], p.offset)
    if first + 1 == len(options) or which is None:
        return do(here)
    w = writer()
    test = tensor(w.value("eq", [which, literal(first)], "bool", ()), types.int1)
    regions, values = [w.region(), w.region()], []
    for i, region in enumerate(regions):
        with w.inside(region):
            values.append(for_parameter(p, do, first + 1) if i else do(here))
    return joined(test, regions, values, "the loaded value")


def load(p: Any, mask: Any = None, other: Any = None, boundary_check: Any = (), padding_option: Any = "", cache_modifier: Any = "", eviction_policy: Any = "") -> tensor:
    """tl.load. Masked elements are `other`, or 0."""
    p = unwrapped(p)
    if isinstance(p, block_pointer):
        q, inside = p.access(_checked_dimensions(p, boundary_check))
        nan = unwrapped(padding_option) == "nan"
        return load(q, inside, float("nan") if nan and inside is not None else None, cache_modifier=cache_modifier, eviction_policy=eviction_policy)
    p = _target(p, "tl.load")
    if p.pointee.options:
        return for_parameter(p, lambda q: load(q, mask, other, cache_modifier=cache_modifier, eviction_policy=eviction_policy))  # type: ignore[no-any-return]
    p, m = _shaped(p, mask)
    offset, contiguous = _place(p)
    other = unwrapped(other)
    operands: list[Ir] = [p.pointee.ir, offset]
    form = "load {}[{}]"
    if m is not None:
        operands.append(m.base)
        form += " mask={}"
        if other is not None:
            kind = p.pointee.dtype
            fill = broadcast_to(cast(other, kind), p.shape) if isinstance(other, tensor) and other.shape else cast(other, kind)
            operands.append(native(fill))
            form += " other={}"
    form += " contiguous" if contiguous and p.shape else ""
    policy, modifier = unwrapped(eviction_policy) or "", unwrapped(cache_modifier) or ""
    hint = policy if policy in ("evict_first", "evict_last") else _CACHING.get(modifier)
    if hint is None:
        raise Refusal(f"there is no cache modifier '{modifier}'", f"the modifiers are {', '.join(k for k in _CACHING if k)}")
    form += f" {hint}" if hint else ""
    if p.pointee.index >= 0:
        writer().parameters[p.pointee.index].read = True
    return tensor(writer().value("load", operands, p.pointee.dtype.ir, p.shape, pure=False, form=form), p.pointee.dtype)


def _written(p: pointer, value: Any, mask: Any, what: str) -> tuple[pointer, Ir, Ir, str]:
    """Pointers, offset, the value in the type of memory, and the text of the mask."""
    p, m = _shaped(p, mask)
    t = cast(value, p.pointee.dtype)
    if t.shape != p.shape and t.shape:
        if not p.shape:
            raise Refusal(f"{what} of a tile of shape {list(t.shape)} through one pointer", "add tl.arange offsets to the pointer")
        shape = broadcast_shape(t.shape, p.shape)
        if shape != p.shape:
            p, m = pointer(p.pointee, broadcast_to(p.offset, shape)), broadcast_to(m, shape) if m is not None and m.shape else m
        t = broadcast_to(t, shape)
    offset, _ = _place(p)
    if p.pointee.index >= 0:
        writer().parameters[p.pointee.index].written = True
    return p, offset, native(t), f" mask={m.base.text}" if m is not None else ""


def store(p: Any, value: Any, mask: Any = None, boundary_check: Any = ()) -> None:
    """tl.store. Elements where the mask is false are not written."""
    p = unwrapped(p)
    if isinstance(p, block_pointer):
        q, inside = p.access(_checked_dimensions(p, boundary_check))
        store(q, value, inside)
        return
    p = _target(p, "tl.store")
    if p.pointee.options:
        for_parameter(p, lambda q: store(q, value, mask))
        return
    q, offset, ir, masked = _written(p, value, mask, "tl.store")
    writer().line(f"store {q.pointee.ir.text}[{offset.text}] = {ir.text}{masked}")
    writer().wrote()


def atomic(word: str, p: Any, value: Any, mask: Any = None) -> Any:
    """An atomic operation without its result: word "atomic_add", "atomic_max" or "atomic_min"."""
    target = _target(p, f"tl.{word}")
    if word != "atomic_add" and target.pointee.dtype.is_floating():
        raise lacking("atomic kind")
    if target.pointee.options:
        for_parameter(target, lambda q: atomic(word, q, value, mask) and None)
        return Unavailable(lacking("atomic result"))
    q, offset, ir, masked = _written(target, value, mask, f"tl.{word}")
    writer().line(f"{word} {q.pointee.ir.text}[{offset.text}] = {ir.text}{masked}")
    writer().wrote()
    return Unavailable(lacking("atomic result"))


def exchange(p: Any, value: Any, mask: Any = None) -> Any:
    """tl.atomic_xchg without its result: a store."""
    store(_target(p, "tl.atomic_xchg"), value, mask)
    return Unavailable(lacking("atomic result"))


def make_block_pointer(base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any) -> block_pointer:
    """tl.make_block_ptr."""
    from ._shapes import as_shape

    return block_pointer(_target(base, "tl.make_block_ptr"), _list(shape), _list(strides), _list(offsets), as_shape(block_shape))


def make_descriptor(base: Any, shape: Any, strides: Any, block_shape: Any) -> block_pointer:
    """tl.make_tensor_descriptor."""
    from ._shapes import as_shape

    block = as_shape(block_shape)
    return block_pointer(_target(base, "tl.make_tensor_descriptor"), _list(shape), _list(strides), [0] * len(block), block, checked=True)


def parameter_pointer(index: int, name: str, dtype: types.dtype) -> pointer:
    """A pointer to the first element of a parameter."""
    zero = tensor(Ir("0", "i64"), types.int64)
    return pointer(Pointee(Ir(f"%{name}", dtype.ir), dtype, index), zero)

