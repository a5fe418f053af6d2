"""Types of Triton's language: dtypes, pointer types, and how two dtypes promote."""

from __future__ import annotations

from typing import Any

from ._errors import Refusal

_RANGES = {8: 2**8, 16: 2**16, 32: 2**32, 64: 2**64}


class dtype:
    """A scalar type. name: Triton's ("fp32"); ir: the tile IR's ("f32"); bits: of one element, 1 for int1."""

    def __init__(self, name: str, ir: str, bits: int, kind: str) -> None:
        self.name, self.ir, self.bits, self.kind = name, ir, bits, kind
        self.primitive_bitwidth = self.itemsize_bits = bits
        self.scalar = self

    def __repr__(self) -> str:
        return f"triton.language.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        if not isinstance(other, dtype):
            other = getattr(other, "value", None)  # of a constexpr
        return type(other) is type(self) and self.name == other.name

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> Any:
        return named, (self.name,)

    def __call__(self, value: Any) -> Any:
        """tl.float32(x): a cast."""
        from . import _arithmetic

        return _arithmetic.cast(value, self)

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory."""
        return max(self.bits, 8) // 8

    @property
    def fp_mantissa_width(self) -> int:
        """Explicit bits of the mantissa of a float."""
        widths: dict[str, int] = {"fp32": 23, "fp64": 52, "fp16": 10, "bf16": 7, "fp8e4nv": 3, "fp8e5": 2, "fp8e4b8": 3, "fp8e5b16": 2}
        return widths[self.name]

    @property
    def int_bitwidth(self) -> int:
        return self.bits

    @property
    def low(self) -> int:
        """The lowest value of an integer type."""
        return -(2 ** (self.bits - 1)) if self.kind == "signed" and self.bits > 1 else 0

    @property
    def high(self) -> int:
        """The greatest value of an integer type."""
        return (1 << (self.bits - 1)) - 1 if self.kind == "signed" and self.bits > 1 else (1 << self.bits) - 1

    def is_floating(self) -> bool:
        return self.kind == "float"

    def is_int(self) -> bool:
        return self.kind in ("signed", "unsigned")

    def is_bool(self) -> bool:
        return self.bits == 1

    def is_int_signed(self) -> bool:
        return self.kind == "signed" and self.bits > 1

    def is_int_unsigned(self) -> bool:
        return self.kind == "unsigned"

    def is_fp8(self) -> bool:
        return self.kind == "float" and self.bits == 8

    def is_standard_floating(self) -> bool:
        return self.name in ("fp16", "bf16", "fp32", "fp64")

    def is_ptr(self) -> bool:
        return False

    def is_block(self) -> bool:
        return False

    def is_const(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("is_") and name[3:] in _NAMES:  # is_fp32(), is_int64()
            return lambda: self.name == name[3:]
        raise AttributeError(f"a dtype has no attribute '{name}'")


class pointer_type(dtype):
    """The type of pointers to elements of a type."""

    def __init__(self, element_ty: Any, address_space: int = 1, const: bool = False) -> None:
        element_ty = getattr(element_ty, "value", element_ty)
        super().__init__(f"pointer<{element_ty}>", "ptr", 64, "pointer")
        self.element_ty, self.address_space, self.const = element_ty, address_space, const

    def is_ptr(self) -> bool:
        return True


class block_type:
    """The type of a tile: dtype and shape."""

    def __init__(self, element_ty: dtype, shape: Any) -> None:
        self.element_ty = self.scalar = element_ty
        self.shape: tuple[int, ...] = tuple(shape)

    def __repr__(self) -> str:
        return f"<{list(self.shape)}, {self.element_ty}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, block_type) and (self.element_ty, self.shape) == (other.element_ty, other.shape)

    def __hash__(self) -> int:
        return hash((self.element_ty, self.shape))

    def is_block(self) -> bool:
        return True

    def is_ptr(self) -> bool:
        return False

    def get_block_shapes(self) -> tuple[int, ...]:
        return self.shape

    @property
    def numel(self) -> int:
        n: int = 1
        for d in self.shape:
            n *= d
        return n


class void_type(dtype):
    """The type of nothing."""

    def __init__(self) -> None:
        super().__init__("void", "void", 0, "void")


# Name in Triton, name in the tile IR, bits, kind, and the names that tl has for it.
_TABLE = [
    ("int1", "bool", 1, "signed", ("int1",)),
    ("int8", "i8", 8, "signed", ("int8",)),
    ("int16", "i16", 16, "signed", ("int16",)),
    ("int32", "i32", 32, "signed", ("int32",)),
    ("int64", "i64", 64, "signed", ("int64",)),
    ("uint8", "u8", 8, "unsigned", ("uint8",)),
    ("uint16", "u16", 16, "unsigned", ("uint16",)),
    ("uint32", "u32", 32, "unsigned", ("uint32",)),
    ("uint64", "u64", 64, "unsigned", ("uint64",)),
    ("fp8e4nv", "f8e4m3fn", 8, "float", ("float8e4nv",)),
    ("fp8e5", "f8e5m2", 8, "float", ("float8e5",)),
    ("fp8e4b8", "f8e4m3fnuz", 8, "float", ("float8e4b8",)),
    ("fp8e5b16", "f8e5m2fnuz", 8, "float", ("float8e5b16",)),
    ("fp16", "f16", 16, "float", ("float16",)),
    ("bf16", "bf16", 16, "float", ("bfloat16",)),
    ("fp32", "f32", 32, "float", ("float32",)),
    ("fp64", "f64", 64, "float", ("float64",)),
]
_NAMES: dict[str, dtype] = {name: dtype(name, ir, bits, kind) for name, ir, bits, kind, _ in _TABLE}
LANGUAGE_NAMES: dict[str, dtype] = {tl: _NAMES[row[0]] for row in _TABLE for tl in row[4]}
int1, int8, int16, int32, int64 = (_NAMES[n] for n in ("int1", "int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = (_NAMES[n] for n in ("uint8", "uint16", "uint32", "uint64"))
float16, bfloat16, float32, float64 = (_NAMES[n] for n in ("fp16", "bf16", "fp32", "fp64"))
void = void_type()

# Names of dtypes of NumPy and PyTorch, without "torch.".
FROM_ARRAYS: dict[str, dtype] = {
    "bool": int1, "int8": int8, "int16": int16, "int32": int32, "int64": int64, "uint8": uint8, "uint16": uint16, "uint32": uint32,
    "uint64": uint64, "float16": float16, "bfloat16": bfloat16, "float32": float32, "float64": float64, "float8_e4m3fn": _NAMES["fp8e4nv"],
    "float8_e5m2": _NAMES["fp8e5"], "float8_e4m3fnuz": _NAMES["fp8e4b8"], "float8_e5m2fnuz": _NAMES["fp8e5b16"],
}  # fmt: skip


def named(name: str) -> dtype:
    """The dtype of Triton's name, or of a signature's: "fp32", "i32", "u8", "*fp16"."""
    if name.startswith(("*", "pointer<")):
        return pointer_type(named(name[1:] if name[0] == "*" else name[8:-1]))
    if name in ("B", "i1", "u1"):
        return int1
    if name not in _NAMES and name[:1] in ("i", "u") and name[1:].isdigit():
        name = ("int" if name[0] == "i" else "uint") + name[1:]
    if name not in _NAMES:
        raise Refusal(f"there is no dtype '{name}'", f"the dtypes are {', '.join(_NAMES)}")
    return _NAMES[name]


def integer(bits: int, signed: bool) -> dtype:
    """tl.get_int_dtype."""
    return _NAMES[f"{'' if signed or bits == 1 else 'u'}int{bits}"]


def of_number(value: Any) -> dtype:
    """The dtype that a Python number takes where it stands alone."""
    if isinstance(value, bool):
        return int1
    if isinstance(value, int):
        for kind in (int32, uint32, int64, uint64):
            if kind.low <= value <= kind.high:
                return kind
        raise Refusal(f"{value} does not fit 64 bits")
    magnitude = abs(value)
    normal = magnitude == 0 or magnitude != magnitude or magnitude == float("inf") or 2.0**-126 <= magnitude <= (2 - 2**-23) * 2.0**127
    return float32 if normal else float64


def _rank(kind: dtype) -> int:
    return 2 if kind.is_floating() else 0 if kind.is_bool() else 1


def promote(a: dtype, b: dtype, divides: bool = False) -> dtype:
    """The dtype in which an operation of two tensors is computed; divides: of /, // and %."""
    for kind in (float64, float32):
        if kind in (a, b):
            return kind
    if float16 in (a, b):
        return float32 if divides else float16
    if bfloat16 in (a, b):
        return bfloat16 if a == b and not divides else float32
    if a.is_floating() or b.is_floating():
        if a.is_fp8() and b.is_fp8():
            return a if a == b else float16
        return float32 if divides else a if a.is_floating() else b
    if divides and a.kind != b.kind:
        raise Refusal(f"/, // and % of {a} and {b} are not defined, because their signs differ", "cast one of them with .to()")
    if a.kind == b.kind:
        return a if a.bits >= b.bits else b
    unsigned, signed = (a, b) if a.kind == "unsigned" else (b, a)
    return unsigned if unsigned.bits >= signed.bits else signed


def promote_number(tensor: dtype, number: Any, divides: bool = False) -> dtype:
    """The dtype of an operation of a tensor and a Python number: the number adapts where its kind allows."""
    own = of_number(number)
    if _rank(own) > _rank(tensor):
        return promote(tensor, own, divides)
    if tensor.is_int() and not tensor.is_bool() and not tensor.low <= number <= tensor.high:
        raise Refusal(f"{number} does not fit {tensor}", "cast the tensor with .to() first")
    return float32 if divides and tensor in (float16, bfloat16) else tensor
