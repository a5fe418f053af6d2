"""Programs, tiles, memory, products and hints of triton.language."""

from __future__ import annotations

import builtins
import math as _math
from typing import Any

from .. import _arithmetic as _a
from .. import _assembly, _folds, _memory, _programs, _shapes
from .. import _types as _t
from .._errors import CompileTimeAssertionFailure, Refusal, lacking
from .._execute import Loop
from .._log import device_print, static_print
from .._memory import block_pointer as tensor_descriptor
from .._types import block_type, dtype, pointer_type, void
from .._values import constexpr, is_number, kind_of, normal, tensor, to_tensor, unwrapped, whole

int1, int8, int16, int32, int64 = _t.int1, _t.int8, _t.int16, _t.int32, _t.int64
uint8, uint16, uint32, uint64 = _t.uint8, _t.uint16, _t.uint32, _t.uint64
float16, bfloat16, float32, float64 = _t.float16, _t.bfloat16, _t.float32, _t.float64
tensor_descriptor_base = tensor_descriptor
CONSTEXPR_0 = constexpr(0)
_unwrap_if_constexpr = unwrapped
builtin = extern = lambda f: f  # noqa: E731  # decorators of Triton's own functions


# ---- programs


def program_id(axis: Any) -> tensor:
    """Index of this program along an axis of the grid, 0 to 2; int32."""
    return _programs.program_id(axis)


def num_programs(axis: Any) -> tensor:
    """Number of programs along an axis of the grid, 0 to 2; int32."""
    return _programs.num_programs(axis)


# ---- tiles


def arange(start: Any, end: Any) -> tensor:
    """start, ..., end - 1: int32 [end - start]. The bounds are constants; the length may be any number."""
    return _shapes.arange(start, end)


def zeros(shape: Any, dtype: Any) -> tensor:
    """A tile of zeros."""
    return full(shape, 0, dtype)


def full(shape: Any, value: Any, dtype: Any) -> tensor:
    """A tile of one value."""
    kind = unwrapped(dtype)
    if not isinstance(kind, _t.dtype):
        raise Refusal(f"expected a dtype, found {kind_of(kind)}", "write one such as tl.float32")
    return _shapes.full(shape, value, kind)


def zeros_like(input: Any) -> tensor:
    """Zeros of a tensor's shape and dtype."""
    return full_like(input, 0)


def full_like(input: Any, value: Any) -> tensor:
    """A value of a tensor's shape and dtype."""
    t = to_tensor(input)
    return _shapes.full(t.shape, value, t.dtype) if t.shape else _a.cast(value, t.dtype)


def cast(input: Any, dtype: Any, fp_downcast_rounding: Any = None, bitcast: Any = False) -> tensor:
    """A tensor as another dtype; with bitcast, its bits."""
    return _a.cast(input, dtype, bool(unwrapped(bitcast)), unwrapped(fp_downcast_rounding))




def get_int_dtype(bitwidth: Any, signed: Any) -> _t.dtype:
    """The integer type of a width."""
    return _t.integer(int(unwrapped(bitwidth)), bool(unwrapped(signed)))


# ---- shapes


def _sizes(shape: tuple[Any, ...]) -> tuple[int, ...]:
    return _shapes.as_shape(shape[0] if len(shape) == 1 else shape)


def reshape(input: Any, *shape: Any, can_reorder: Any = False) -> tensor:
    """The elements in row-major order as another shape."""
    return _shapes.reshape(to_tensor(input), _sizes(shape))


def view(input: Any, *shape: Any) -> tensor:
    """reshape()."""
    return reshape(input, *shape)


def ravel(x: Any, can_reorder: Any = False) -> tensor:
    """The elements in one dimension."""
    return _shapes.reshape(to_tensor(x), (_math.prod(to_tensor(x).shape),))


