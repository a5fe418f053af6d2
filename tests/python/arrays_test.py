"""tessera.load's function on arrays: what it takes, where memory lies, who owns it, and the errors."""

from __future__ import annotations

import gc
import subprocess
import sys
import unittest

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
        for y in (model(a, b), model(a, b=b), model(b=b, a=a), model(**{"a": a, "b": b})):
            numpy.testing.assert_array_equal(y, a - b)

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


class Errors(unittest.TestCase):
    def check(self, kind: type, message: str, call) -> None:
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
