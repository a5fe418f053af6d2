"""Models whose sizes, or whose structure, values of inputs decide: one loaded model over many calls, against ONNX Runtime."""

from __future__ import annotations

import unittest

import numpy
import onnxruntime
from support import load, save

I64, F32 = numpy.int64, numpy.float32


def x(*shape: int) -> numpy.ndarray:
    return (numpy.arange(numpy.prod(shape, dtype=int)) % 7 - 2).reshape(shape).astype(F32)


def ints(*values: int) -> numpy.ndarray:
    return numpy.array(values, I64)


def i(value: int) -> numpy.ndarray:
    return numpy.array(value, I64)


def f(value: float) -> numpy.ndarray:
    return numpy.array(value, F32)


# Name: the model, and the inputs of its calls in turn.
CASES: dict[str, tuple[str, list[tuple[numpy.ndarray, ...]]]] = {
    "reshape": (
        "(float[a, b] x, int64[3] s) => (float[p, q, r] y) { z = Reshape(x, s) y = Add(z, z) }",
        [(x(4, 6), ints(2, 3, 4)), (x(4, 6), ints(8, 3, 1)), (x(2, 6), ints(-1, 3, 2)), (x(4, 6), ints(0, -1, 2)), (x(4, 6), ints(2, 3, 4))],
    ),
    "reshape computed": (
        "(float[a, b] x, int64[2] s) => (float[p, q] y) { one = Constant<value = int64[2] {1, 1}>() t = Add(s, one) y = Reshape(x, t) }",
        [(x(4, 6), ints(2, 7)), (x(4, 6), ints(11, 1)), (x(4, 6), ints(-2, 5)), (x(4, 6), ints(-1, 5))],
    ),
    "range": (
        "(int64 a, int64 b, int64 c) => (int64[n] y) { r = Range(a, b, c) y = Mul(r, r) }",
        [(i(0), i(5), i(1)), (i(9), i(0), i(-2)), (i(3), i(3), i(1)), (i(0), i(100), i(7)), (i(5), i(9), i(-1))],
    ),
    "range of floats": (
        "(float a, float b, float c) => (float[n] y) { r = Range(a, b, c) y = Neg(r) }",
        [(f(0), f(1), f(0.25)), (f(2), f(-1), f(-0.5)), (f(1), f(1), f(1)), (f(0), f(3.1), f(1))],
    ),
    "range computed": (
        "(float[n] x) => (int64[m] y) { m = ReduceMax<keepdims = 0>(x) k = Cast<to = 7>(m) zero = Constant<value_int = 0>()"
        " one = Constant<value_int = 1>() y = Range(zero, k, one) }",
        [(x(3),), (x(9),), (x(1),), (x(6),)],
    ),
    "slice": (
        "(float[a, b] x, int64[2] s, int64[2] e) => (float[p, q] y) { z = Slice(x, s, e) y = Exp(z) }",
        [(x(5, 6), ints(0, 0), ints(3, 3)), (x(5, 6), ints(1, -2), ints(-1, 2**63 - 1)), (x(5, 6), ints(4, 0), ints(2, -10)), (x(2, 2), ints(-9, 1), ints(9, 9))],
    ),
    "slice with axes and steps": (
        "(float[a, b] x, int64[1] s, int64[1] e, int64[1] d, int64[1] k) => (float[p, q] y) { y = Slice(x, s, e, d, k) }",
        [(x(5, 6), ints(0), ints(5), ints(0), ints(2)), (x(5, 6), ints(-1), ints(-9), ints(1), ints(-2)), (x(5, 6), ints(0), ints(4), ints(0), ints(2))],
    ),
    "pad": (
        "(float[a, b] x, int64[4] p) => (float[p, q] y) { y = Pad(x, p) }",
        [(x(2, 3), ints(0, 1, 2, 0)), (x(4, 5), ints(-1, 0, -1, -2)), (x(2, 3), ints(0, 0, 0, 0))],
    ),
    "expand": (
        "(float[a, 1] x, int64[2] s) => (float[p, q] y) { y = Expand(x, s) }",
        [(x(3, 1), ints(3, 4)), (x(3, 1), ints(1, 5)), (x(1, 1), ints(6, 2)), (x(3, 1), ints(3, 0))],
    ),
    "tile": (
        "(float[a, b] x, int64[2] r) => (float[p, q] y) { y = Tile(x, r) }",
        [(x(2, 3), ints(1, 2)), (x(2, 3), ints(3, 1)), (x(2, 3), ints(0, 2))],
    ),
    "constant of shape": (
        "(int64[2] s, float[n] x) => (float[p, q] y) { o = ConstantOfShape<value = float[1] {2.0}>(s) y = Mul(o, x) }",
        [(ints(2, 3), x(3)), (ints(5, 4), x(4)), (ints(0, 4), x(4)), (ints(3, 1), x(4))],
    ),
    "one hot": (
        "(int64[n] x, int64 d) => (float[n, d] y) { v = Constant<value_floats = [0.0, 1.0]>() y = OneHot(x, d, v) }",
        [(ints(1, 0, 3), i(4)), (ints(1, 0, -3), i(6)), (ints(1, 0), i(1))],
    ),
    "split": (
        "(float[n] x, int64[2] s) => (float[a] y, float[b] z) { y, z = Split<axis = 0>(x, s) }",
        [(x(6), ints(2, 4)), (x(6), ints(6, 0)), (x(9), ints(4, 5))],
    ),
    "reduce": (
        "(float[a, b, c] x, int64[1] axes) => (float[p, q] y) { y = ReduceSum<keepdims = 0>(x, axes) }",
        [(x(2, 3, 4), ints(0)), (x(2, 3, 4), ints(-1)), (x(2, 3, 4), ints(1)), (x(5, 3, 4), ints(0)), (x(2, 3, 4), ints(2))],
    ),
    "reduce computed": (
        "(float[a, b, c] x, int64[1] axes) => (float[p, q] y) { one = Constant<value_ints = [1]>() t = Sub(axes, one)"
        " y = ReduceMax<keepdims = 0>(x, t) }",
        [(x(2, 3, 4), ints(1)), (x(2, 3, 4), ints(3)), (x(2, 3, 4), ints(2)), (x(2, 3, 4), ints(0))],
    ),
    "reduce over an axis that a float decides": (
        "(float[a, b, c] x, float[1] f) => (float[p, q] y) { t = Cast<to = 7>(f) y = ReduceMax<keepdims = 0>(x, t) }",
        [(x(2, 3, 4), numpy.array([1], F32)), (x(2, 3, 4), numpy.array([2], F32)), (x(2, 3, 4), numpy.array([0], F32))],
    ),
    "rank that a length decides": (
        "(float[n] x, int64[r] s) => (float y) { z = Reshape(x, s) y = ReduceSum<keepdims = 0>(z) }",
        [(x(24), ints(2, 3, 4)), (x(24), ints(24)), (x(24), ints(4, -1)), (x(24), ints(2, 3, 4))],
    ),
    "unsqueeze, squeeze": (
        "(float[a, b] x, int64[1] u, int64[1] s) => (float[p, q] y) { z = Unsqueeze(x, u) y = Squeeze(z, s) }",
        [(x(2, 3), ints(0), ints(0)), (x(2, 3), ints(2), ints(-1)), (x(1, 3), ints(2), ints(0))],
    ),
    "topk": (
        "(float[a, b] x, int64[1] k) => (float[a, n] v, int64[a, n] j) { v, j = TopK(x, k) }",
        [(x(3, 9), ints(2)), (x(3, 9), ints(9)), (x(4, 9), ints(1)), (x(3, 9), ints(0))],
    ),
    "resize": (
        "(float[a, b] x, int64[2] s) => (float[p, q] y)"
        ' { e = Constant<value = float[0] {}>() y = Resize<mode = "nearest">(x, e, e, s) }',
        [(x(2, 3), ints(4, 6)), (x(2, 3), ints(1, 2)), (x(4, 4), ints(3, 8))],
    ),
    "nonzero": (
        "(float[a, b] x) => (float[n] y) { k = NonZero(x) t = Transpose<perm = [1, 0]>(k) y = GatherND(x, t) }",
        [(x(3, 4),), (x(2, 2),), (numpy.zeros((2, 3), F32),), (x(5, 7),)],
    ),
    "sizes of data broadcast": (
        "(float[a, b] x, bool[a] m, int64[2] s) => (float[p, q] y) { z = Compress<axis = 0>(x, m) o = ConstantOfShape(s) y = Add(z, o) }",
        [
            (x(3, 4), numpy.array([1, 0, 1], bool), ints(2, 4)), (x(3, 4), numpy.array([1, 1, 1], bool), ints(1, 4)),
            (x(3, 4), numpy.array([0, 1, 0], bool), ints(5, 1)), (x(3, 4), numpy.array([1, 1, 0], bool), ints(2, 4)),
        ],
    ),
    "top of few": (
        "(float[a, b] x) => (float[a, n] v, int64[a, n] j) { k = Constant<value_ints = [3]>() v, j = TopK(x, k) }",
        [(x(2, 700),), (x(1, 3),), (x(3, 40),), (numpy.sort(x(2, 5000)),)],
    ),
    "unique rows": (
        "(float[a, b] x) => (float[n, b] y, int64[n] f, int64[a] i, int64[n] c) { y, f, i, c = Unique<axis = 0>(x) }",
        [(x(9, 2),), (x(30, 7),), (x(1, 1),), (x(5, 40),)],
    ),
    "unique columns as they come": (
        "(int64[a, b] x) => (int64[a, n] y, int64[n] f, int64[b] i, int64[n] c) { y, f, i, c = Unique<axis = 1, sorted = 0>(x) }",
        [(x(2, 9).astype(I64),), (x(7, 30).astype(I64),), (x(1, 50).astype(I64),)],
    ),
    "repeated targets": (
        '(float[a, b] x, int64[n, 1] i, float[n, b] u) => (float[a, b] y) { y = ScatterND<reduction = "add">(x, i, u) }',
        [(x(5, 4), ints(3, 0, 3, 3, 1).reshape(-1, 1), x(5, 4)), (x(2, 1), ints(*[1] * 90).reshape(-1, 1), x(90, 1))],
    ),
}  # fmt: skip


class ComputedSizes(unittest.TestCase):
    def test_every_call_is_right(self) -> None:
        for name, (text, calls) in CASES.items():
            with self.subTest(case=name):
                model, path = load(text), save(text)
                other = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
                names = [v.name for v in other.get_inputs()]
                for k, call in enumerate(calls):
                    inputs = dict(zip(names, call))
                    expected = other.run(None, inputs)
                    got = model(**inputs)
                    got = got if isinstance(got, tuple) else (got,)
                    for g, e in zip(got, expected, strict=True):
                        self.assertEqual((g.dtype, g.shape), (e.dtype, e.shape), f"call {k}")
                        numpy.testing.assert_allclose(g, e, rtol=1e-5, err_msg=f"call {k}")


if __name__ == "__main__":
    unittest.main()
