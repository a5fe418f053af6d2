"""Values of every kind: arrays of strings, sequences, optionals and maps, as ONNX Runtime gives them.

A tensor is a NumPy array; one of strings an array of objects, which are str. A sequence is a list, an optional a value or None, a map a dict.
Inputs are that, too; an array of strings may have a dtype of NumPy for text (<U3), and a list of numbers stands for an array.
"""

from __future__ import annotations

from typing import Any

from ._arrays import NAMES, numpy_dtype, numpy_number
from ._errors import InputTypeError

SEQUENCE, OPTIONAL, MAP = 1, 2, 3
_KINDS = {"sequence": SEQUENCE, "optional": OPTIONAL, "map": MAP}


def kinds_of(list_type: str | None) -> tuple[int, ...]:
    """The kinds of a list's type, outermost first: of "sequence list<map i64 f32[]>[2]" a sequence and a map."""
    return tuple(_KINDS[part.split(" ", 1)[0]] for part in (list_type or "").split("<") if part) if list_type else ()


def _wrong(what: str, value: Any, expected: str) -> InputTypeError:
    return InputTypeError(f"{what} is of type {type(value).__name__}; {expected} is expected", code="TES-3008", name="bad-input")


def _tensor(value: Any, dtype: str, what: str, held: list[Any]) -> tuple[Any, ...]:
    import numpy

    if hasattr(value, "__dlpack__") and not isinstance(value, numpy.ndarray):
        value = numpy.from_dlpack(value)
    array = numpy.asarray(value)
    if dtype == "string" or array.dtype.kind in "OUST":
        texts = [t.encode() if isinstance(t, str) else t for t in array.ravel().tolist()]
        if dtype not in ("string", "") or not all(isinstance(t, bytes) for t in texts):
            raise InputTypeError(f"{what} has dtype {array.dtype}; {dtype or 'numbers, or str'} is expected", code="TES-3008", name="bad-input")
        return (array.shape, texts)
    if not isinstance(value, (numpy.ndarray, numpy.generic)) and dtype:  # numbers of Python have the type that is expected
        array = array.astype(dtype)
    number = numpy_number(array.dtype)
    if not number or (dtype and NAMES[number] != dtype):
        raise InputTypeError(f"{what} has dtype {array.dtype}; {dtype or 'a dtype that ONNX has'} is expected", code="TES-3008", name="bad-input")
    array = numpy.require(array, array.dtype.newbyteorder("=") if array.dtype.kind != "V" else None, ("C", "A"))
    held.append(array)
    return (number, array.shape, array.ctypes.data if array.size else 0)


def _value(value: Any, kinds: tuple[int, ...], dtype: str, what: str, held: list[Any]) -> tuple[Any, ...]:
    if not kinds:
        return _tensor(value, dtype, what, held)
    if kinds[0] == SEQUENCE:
        if not isinstance(value, (list, tuple)):
            raise _wrong(what, value, "a list")
        return (SEQUENCE, [_value(v, kinds[1:], dtype, f"{what}, item {i}", held) for i, v in enumerate(value)])
    if kinds[0] == OPTIONAL:
        return (OPTIONAL, [] if value is None else [_value(value, kinds[1:], dtype, what, held)])
    if not isinstance(value, dict):
        raise _wrong(what, value, "a dict")
    keys, values = list(value.keys()), list(value.values())
    key_dtype = "string" if keys and isinstance(keys[0], (str, bytes)) else "int64"
    return (MAP, [_tensor(keys, key_dtype, f"the keys of {what}", held), _tensor(values, dtype, f"the values of {what}", held)])


def _shown(value: tuple[Any, ...]) -> Any:
    import numpy

    if len(value) == 3:
        number, shape, data = value
        dtype = numpy_dtype(number)
        if dtype is None:
            raise InputTypeError(f"an output of {NAMES.get(number, 'an unknown type')} has no dtype in NumPy", code="TES-2002", name="unsupported-type")
        return numpy.frombuffer(bytearray(data), dtype).reshape(shape)
    if isinstance(value[0], tuple):
        shape, texts = value
        out = numpy.empty(shape, object)
        out.reshape(-1)[:] = [t.decode(errors="surrogateescape") for t in texts]
        return out
    kind, items = value
    if kind == SEQUENCE:
        return [_shown(v) for v in items]
    if kind == OPTIONAL:
        return _shown(items[0]) if items else None
    keys, values = (_shown(v) for v in items)
    return dict(zip(keys.tolist(), values.tolist(), strict=True))


_SHORT = {"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "str": "string", "string": "string", "bool": "bool",
          "c64": "complex64", "c128": "complex128"}  # fmt: skip


def _element(list_type: str) -> str:
    """The dtype of the innermost items' elements, "" where it is not one of NumPy's."""
    name = list_type.rsplit("<", 1)[-1].split("[", 1)[0].split(" ")[-1]
    return _SHORT.get(name) or (name.replace("i", "int") if name[:1] == "i" else name.replace("u", "uint") if name[:1] == "u" else "")


class Items:
    """Calls of a model that has an input or output which is no tensor of numbers."""

    def __init__(self, session: Any, inputs: tuple[Any, ...], list_types: list[str | None]) -> None:
        self._run = session.run_items
        self._inputs = [(i.name, kinds_of(t), _element(t) if t else i.dtype) for i, t in zip(inputs, list_types, strict=False)]

    def __call__(self, args: tuple[Any, ...], stream: int | None) -> list[Any]:
        if len(args) != len(self._inputs):
            raise InputTypeError(f"the model has {len(self._inputs)} inputs, and the number given is {len(args)}", code="TES-1003", name="missing-input")
        held: list[Any] = []  # arrays whose memory the call reads
        values = tuple(_value(a, kinds, dtype, f"input '{name}'", held) for a, (name, kinds, dtype) in zip(args, self._inputs, strict=True))
        return [_shown(v) for v in self._run(values)]
