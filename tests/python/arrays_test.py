"""tessera.load's function on arrays: what it takes, where memory lies, who owns it, and the errors."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import unittest
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy
from support import ROOT, Dlpack, load, save

import tessera

DTYPES = {
    "bool": numpy.bool_, "uint8": numpy.uint8, "int8": numpy.int8, "uint16": numpy.uint16, "int16": numpy.int16,
    "uint32": numpy.uint32, "int32": numpy.int32, "uint64": numpy.uint64, "int64": numpy.int64, "float16": numpy.float16,
    "float": numpy.float32, "double": numpy.float64, "bfloat16": ml_dtypes.bfloat16,
    "float8e4m3fn": ml_dtypes.float8_e4m3fn, "float8e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip
SHAPES = [(), (0,), (5,), (3, 0, 2), (2, 3, 4)]
ADD = "(float[n, m] a, float[n, m] b) => (float[n, m] y) { y = Add(a, b) }"


def values(shape: tuple[int, ...], dtype: type = numpy.float32) -> numpy.ndarray:
    return (numpy.arange(numpy.prod(shape, dtype=int)) % 7).reshape(shape).astype(dtype)


class Values(unittest.TestCase):
    def test_every_dtype_and_rank(self) -> None:
        for name, dtype in DTYPES.items():
            for shape in SHAPES:
                with self.subTest(dtype=name, shape=shape):
                    dims = ", ".join(f"d{i}" for i in range(len(shape)))
                    model = load(f"({name}[{dims}] x) => ({name}[{dims}] y) {{ y = Identity(x) }}")
                    x = values(shape, dtype)
                    y = model(x)
                    self.assertIs(type(y), numpy.ndarray)
                    self.assertEqual((y.dtype, y.shape), (x.dtype, x.shape))
                    self.assertTrue((y == x).all())
                    self.assertNotEqual(y.ctypes.data, x.ctypes.data)

    def test_layouts(self) -> None:
        model = load("(float[n, m] x) => (float[n, m] y) { y = Add(x, x) }")
        whole = values((6, 8))
        unaligned = numpy.frombuffer(b"." + whole.tobytes(), numpy.uint8)[1:].view(numpy.float32).reshape(6, 8)
        layouts = {
            "transposed": whole.T, "sliced": whole[1::2, ::3], "reversed": whole[::-1, ::-1], "broadcast": numpy.broadcast_to(whole[:1], (4, 8)),
            "big-endian": whole.astype(">f4"), "Fortran": numpy.asfortranarray(whole), "unaligned": unaligned, "empty": whole[:0],
        }  # fmt: skip
        for name, x in layouts.items():
            with self.subTest(layout=name):
                numpy.testing.assert_array_equal(model(x), x + x)
                if name not in ("big-endian", "unaligned"):  # which DLPack does not have, or NumPy does not export
                    numpy.testing.assert_array_equal(numpy.from_dlpack(model(Dlpack(x))), x + x)

    def test_inputs_by_name(self) -> None:
        model = load("(float[n] a, float[n] b) => (float[n] y) { y = Sub(a, b) }")
        a, b = values((3,)) + 1, values((3,)) * 4
        for y in (model(a, b), model(a, b=b), model(b=b, a=a), model(**{"a": a, "b": b}), model({"b": b, "a": a})):
            numpy.testing.assert_array_equal(y, a - b)

        with self.assertRaisesRegex(tessera.InputTypeError, "no input 'c'"):
            model({"a": a, "c": b})
        with self.assertRaisesRegex(tessera.InputTypeError, "input 'b' was not given"):
            model({"a": a})

    def test_several_outputs_and_none(self) -> None:
        both = load("(float[n] x) => (float[n] y, float[n] z) { y = Relu(x)  z = Neg(x) }")(values((4,)))
        self.assertIs(type(both), tuple)
        numpy.testing.assert_array_equal(both[1], -values((4,)))
        constant = load("() => (int64[3] y) { y = Constant<value_ints = [1, 2, 3]>() }")
        numpy.testing.assert_array_equal(constant(), [1, 2, 3])

    def test_sizes_that_depend_on_values(self) -> None:
        model = load("(float[n] x) => (int64[1, k] y) { y = NonZero(x) }")
        for x in (values((9,)), numpy.zeros(3, numpy.float32), values((0,))):
            numpy.testing.assert_array_equal(model(x), numpy.nonzero(x))


class Memory(unittest.TestCase):
    def test_inputs_are_read_where_they_lie(self) -> None:
        """The second input, when it is looked at, changes the first one: what was not copied has changed."""
        model = load(ADD)
        zeros = numpy.zeros((3, 3), numpy.float32)
        for kind in (lambda x: x, Dlpack):
            for copied in (False, True):
                x = zeros.copy()
                y = model(kind(x.T if copied else x), Dlpack(zeros, lambda x=x: x.fill(1)))
                got = y if kind is not Dlpack else numpy.from_dlpack(y)
                self.assertEqual(float(got.sum()), 0 if copied else 9)

    def test_outputs_are_shared(self) -> None:
        y = load(ADD)(Dlpack(values((2, 3))), Dlpack(values((2, 3))))
        self.assertIsInstance(y, tessera.Tensor)
        self.assertEqual((y.shape, y.dtype, y.__dlpack_device__()), ((2, 3), "float32", (1, 0)))
        self.assertEqual(repr(y), "tessera.Tensor(shape=(2, 3), dtype='float32')")
        one, other, copy = numpy.from_dlpack(y), numpy.from_dlpack(y), numpy.from_dlpack(y, copy=True)
        self.assertEqual(one.ctypes.data, other.ctypes.data)
        self.assertNotEqual(one.ctypes.data, copy.ctypes.data)
        one[0, 1] = 40
        self.assertEqual((other[0, 1], copy[0, 1]), (40, 2))
        del y, one
        gc.collect()
        self.assertEqual(other[0, 1], 40)

    def test_an_output_is_an_input(self) -> None:
        model = load(ADD)
        y = model(Dlpack(values((2, 3))), Dlpack(values((2, 3))))
        numpy.testing.assert_array_equal(numpy.from_dlpack(model(y, y)), 4 * values((2, 3)))

    def test_capsules(self) -> None:
        model = load(ADD)
        x = values((2, 3))
        for version in (None, (1, 0)):
            capsule = x.__dlpack__(max_version=version)
            for _ in range(2):  # it is not consumed
                numpy.testing.assert_array_equal(numpy.from_dlpack(model(capsule, x)), x + x)
        for version in (None, (1, 0)):  # one that nobody consumes frees its memory
            model(capsule, x).__dlpack__(max_version=version)

    def test_outputs_outlive_the_model(self) -> None:
        model = load("(float[n] x) => (float[n] y, float[n] z) { y = Relu(x)  z = Neg(x) }")
        x = values((1000,))
        arrays = [model(x), [numpy.from_dlpack(t) for t in model(Dlpack(x))]]
        del model, x
        gc.collect()
        for y, z in arrays:
            numpy.testing.assert_array_equal(y, values((1000,)))
            numpy.testing.assert_array_equal(z, -values((1000,)))

    def test_read_only_and_kept_input(self) -> None:
        x = values((2, 2))
        x.flags.writeable = False
        numpy.testing.assert_array_equal(load(ADD)(x, x), x + x)

    def test_bfloat16_without_ml_dtypes(self) -> None:
        path = save("(float[n] x) => (bfloat16[n] y) { y = Cast<to = 16>(x) }")
        code = (
            "import sys; sys.modules['ml_dtypes'] = None\n"
            "import numpy, tessera\n"
            f"y = tessera.load({str(path)!r}, 'cpu')(numpy.ones(3, numpy.float32))\n"
            "print(type(y).__name__, y.dtype, y.shape)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
        self.assertEqual(done.stdout.strip(), "Tensor bfloat16 (3,)", done.stderr)


class Refused:
    """No array."""


class Tensor(ctypes.Structure):
    """DLPack's structure of a tensor, behind the version that some capsules begin with."""

    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("device_id", ctypes.c_int32), ("rank", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64),
                ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]  # fmt: skip


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", Tensor)]  # fmt: skip