def expand_dims(input: Any, axis: Any) -> tensor:
    """Dimensions of size 1 at one or several axes of the result."""
    t = to_tensor(input)
    axes = unwrapped(axis)
    axes = [unwrapped(a) for a in axes] if isinstance(axes, (tuple, list)) else [axes]
    rank = len(t.shape) + len(axes)
    for a in sorted(a % rank for a in axes):
        t = _a.expand_dims(t, a)
    return t


def broadcast(input: Any, other: Any) -> tuple[tensor, tensor]:
    """Both tensors with their common shape."""
    a, b = to_tensor(input), to_tensor(other)
    shape = _a.broadcast_shape(a.shape, b.shape)
    return _a.broadcast_to(a, shape), _a.broadcast_to(b, shape)


def broadcast_to(input: Any, *shape: Any) -> tensor:
    """The tensor with a shape to which it broadcasts."""
    return _a.broadcast_to(to_tensor(input), _sizes(shape))


def trans(input: Any, *dims: Any) -> tensor:
    """The tensor with its last two dimensions exchanged, or in the order of dims."""
    t = to_tensor(input)
    if dims:
        return permute(t, *dims)
    if len(t.shape) < 2:
        raise Refusal(f"tl.trans exchanges two dimensions, and the tensor has shape {list(t.shape)}")
    rank = len(t.shape)
    return _shapes.permute(t, (*builtins.range(rank - 2), rank - 1, rank - 2))


def permute(input: Any, *dims: Any) -> tensor:
    """The tensor with its dimensions in another order."""
    order = unwrapped(dims[0]) if len(dims) == 1 else dims
    return _shapes.permute(to_tensor(input), [int(unwrapped(d)) for d in order])


def join(a: Any, b: Any) -> tensor:
    """Two tensors along a new last dimension."""
    return _shapes.join(a, b)


def split(a: Any) -> tuple[tensor, tensor]:
    """The two halves of a last dimension of size 2."""
    return _shapes.split(to_tensor(a))


def cat(input: Any, other: Any, can_reorder: Any = False, dim: Any = 0) -> tensor:
    """Two tensors one behind the other."""
    return _shapes.cat(input, other, int(unwrapped(dim)))


def gather(src: Any, index: Any, axis: Any) -> tensor:
    """Elements of src at indices along an axis."""
    t = to_tensor(src)
    return _shapes.gather(t, to_tensor(index), _folds.axis_of(t, axis))


# ---- memory


def load(pointer: Any, mask: Any = None, other: Any = None, boundary_check: Any = (), padding_option: Any = "", cache_modifier: Any = "", eviction_policy: Any = "", volatile: Any = False) -> tensor:
    """The elements at pointers. Where the mask is false, nothing is read, and the value is `other`, or 0."""
    return _memory.load(pointer, mask, other, boundary_check, padding_option, cache_modifier, eviction_policy)


def store(pointer: Any, value: Any, mask: Any = None, boundary_check: Any = (), cache_modifier: Any = "", eviction_policy: Any = "") -> None:
    """Writes elements at pointers, where the mask is true."""
    _memory.store(pointer, value, mask, boundary_check)


