"""If, Loop and Scan: one loaded model over many calls, against ONNX Runtime."""

from __future__ import annotations

import unittest

import numpy
import onnxruntime
from support import load, save

import tessera

I64, F32 = numpy.int64, numpy.float32


def x(*shape: int) -> numpy.ndarray:
    return ((numpy.arange(numpy.prod(shape, dtype=int)) * 37 % 11 - 5) / 7).reshape(shape).astype(F32)


def i(value: int) -> numpy.ndarray:
    return numpy.array(value, I64)


def f(value: float) -> numpy.ndarray:
    return numpy.array(value, F32)


def b(value: bool) -> numpy.ndarray:
    return numpy.array(value)


CELL = "p = MatMul(h, w) q = Add(p, e) g = Tanh(q) y = Softmax<axis = -1>(g)"

# Name: the model, and the inputs of its calls in turn.
CASES: dict[str, tuple[str, list[tuple[numpy.ndarray, ...]]]] = {
    "a recurrent cell that stops early": (
        "(int64 m, float[b, 8] h0, float[8, 8] w, float[b, 8] e, float most) => (float[b, 8] hn, float[t, b, 8] all) {"
        " hn, all = Loop(m, , h0) <body = g (int64 i, bool on, float[b, 8] h) => (bool c, float[b, 8] g, float[b, 8] y) {"
        f" {CELL} s = ReduceSum<keepdims = 0>(g) c = Less(s, most) }}> }}",
        [(i(n), x(2, 8), x(8, 8), x(2, 8) + F32(0.4), f(limit)) for n, limit in ((40, 3.0), (3, 1e9), (1, 0.0), (25, 1e9))],
    ),
    "a recogniser": (
        "(float[b, 8] h0, float[t, b, 8] z, float[8, 8] w) => (float[b, 8] hn, float[t, b, 8] all) {"
        " hn, all = Scan<num_scan_inputs = 1, body = g (float[b, 8] h, float[b, 8] e) => (float[b, 8] g, float[b, 8] y) {"
        f" {CELL} }}>(h0, z) }}",
        [(x(n, 8), x(t, n, 8), x(8, 8)) for t, n in ((7, 2), (1, 3), (30, 1))],
    ),
    "a scan of the second axis, backwards": (
        "(float[b, 8] h0, float[b, t, 8] z, float[8, 8] w) => (float[b, 8] hn, float[b, t, 8] all) {"
        " hn, all = Scan<num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1], scan_input_directions = [1], scan_output_directions = [1],"
        f" body = g (float[b, 8] h, float[b, 8] e) => (float[b, 8] g, float[b, 8] y) {{ {CELL} }}>(h0, z) }}",
        [(x(n, 8), x(n, t, 8), x(8, 8)) for t, n in ((7, 2), (1, 3), (12, 2))],
    ),
    "a branch in a loop, which reads what is around both": (
        "(int64 m, bool c0, float[n] a0, float[n] z, float k) => (float[n] a) {"
        " a = Loop(m, c0, a0) <body = g (int64 i, bool on, float[n] u) => (bool on2, float[n] v) {"
        " two = Constant<value_int = 2>() zero = Constant<value_int = 0>() r = Mod(i, two) even = Equal(r, zero) on2 = Identity(on)"
        " v = If(even) <then_branch = t () => (float[n] p) { p = Add(u, z) }, else_branch = e () => (float[n] q) { q = Mul(u, k) }> }> }",
        [(i(m), b(c), x(n), x(n) * 2, f(0.7)) for m, c, n in ((5, True, 3), (0, True, 3), (4, False, 2), (1, True, 1), (9, True, 5))],
    ),
    "a size that each iteration reads": (
        "(float[t, 2] z, float k) => (float[t, 2] all) {"
        " all = Scan<num_scan_inputs = 1, body = g (float[2] e) => (float[2] y) {"
        " zero = Constant<value_float = 0.0>() step = Constant<value_float = 0.5>() r = Range(zero, k, step) s = ReduceSum<keepdims = 0>(r) y = Add(e, s) }>(z) }",
        [(x(t, 2), f(k)) for t, k in ((3, 2.2), (1, 0.0), (40, 5.0), (33, -1.0))],
    ),
    "slices of a size that each iteration reads": (
        "(float[t, 2] z, float k) => (float[t, c] all) {"
        " all = Scan<num_scan_inputs = 1, body = g (float[2] e) => (float[c] y) {"
        " zero = Constant<value_float = 0.0>() step = Constant<value_float = 0.5>() y = Range(zero, k, step) }>(z) }",
        [(x(t, 2), f(k)) for t, k in ((3, 2.2), (1, 1.0), (40, 5.0))],
    ),
    "a value that grows": (
        "(int64 m, float[n] g0) => (float[q] gn, float[t] sums) {"
        " gn, sums = Loop(m, , g0) <body = g (int64 i, bool on, float[k] u) => (bool on2, float[l] v, float s) {"
        " axes = Constant<value_ints = [0]>() r = Cast<to = 1>(i) d = Unsqueeze(r, axes) v = Concat<axis = 0>(u, d)"
        " s = ReduceSum<keepdims = 0>(v) on2 = Identity(on) }> }",
        [(i(4), x(3)), (i(0), x(2)), (i(1), x(0)), (i(7), x(1))],
    ),
    "values that change places": (
        "(int64 m, float[4] a0, float[4] c0) => (float[4] an, float[4] cn) {"
        " an, cn = Loop(m, , a0, c0) <body = g (int64 i, bool on, float[4] p, float[4] q) => (bool on2, float[4] q, float[4] s)"
        " { s = Add(p, q) on2 = Identity(on) }> }",
        [(i(m), x(4), x(4) * 3) for m in (0, 1, 5, 6)],
    ),
    "a value that stays": (
        "(int64 m, float[n] a0, float[n] c0) => (float[n] an, float[n] cn) {"
        " an, cn = Loop(m, , a0, c0) <body = g (int64 i, bool on, float[n] p, float[n] q) => (bool on, float[n] p, float[n] s) { s = Add(p, q) }> }",
        [(i(m), x(4), x(4) * 3) for m in (0, 1, 4)],
    ),
    "branches of different ranks, and what reads them": (
        "(bool c, float[n, 4] a) => (float s, float[n] r, float[m] kept) {"
        " v = If(c) <then_branch = t () => (float[k] p) { axes = Constant<value_ints = [1]>() p = ReduceSum<keepdims = 0>(a, axes) },"
        " else_branch = e () => (float[l, 4] q) { q = Neg(a) }>"
        " one = Constant<value_float = 1.0>() w = Add(v, one) s = ReduceMax<keepdims = 0>(w) flat = Constant<value_ints = [-1]>()"
        " kept = Reshape(w, flat) last = Constant<value_ints = [1]>() r = ReduceSum<keepdims = 0>(a, last) }",
        [(b(c), x(n, 4)) for c, n in ((True, 3), (False, 3), (False, 1), (True, 5))],
    ),
    "a branch in a branch, of different ranks": (
        "(bool c, bool d, float[n, 4] a) => (float[m] y) {"
        " v = If(c) <then_branch = t () => (float[k, 4] p) { p = Neg(a) }, else_branch = e () => (float[j] q) {"
        " q = If(d) <then_branch = u () => (float[i, 4] f) { f = Abs(a) }, else_branch = w () => (float[o] g) {"
        " axes = Constant<value_ints = [0]>() g = ReduceMax<keepdims = 0>(a, axes) }> }>"
        " flat = Constant<value_ints = [-1]>() y = Reshape(v, flat) }",
        [(b(c), b(d), x(n, 4)) for c, d, n in ((True, True, 2), (False, True, 3), (False, False, 3), (True, False, 1))],
    ),
    "constant flags, and a branch that no call takes": (
        "(bool c, float[n, 4] a, float[3, 4] w) => (float[n, 4] y) {"
        " v = If(c) <then_branch = t () => (float[k, 4] p) { p = Neg(a) }, else_branch = e () => (float[j] q) {"
        " axes = Constant<value_ints = [0]>() q = ReduceMax<keepdims = 0>(a, axes) }>"
        " most = Constant<value = bool[4] {1, 0, 1, 1}>() u = Compress<axis = 1>(v, most) y = Gemm(u, w) }",
        [(b(True), x(n, 4), x(3, 4)) for n in (1, 3)],
    ),
    "a map over the items of a sequence": (
        "(float[a, 3] p, float[c, 3] q, float[3] z, float k) => (float[l, 3] y, int64[m] shapes) {"
        " items = SequenceConstruct(p, q, p) sums, sizes = SequenceMap(items, z) <body = g (float[h, 3] e, float[3] s)"
        " => (float[h, 3] o, int64[2] size) { w = Mul(e, s) o = Add(w, k) size = Shape(e) }>"
        " y = ConcatFromSequence<axis = 0>(sums) shapes = ConcatFromSequence<axis = 0>(sizes) }",
        [(x(2, 3), x(1, 3), x(3), f(0.5)), (x(1, 3), x(4, 3), x(3), f(-2.0))],
    ),
    "until nothing is larger than one": (
        "(float[n] v0) => (float[n] y) { one = Constant<value_float = 1.0>() m0 = ReduceMax<keepdims = 0>(v0) c0 = Greater(m0, one)"
        " v = Loop(, c0, v0) <body = g (int64 i, bool on, float[n] u) => (bool c, float[n] w) { two = Constant<value_float = 2.0>()"
        " w = Div(u, two) m = ReduceMax<keepdims = 0>(w) c = Greater(m, one) }> y = Neg(v) }",
        [(x(6) * 100,), (x(6) * F32(0.1),), (x(11) * F32(1e6),)],
    ),
    "a branch over sizes that may be equal": (
        "(float[m, n] z) => (float[n] y) { s = Shape(z) zero = Constant<value_int = 0>() one = Constant<value_int = 1>() d = Gather(s, zero)"
        " e = Equal(d, one) y = If(e) <then_branch = t () => (float[n] p) { a = Constant<value_ints = [0]>() p = Squeeze(z, a) },"
        " else_branch = e () => (float[n] q) { a = Constant<value_ints = [0]>() q = ReduceSum<keepdims = 0>(z, a) }> }",
        [(x(3, 4),), (x(1, 4),), (x(2, 2),), (x(1, 5),)],
    ),
    "a branch over which size is larger": (
        "(float[m, n] z) => (float[m, n] y) { s = Shape(z) zero = Constant<value_int = 0>() k = Constant<value_int = 3>() d = Gather(s, zero)"
        " e = Less(d, k) y = If(e) <then_branch = t () => (float[m, n] p) { p = Neg(z) }, else_branch = e () => (float[m, n] q) { q = Exp(z) }> }",
        [(x(3, 4),), (x(1, 4),), (x(2, 2),)],
    ),
    "branches of different sizes": (
        "(bool c, float[n] z) => (float[q] y) { r = If(c) <then_branch = t () => (float[k] p) { p = Concat<axis = 0>(z, z) },"
        " else_branch = e () => (float[l] q) { w = NonZero(z) a = Constant<value_ints = [-1]>() v = Reshape(w, a) q = Cast<to = 1>(v) }> y = Neg(r) }",
        [(b(True), x(3)), (b(False), numpy.array([0, 1, 0, 2], F32)), (b(False), x(1)), (b(True), x(5))],
    ),
    "a count that is a size": (
        "(float[m, n] z, float k) => (float[m, n] y, float[m, n] rows) { s = Shape(z) zero = Constant<value_int = 0>() t = Gather(s, zero)"
        " y, rows = Loop(t, , z) <body = g (int64 i, bool on, float[m, n] u) => (bool on, float[m, n] v, float[n] row) {"
        " r = Shape(z) e = Expand(k, r) v = Add(u, e) row = Gather<axis = 0>(z, i) }> }",
        [(x(3, 4), f(2)), (x(1, 2), f(1)), (x(40, 3), f(1))],
    ),
    "a loop of a few iterations": (
        "(float[n] a0) => (float[q] an, float[3, n] all) { m = Constant<value_int = 3>()"
        " an, all = Loop(m, , a0) <body = g (int64 i, bool on, float[k] u) => (bool on, float[l] v, float[n] w) {"
        " r = Cast<to = 1>(i) w = Mul(a0, r) v = Concat<axis = 0>(u, w) }> }",
        [(x(2),), (x(5),)],
    ),
}

