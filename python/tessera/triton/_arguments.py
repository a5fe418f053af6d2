"""Arguments of launches: their kinds, addresses and devices. PyTorch's tensors are known by their attributes; it is not imported."""

from __future__ import annotations

import ctypes
from typing import Any

from . import _types as types
from ._errors import Refusal
from ._specialise import Constant, Descriptor, Group, Kind, Pointer, Scalar, kind_of_number, range_of
from ._values import constexpr, unwrapped


def is_array(value: Any) -> bool:
    """True of what has memory: tensors of PyTorch, arrays of NumPy, and DLPack's."""
    return hasattr(value, "data_ptr") or hasattr(value, "__array_interface__") or hasattr(value, "__dlpack__")


def array_dtype(value: Any) -> types.dtype:
    """The dtype of an array's elements."""
    if isinstance(getattr(value, "dtype", None), types.dtype):
        return value.dtype  # type: ignore[no-any-return]
    name = str(value.dtype).rsplit(".", 1)[-1]
    if name not in types.FROM_ARRAYS:
        raise Refusal(f"kernels have no elements of dtype {name}", f"the dtypes are {', '.join(types.FROM_ARRAYS)}")
    return types.FROM_ARRAYS[name]


def address(value: Any) -> int:
    """The address of an array's first element."""
    if hasattr(value, "data_ptr"):
        return int(value.data_ptr())
    if hasattr(value, "__array_interface__"):
        return int(value.__array_interface__["data"][0])
    return _dlpack_address(value.__dlpack__())


def _dlpack_address(capsule: Any) -> int:
    """data + byte_offset of the DLTensor in a capsule."""
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype, api.PyCapsule_GetPointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    at = api.PyCapsule_GetPointer(capsule, b"dltensor")
    data = ctypes.c_uint64.from_address(at).value
    return data + ctypes.c_uint64.from_address(at + 40).value


def device_of(value: Any) -> str:
    """ "cpu" or "cuda": where an array lies."""
    device = getattr(value, "device", None)
    kind = getattr(device, "type", None) or (str(device) if device is not None else "cpu")
    return "cuda" if str(kind).startswith("cuda") else "cpu"


def is_descriptor(value: Any) -> bool:
    """True of a host's tensor descriptor."""
    return all(hasattr(value, n) for n in ("base", "block_shape", "strides")) and is_array(getattr(value, "base", None))


def kind_of(value: Any, specialised: bool = True, aligned: bool = True) -> Kind:
    """The kind of an argument. specialised, aligned: of numbers, whether 1 and divisibility by 16 are known at compile time."""
    if isinstance(value, constexpr) or value is None or isinstance(value, (str, types.dtype)):
        return Constant(unwrapped(value))
    if isinstance(value, (bool, int, float)):
        return kind_of_number(value, specialised, aligned)
    if is_descriptor(value):
        return Descriptor(Pointer(array_dtype(value.base), address(value.base) % 16 == 0), len(value.block_shape), tuple(value.block_shape))
    if is_array(value):
        return Pointer(array_dtype(value), aligned and address(value) % 16 == 0)
    if isinstance(value, (tuple, list)):
        return Group(tuple(kind_of(v, specialised, aligned) for v in value))
    if hasattr(value, "__index__"):
        return kind_of_number(int(value), specialised, aligned)
    if hasattr(value, "__float__"):
        return Scalar(types.float32)
    return Constant(value)  # a function, or an object that only constants read


def annotated(value: Any, kind: Kind, annotation: Any) -> Kind:
    """The kind of a number whose parameter is annotated with a dtype, such as tl.int64."""
    annotation = getattr(annotation, "value", annotation)
    if isinstance(annotation, types.dtype) and isinstance(value, (int, float)) and isinstance(kind, Scalar):
        return Scalar(annotation, kind.divisible, *(range_of(value, annotation) if isinstance(value, int) and annotation.is_int() else (None, None)))
    return kind


def flattened(value: Any, kind: Kind) -> list[Any]:
    """Addresses and numbers that a launch passes for an argument."""
    if isinstance(kind, Constant):
        return []
    if isinstance(kind, Pointer):
        return [address(value)]
    if isinstance(kind, Group):
        return [x for v, k in zip(value, kind.items) for x in flattened(v, k)]
    if isinstance(kind, Descriptor):
        return [address(value.base), *map(int, value.shape), *map(int, list(value.strides)[:-1])]
    return [float(value) if kind.dtype.is_floating() else int(value)]


def arrays_in(values: Any) -> list[Any]:
    """The arrays among arguments."""
    out = []
    for v in values:
        if isinstance(v, (tuple, list)):
            out += arrays_in(v)
        elif is_descriptor(v):
            out.append(v.base)
        elif is_array(v):
            out.append(v)
    return out