def atomic_add(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> Any:
    """Adds to elements; the value before cannot be used."""
    return _memory.atomic("atomic_add", pointer, val, mask)


def atomic_max(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> Any:
    """The maximum of elements and values, of integers; the value before cannot be used."""
    return _memory.atomic("atomic_max", pointer, val, mask)


def atomic_min(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> Any:
    """The minimum of elements and values, of integers; the value before cannot be used."""
    return _memory.atomic("atomic_min", pointer, val, mask)


def atomic_xchg(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> Any:
    """Writes elements; the value before cannot be used."""
    return _memory.exchange(pointer, val, mask)


def _no_atomic(pointer: Any, *values: Any, **keywords: Any) -> Any:
    """Atomic operations that the tile IR does not have."""
    raise lacking("atomic kind")


atomic_and = atomic_or = atomic_xor = atomic_cas = _no_atomic


def make_block_ptr(base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any = None) -> Any:
    """A pointer to a block of a strided tensor."""
    return _memory.make_block_pointer(base, shape, strides, offsets, block_shape)


def advance(base: Any, offsets: Any) -> Any:
    """A block pointer moved by offsets."""
    offsets = unwrapped(offsets)
    return base.moved([unwrapped(o) for o in offsets])


def make_tensor_descriptor(base: Any, shape: Any, strides: Any, block_shape: Any, padding_option: Any = "zero") -> Any:
    """A tensor whose blocks are loaded and stored within its bounds."""
    return _memory.make_descriptor(base, shape, strides, block_shape)


_experimental_make_tensor_descriptor = make_tensor_descriptor


def load_tensor_descriptor(desc: Any, offsets: Any) -> tensor:
    """A block of a descriptor."""
    return desc.load(offsets)  # type: ignore[no-any-return]


def store_tensor_descriptor(desc: Any, offsets: Any, value: Any) -> None:
    """Writes a block of a descriptor."""
    desc.store(offsets, value)


_experimental_descriptor_load, _experimental_descriptor_store = load_tensor_descriptor, store_tensor_descriptor


# ---- elements


def where(condition: Any, x: Any, y: Any) -> Any:
    """Elements of x where the condition is true, of y elsewhere."""
    return _a.where(condition, x, y)


def _propagates(propagate_nan: Any) -> bool:
    return unwrapped(propagate_nan) is PropagateNan.ALL


class PropagateNan:
    """Whether the maximum of a number and NaN is NaN."""

    NONE = 0
    ALL = 0xFFFF


def maximum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> Any:
    """The greater element; the other one where one is NaN."""
    return _a.extreme("max", x, y, _propagates(propagate_nan))


def minimum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> Any:
    """The lesser element; the other one where one is NaN."""
    return _a.extreme("min", x, y, _propagates(propagate_nan))


def clamp(x: Any, min: Any, max: Any, propagate_nan: Any = PropagateNan.NONE) -> Any:
    """x within two bounds."""
    nan = _propagates(propagate_nan)
    return _a.extreme("min", _a.extreme("max", x, min, nan), max, nan)


def add(x: Any, y: Any, sanitize_overflow: Any = True) -> Any:
    """x + y."""
    return _a.add(x, y)


def sub(x: Any, y: Any, sanitize_overflow: Any = True) -> Any:
    """x - y."""
    return _a.sub(x, y)


def mul(x: Any, y: Any, sanitize_overflow: Any = True) -> Any:
    """x * y."""
    return _a.mul(x, y)


# ---- folds


def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False) -> Any:
    """A reduction by a function with @triton.jit, of one tensor or a tuple of tensors."""
    return _folds.reduce(input, axis, combine_fn, keep_dims)


def associative_scan(input: Any, axis: Any, combine_fn: Any, reverse: Any = False) -> Any:
    """An inclusive scan by a function with @triton.jit, of one tensor or a tuple of tensors."""
    return _folds.associative_scan(input, axis, combine_fn, reverse)


def dot(input: Any, other: Any, acc: Any = None, input_precision: Any = None, allow_tf32: Any = None, max_num_imprecise_acc: Any = None, out_dtype: Any = None) -> tensor:
    """The product of tiles [M, K] and [K, N] plus acc; float32 sums of small floats, int32 of int8, unless out_dtype says otherwise."""
    return _folds.dot(input, other, acc, out_dtype)


def dot_scaled(*arguments: Any, **keywords: Any) -> Any:
    """Refused: the operands are scaled before tl.dot."""
    raise lacking("dot_scaled")


def histogram(input: Any, num_bins: Any, mask: Any = None) -> tensor:
    """How many elements equal 0, ..., num_bins - 1: int32 [num_bins]."""
    return _folds.histogram(to_tensor(input), int(unwrapped(num_bins)), mask)


# ---- loops, hints, checks


class range(Loop):  # noqa: A001
    """A loop of the program. num_stages: of software pipelining; the other options change nothing."""

    def __init__(self, *bounds: Any, num_stages: Any = None, loop_unroll_factor: Any = None, disallow_acc_multi_buffer: Any = False, flatten: Any = False, warp_specialize: Any = False, disable_licm: Any = False, step: Any = None) -> None:
        super().__init__(*(bounds if step is None else (*((0, *bounds) if len(bounds) == 1 else bounds), step)), num_stages=num_stages)


def static_range(*bounds: Any, step: Any = None) -> Any:
    """A loop that is unrolled; the bounds are constants."""
    numbers = [unwrapped(b) for b in bounds]
    if step is not None:
        numbers = [*((0, *numbers) if len(numbers) == 1 else numbers), unwrapped(step)]
    for number in numbers:
        if not isinstance(number, int):
            raise Refusal(f"the bounds of tl.static_range are constants, found {kind_of(number)}", "use range, or a tl.constexpr parameter")
    return builtins.range(*numbers)


def _hint(input: Any, *values: Any) -> Any:
    """A promise of the caller that changes no result."""
    return input


multiple_of = max_contiguous = max_constancy = _hint


def assume(cond: Any) -> None:
    """A promise of the caller. One of the form `name >= constant`, or with another order, bounds the name from there on."""


def debug_barrier() -> None:
    """Nothing: memory operations of a program happen in the order of its text."""


def static_assert(cond: Any, msg: Any = "") -> None:
    """An error at compile time, where the condition is false."""
    cond = unwrapped(cond)
    if isinstance(cond, tensor):
        raise Refusal("the condition of tl.static_assert is a constant", "use tl.device_assert")
    if not cond:
        raise Refusal(f"static assertion failed{': ' + str(unwrapped(msg)) if unwrapped(msg) else ''}", kind=CompileTimeAssertionFailure)


def device_assert(cond: Any, msg: Any = "", mask: Any = None) -> None:
    """Nothing, as in Triton without its debug mode."""


def inline_asm_elementwise(asm: Any, constraints: Any = "", args: Any = (), dtype: Any = None, is_pure: Any = True, pack: Any = 1) -> Any:
    """Straight-line PTX on 32-bit registers, for each element. Other assembly is refused."""
    return _assembly.inline(asm, constraints, args, dtype, pack)


def constexpr_function(f: Any) -> Any:
    """A function that computes constants."""
    return f


# ---- methods of tensors


def _install_methods() -> None:
    """The methods that tensor has in Triton."""
    for name in ("reshape", "view", "ravel", "trans", "permute", "broadcast_to", "expand_dims", "split", "gather", "atomic_add", "atomic_max", "atomic_min", "atomic_xchg", "associative_scan", "reduce", "store", "advance"):  # fmt: skip
        setattr(tensor, name, globals()[name])
    tensor.to = lambda self, dtype, fp_downcast_rounding=None, bitcast=False: cast(self, dtype, fp_downcast_rounding, bitcast)  # type: ignore[attr-defined]
    tensor.cast = tensor.to  # type: ignore[attr-defined]
    tensor.T = property(trans)  # type: ignore[attr-defined]
    tensor.numel = property(lambda self: _math.prod(self.shape))  # type: ignore[attr-defined]
    tensor.logical_and = lambda self, other: _a.logical("and", self, other)  # type: ignore[attr-defined]
    tensor.logical_or = lambda self, other: _a.logical("or", self, other)  # type: ignore[attr-defined]
    tensor.item = lambda self: _shapes.reshape(self, (1,)) if not self.shape else _only(self)  # type: ignore[attr-defined]


def _only(t: tensor) -> tensor:
    """The one element of a tile, as a scalar."""
    if _math.prod(t.shape) != 1:
        raise Refusal(f"item() is of one element, not of {list(t.shape)}")
    while t.shape:
        t = _shapes.squeeze(t, 0)
    return t


_install_methods()
__all__ = [n for n in dir() if not n.startswith("_") and n not in ("Any", "Loop", "builtins", "CompileTimeAssertionFailure", "Refusal", "annotations", "is_number", "kind_of", "lacking", "normal", "whole", "unwrapped")]