class ControlFlow(unittest.TestCase):
    def check(self, model: tessera.Model, reference: onnxruntime.InferenceSession, calls: list[tuple[numpy.ndarray, ...]]) -> None:
        names = [v.name for v in reference.get_inputs()]
        for call in calls:
            expected = reference.run(None, dict(zip(names, call, strict=True)))
            got = model(*call)
            for g, e in zip(got if isinstance(got, (list, tuple)) else [got], expected, strict=True):
                self.assertEqual(numpy.asarray(g).shape, e.shape)
                numpy.testing.assert_allclose(numpy.asarray(g), e, rtol=1e-5, atol=1e-5)

    def test_beside_onnx_runtime(self) -> None:
        for name, (text, calls) in CASES.items():
            with self.subTest(name):
                self.check(load(text), onnxruntime.InferenceSession(save(text), providers=["CPUExecutionProvider"]), calls)

    def test_a_branch_that_cannot_be_built_is_an_error_when_it_is_taken(self) -> None:
        text = CASES["constant flags, and a branch that no call takes"][0]
        model = load(text)
        model(b(True), x(2, 4), x(3, 4))
        with self.assertRaisesRegex(tessera.Error, "other branch is taken"):
            model(b(False), x(2, 4), x(3, 4))


if __name__ == "__main__":
    unittest.main()
