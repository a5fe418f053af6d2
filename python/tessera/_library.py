"""The library for PyTorch's tensors: the extension module where it was built, else libtessera.so through ctypes."""

from __future__ import annotations

import ctypes as C
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

# Numbers of onnx.TensorProto.DataType.
DTYPES = {
    torch.float32: 1, torch.uint8: 2, torch.int8: 3, torch.uint16: 4, torch.int16: 5, torch.int32: 6, torch.int64: 7,
    torch.bool: 9, torch.float16: 10, torch.float64: 11, torch.uint32: 12, torch.uint64: 13, torch.bfloat16: 16,
}  # fmt: skip

Make = Callable[[int, Sequence[int]], torch.Tensor]  # (index of the output, its sizes) -> tensor with memory for it


class Session(Protocol):
    """A compiled program."""

    def call(self, args: Sequence[torch.Tensor | int], make: Make, stream: int) -> list[torch.Tensor]:
        """Runs on inputs in the program's order, dense in memory; outputs in memory that `make` gives.

        stream: address of a CUstream, 0 on the host. Raises an error of the library.
        """
        ...

    def report(self) -> str:
        """What `tessera explain --format json` shows."""
        ...


class Error(RuntimeError):
    """An error of the library, as its text says it."""


class _Tensor(C.Structure):
    _fields_ = [("name", C.c_char_p), ("dtype", C.c_int32), ("rank", C.c_int32), ("dims", C.POINTER(C.c_int64)), ("data", C.c_void_p)]


class _Program(C.Structure):
    _fields_ = [("name", C.c_char_p), ("json", C.c_char_p), ("json_bytes", C.c_size_t), ("weights", C.POINTER(_Tensor)),
                ("weight_count", C.c_int32), ("strided", C.c_int32)]  # fmt: skip


class _Options(C.Structure):
    _fields_ = [("device", C.c_char_p), ("threads", C.c_int32), ("tune_share", C.c_double), ("tf32", C.c_char_p)]


_Allocate = C.CFUNCTYPE(C.c_void_p, C.c_void_p, C.c_int32, C.c_int32, C.c_int32, C.POINTER(C.c_int64))


def _load() -> C.CDLL:
    here = Path(__file__).resolve()
    candidates = [os.environ.get("TESSERA_LIBRARY"), here.parent / "libtessera.so", here.parents[2] / "build" / "lib" / "libtessera.so"]
    for path in candidates:
        if path and Path(path).exists():
            library = C.CDLL(str(path))
            for name in ("tessera_open_program", "tessera_survey_program", "tessera_call", "tessera_report"):
                getattr(library, name).restype = C.c_char_p
            return library
    raise ImportError("tessera: libtessera.so was not found; build it, or set TESSERA_LIBRARY to its path")


def _check(error: bytes | None) -> None:
    if error:
        raise Error(error.decode())


_NOTHING = (C.c_int64 * 8)()  # the address of tensors without elements


def _describe(t: torch.Tensor, name: bytes | None = None) -> _Tensor:
    rank = t.dim()
    dims = (C.c_int64 * max(rank, 1))(*t.shape)
    return _Tensor(name, DTYPES[t.dtype], rank, dims, t.data_ptr() or C.addressof(_NOTHING))


def _program(name: str, json: bytes, weights: Mapping[str, torch.Tensor], strided: bool) -> _Program:
    array = (_Tensor * max(len(weights), 1))(*[_describe(t, k.encode()) for k, t in weights.items()])
    return _Program(name.encode(), json, len(json), array, len(weights), int(strided))


class _CtypesSession:
    def __init__(self, library: C.CDLL, handle: C.c_void_p, weights: Mapping[str, torch.Tensor]):
        self._library, self._handle, self._weights = library, handle, dict(weights)
        self._lock = threading.Lock()  # a session is used by one thread at a time

    def __del__(self) -> None:
        self._library.tessera_close(self._handle)

    def call(self, args: Sequence[torch.Tensor | int], make: Make, stream: int) -> list[torch.Tensor]:
        inputs = (_Tensor * max(len(args), 1))()
        for i, a in enumerate(args):
            if isinstance(a, int):  # a size is the dimension of an input that nothing reads
                inputs[i] = _Tensor(None, DTYPES[torch.bool], 1, (C.c_int64 * 1)(a), C.addressof(_NOTHING))
            else:
                inputs[i] = _describe(a)
        made: dict[int, torch.Tensor] = {}
        failed: list[BaseException] = []

        def allocate(_context: Any, output: int, _dtype: int, rank: int, dims: Any) -> int:
            try:
                made[output] = t = make(output, dims[:rank])
                return t.data_ptr() or C.addressof(_NOTHING)
            except BaseException as e:  # nothing passes through the library
                failed.append(e)
                return 0

        with self._lock:
            error = self._library.tessera_call(self._handle, inputs, len(args), _Allocate(allocate), None, C.c_void_p(stream or None))
        if failed:
            raise failed[0]
        _check(error)
        return [made[i] for i in range(len(made))]

    def report(self) -> str:
        text = C.c_char_p()
        with self._lock:
            _check(self._library.tessera_report(self._handle, C.byref(text)))
            return (text.value or b"{}").decode()


def _native() -> Any:
    try:
        from tessera import _native

        return _native if hasattr(_native, "open_program") else None
    except ImportError:
        return None


def _native_weights(weights: Mapping[str, torch.Tensor]) -> dict[str, tuple]:
    return {k: (DTYPES[t.dtype], tuple(t.shape), t.data_ptr(), t) for k, t in weights.items()}


_library: C.CDLL | None = None


def _ctypes() -> C.CDLL:
    global _library
    if _library is None:
        _library = _load()
    return _library


def open_program(name: str, json: bytes, weights: Mapping[str, torch.Tensor], device: str, threads: int, tf32: str, strided: bool) -> Session:
    """Compiles a program. weights: contiguous tensors in host memory. Raises an error of the library."""
    if native := _native():
        return native.open_program(name, json, _native_weights(weights), device, threads, tf32, strided)
    library = _ctypes()
    program = _program(name, json, weights, strided)
    options = _Options(device.encode(), threads, 0, tf32.encode())
    handle = C.c_void_p()
    _check(library.tessera_open_program(C.byref(program), C.byref(options), C.byref(handle)))
    return _CtypesSession(library, handle, weights)


def survey_program(json: bytes, weights: Mapping[str, torch.Tensor]) -> str:
    """What of a program Tessera does not take: JSON, a list of {node, target, output, reason}. Raises an error of the library."""
    if native := _native():
        return native.survey_program(json, _native_weights(weights))
    text = C.c_char_p()
    program = _program("survey", json, weights, False)
    _check(_ctypes().tessera_survey_program(C.byref(program), C.byref(text)))
    return (text.value or b"[]").decode()
