"""Queries of NumPy's arrays and PyTorch's tensors for the extension. Neither is imported before it is needed."""

from __future__ import annotations

import sys
from typing import Any

# Names by number of onnx.TensorProto.DataType; NumPy, ml_dtypes and PyTorch use the same ones where they have the type.
NAMES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "string", 9: "bool", 10: "float16",
    11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bfloat16", 17: "float8_e4m3fn",
    18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz", 21: "uint4", 22: "int4", 23: "float4_e2m1fn",
    24: "float8_e8m0fnu", 25: "uint2", 26: "int2",
}  # fmt: skip
NUMBERS = {name: number for number, name in NAMES.items()}
# Names in KServe's protocol, version 2, of the types that JSON has values for.
KSERVE = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "int8": "INT8", "int16": "INT16",
    "int32": "INT32", "int64": "INT64", "float16": "FP16", "float32": "FP32", "float64": "FP64", "object": "BYTES",
}  # fmt: skip
DTYPES_OF_KSERVE = {kserve: name for name, kserve in KSERVE.items()}
_PACKED = {"uint4", "int4", "float4_e2m1fn", "uint2", "int2", "string"}  # arrays hold these one to a byte, or by reference


def numpy_number(dtype: Any) -> int:
    """The number of a NumPy dtype, 0 where the library has none."""
    name = str(dtype.newbyteorder("=").name) if dtype.kind != "V" else str(dtype.name)
    return 0 if name in _PACKED else NUMBERS.get(name, 0)


def numpy_dtype(number: int) -> Any:
    """The NumPy dtype of a number; None where neither NumPy nor an installed ml_dtypes has it."""
    import numpy

    name = NAMES.get(number, "")
    if name in _PACKED:
        return None
    try:
        return numpy.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes  # type: ignore[import-not-found,import-untyped,unused-ignore]

        return numpy.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError):
        return None


def numpy_contiguous(array: Any) -> Any:
    """A row-major, aligned copy in this machine's byte order."""
    import numpy

    return numpy.array(array, dtype=array.dtype.newbyteorder("=") if array.dtype.kind != "V" else array.dtype, order="C", copy=True)


def numpy_empty(shape: tuple[int, ...], dtype: Any) -> Any:
    global numpy_empty
    import numpy

    numpy_empty = numpy.empty
    return numpy.empty(shape, dtype)


def torch_dtype(number: int) -> Any:
    """The torch.dtype of a number. Raises UnsupportedError where PyTorch has none."""
    import torch

    name = NAMES.get(number, "")
    found = None if name in _PACKED else getattr(torch, name, None)
    if found is None:
        from ._errors import UnsupportedError

        raise UnsupportedError(f"PyTorch has no dtype for the model's {name}", code="TES-2002", name="unsupported-type")
    return found


def torch_contiguous(tensor: Any) -> Any:
    """A contiguous tensor of the same values."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def torch_records() -> bool:
    """Whether PyTorch records operators, or computes others in their place: a tracer, a dispatch mode or a transform of torch.func is active."""
    c = sys.modules["torch"]._C
    return bool(c._is_tracing() or c._len_torch_dispatch_stack() or c._functorch.peek_interpreter_stack())


def torch_dispatches(tensor: Any) -> bool:
    """Whether operators on a tensor of a subclass are Python's, as those of FakeTensor are."""
    return type(tensor).__torch_dispatch__ is not sys.modules["torch"].Tensor.__torch_dispatch__


def torch_stream(tensor: Any, stream: int | None) -> int:
    """The CUDA stream, as an int, for a call on a tensor of a GPU: the one given, else PyTorch's current one."""
    if stream is not None:
        return stream
    return int(sys.modules["torch"].cuda.current_stream(tensor.device).cuda_stream)


def torch_empty(shape: tuple[int, ...], dtype: Any, like: Any) -> Any:
    return sys.modules["torch"].empty(shape, dtype=dtype, device=like.device)


# ---- values of states, in host memory. `info`: of a state, with dtype by name and fixed sizes (_session.TensorInfo).


def state_array(info: Any) -> Any:
    """Row-major memory for a state: a NumPy array, or a PyTorch tensor where NumPy lacks the dtype."""
    number = NUMBERS[info.dtype]
    dtype = numpy_dtype(number)
    if dtype is not None:
        return numpy_empty(info.shape, dtype)
    import torch

    return torch.empty(info.shape, dtype=torch_dtype(number))


def state_given(info: Any, value: Any) -> Any:
    """A caller's value for a state, row-major in host memory. Raises UsageError: another dtype or shape."""
    from ._errors import UsageError

    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        dtype, out = str(value.dtype).removeprefix("torch."), torch_contiguous(value).cpu()
    else:
        import numpy

        array = numpy.asarray(value)
        number = numpy_number(array.dtype)
        dtype = NAMES.get(number, str(array.dtype))
        out = numpy_contiguous(array)
    if dtype != info.dtype or tuple(out.shape) != tuple(info.shape):
        raise UsageError(f"the value given for state {info} is {dtype}[{', '.join(map(str, out.shape))}]", code="TES-1001", name="usage")
    return out


def memory_of(array: Any) -> tuple[int, int]:
    """Address and bytes of a row-major array of NumPy, or tensor of PyTorch, in host memory."""
    if hasattr(array, "data_ptr"):
        return array.data_ptr(), array.numel() * array.element_size()
    return array.ctypes.data, array.nbytes