class Capsule:
    """A capsule of float32[2, 3] whose fields are as a test says; `shape` and `strides` are sequences."""

    def __init__(self, shape: Any = (2, 3), strides: Any = None, version: int | None = None, **fields: Any) -> None:
        self._array = values((2, 3))
        self._sizes = [None if s is None else (ctypes.c_int64 * len(s))(*s) for s in (shape, strides)]
        at = [None if s is None else ctypes.addressof(s) for s in self._sizes]
        self._tensor = Tensor(self._array.ctypes.data, 1, 0, 2, 2, 32, 1, at[0], at[1])
        for name, value in fields.items():
            setattr(self._tensor, name, value)
        self._whole: Any = self._tensor if version is None else Versioned(version, 0, None, None, 0, self._tensor)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.capsule = new(ctypes.addressof(self._whole), b"dltensor" if version is None else b"dltensor_versioned", None)


class Speaks:
    """An object with DLPack's two methods."""

    def __init__(self, device: Any, capsule: Any) -> None:
        self._device, self._capsule = device, capsule

    def __dlpack_device__(self) -> Any:
        return self._device

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule


class Errors(unittest.TestCase):
    def check(self, kind: type, message: str, call: Callable[[], Any]) -> None:
        with self.subTest(message=message):
            with self.assertRaises(tessera.Error) as caught:
                call()
            self.assertIs(type(caught.exception), kind)
            self.assertEqual(str(caught.exception), message)

    def test_arguments(self) -> None:
        model = load("(float[n, 4] a, int64[n] b) => (float[n, 4] y) { c = Cast<to = 1>(b)  one = Constant<value_ints = [1]>()  d = Unsqueeze(c, one)  y = Add(a, d) }")
        a, b = numpy.zeros((3, 4), numpy.float32), numpy.zeros(3, numpy.int64)
        self.assertEqual(model(a, b).shape, (3, 4))
        kind, size = tessera.InputTypeError, tessera.InputError
        self.check(kind, "the model has 2 inputs ('a' float32[n, 4], 'b' int64[n]), and the number given is 1 [TES-3008 bad-input]", lambda: model(a))
        self.check(kind, "input 'b' was not given; the model's inputs are 'a', 'b' [TES-1003 missing-input]", lambda: model(a=a))
        self.check(kind, "the model has no input 'c'; its inputs are 'a', 'b' [TES-1002 unknown-input]", lambda: model(a, c=b))
        self.check(kind, "input 'a' is given twice, by position and by name [TES-1001 usage]", lambda: model(a, b, a=a))
        self.check(kind, "input 'a' has dtype float64; the model declares float32[n, 4] [TES-3008 bad-input]", lambda: model(a.astype("f8"), b))
        self.check(kind, "input 'b' has dtype int32; the model declares int64[n] [TES-3008 bad-input]", lambda: model(Dlpack(a), Dlpack(b.astype("i4"))))
        self.check(kind, "input 'b' has dtype object; the model declares int64[n] [TES-3008 bad-input]", lambda: model(a, b.astype(object)))
        for wrong in (Refused(), [1.0], None, 3, numpy.float32(3)):
            what = f"input 'a' is of type {type(wrong).__name__}; a NumPy array, a PyTorch tensor or an object with __dlpack__ is expected, float32[n, 4]"
            self.check(kind, f"{what} [TES-3008 bad-input]", lambda: model(wrong, b))
        self.check(size, "input 'a' has 1 dimension, [4]; the model declares float32[n, 4] [TES-3008 bad-input]", lambda: model(a[0], b))
        self.check(size, "input 'a' has 1 dimension, [4]; the model declares float32[n, 4] [TES-3008 bad-input]", lambda: model(Dlpack(a[0]), b))
        for x in (a[:, :3], Dlpack(a[:, :3])):
            what = "input 'a': dimension 1 must be 4, the model declares f32[n, 4] and f32[3, 3] was given"
            self.check(size, f"{what} [TES-3008 bad-input]", lambda: model(x, b))
        what = "input 'b': dimension 0 must be n, where n is 3 by another dimension, the model declares i64[n] and i64[2] was given"
        self.check(size, f"{what} [TES-3008 bad-input]", lambda: model(a, b[:2]))
        self.assertEqual(model(a, b).shape, (3, 4))  # errors leave the model as it was

    def test_capsules(self) -> None:
        model = load("(float[n, m] x) => (float[n, m] y) { y = Relu(x) }")
        for given in (Capsule(), Capsule(strides=(3, 1), version=1)):
            numpy.testing.assert_array_equal(numpy.from_dlpack(model(given.capsule)), values((2, 3)))
        empty = Capsule(shape=(2, 0), data=None)
        self.assertEqual(model(empty.capsule).shape, (2, 0))
        what, far = "input 'x' is a capsule of DLPack", "whose sizes, strides and offset reach beyond the address space"
        memory = "input 'x' has no memory: its address is null, as that of a tensor whose storage was freed; elements of float32[n, m] are expected there"
        for given, message in (
            (Capsule(rank=-1), f"{what} of rank -1; 0 to 64 dimensions are possible"),
            (Capsule(rank=10**9), f"{what} of rank 1000000000; 0 to 64 dimensions are possible"),
            (Capsule(shape=None), f"{what} of rank 2 without a shape: the pointer to it is null"),
            (Capsule(shape=(2, -3)), f"{what} whose dimension 1 is -3; a size is 0 or more"),
            (Capsule(shape=(1 << 40, 1 << 40)), f"{what} {far}"),
            (Capsule(shape=(1 << 40, 1 << 40), strides=(0, 0)), f"{what} {far}"),
            (Capsule(strides=(1 << 61, 1)), f"{what} {far}"),
            (Capsule(strides=(-(1 << 60), 1)), f"{what} {far}"),
            (Capsule(offset=(1 << 64) - 4), f"{what} {far}"),
            (Capsule(data=None), memory),
            (Capsule(data=None, offset=64), memory),
            (Capsule(version=2), "input 'x' is a capsule of version 2.0 of DLPack, whose layout is not known here; version 1 is expected"),
        ):  # fmt: skip
            for arg in (given.capsule, Speaks((1, 0), given.capsule)):
                self.check(tessera.InputError, f"{message} [TES-3008 bad-input]", lambda: model(arg))
        lies = Capsule(device=2, device_id=1)
        message = f"{what} for device (2, 1); __dlpack_device__ returned (1, 0) [TES-3008 bad-input]"
        self.check(tessera.InputError, message, lambda: model(Speaks((1, 0), lies.capsule)))

    def test_devices_that_are_none(self) -> None:
        model = load("(float[n, m] x) => (float[n, m] y) { y = Relu(x) }")
        for device, shown in (("cpu", "'cpu'"), (1, "1"), ((1,), "(1,)"), ((1, "0"), "(1, '0')"), (None, "None")):
            message = f"input 'x': __dlpack_device__ returned {shown}; a tuple of two integers is expected [TES-3008 bad-input]"
            self.check(tessera.InputTypeError, message, lambda: model(Speaks(device, None)))
        y = model(Dlpack(values((2, 3))))
        for name in ("max_version", "dl_device"):
            message = f"{name} is '1.0'; a tuple of two integers is expected [TES-3008 bad-input]"
            self.check(tessera.InputTypeError, message, lambda: y.__dlpack__(**{name: "1.0"}))

    def test_a_failing_array(self) -> None:
        model = load(ADD)
        x = values((2, 2))

        def fail() -> None:
            raise KeyError("mine")

        with self.assertRaisesRegex(KeyError, "mine"):
            model(x, Dlpack(x, fail))
        with self.assertRaisesRegex(KeyError, "mine"):
            model(Dlpack(x, fail), x)
        numpy.testing.assert_array_equal(model(x, x), x + x)

    def test_a_call_within_a_call(self) -> None:
        model = load(ADD)
        x, inner = values((2, 2)), []
        y = model(x, Dlpack(x, lambda: inner.append(model(x, x))))
        numpy.testing.assert_array_equal(y, x + x)
        numpy.testing.assert_array_equal(inner[0], x + x)

    def test_foreign_device(self) -> None:
        class Elsewhere(Dlpack):
            def __dlpack_device__(self) -> tuple[int, int]:
                return device

        x, model = values((2, 2)), load(ADD)
        device = (8, 0)
        what = "input 'b' lies on DLPack's device (8, 0); memory of the host (1, 0) and of NVIDIA's GPUs (2, n) is taken"
        self.check(tessera.UnsupportedError, f"{what} [TES-2003 unsupported-feature]", lambda: model(x, Elsewhere(x)))
        device = (2, 1)
        what = "input 'b' lies on 'cuda:1'; the model was loaded for the CPU. Load it with device=\"cuda\", or copy the input to the host"
        self.check(tessera.InputError, f"{what} [TES-3008 bad-input]", lambda: model(x, Elsewhere(x)))


if __name__ == "__main__":
    unittest.main()
