"""Triton's language by feature and dtype: every text is verified, and its values are compared with NumPy's."""

from __future__ import annotations

import unittest

from support import KernelTest, numpy, run, text_of, tl, triton, verify

RANDOM = numpy.random.default_rng(0)
INTEGERS = [numpy.int8, numpy.int16, numpy.int32, numpy.int64, numpy.uint8, numpy.uint16, numpy.uint32, numpy.uint64]
FLOATS = [numpy.float16, numpy.float32, numpy.float64]


def random(shape, dtype):  # type: ignore[no-untyped-def]
    """Random numbers; integers of the whole range."""
    if numpy.issubdtype(dtype, numpy.integer):
        info = numpy.iinfo(dtype)
        return RANDOM.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    return RANDOM.standard_normal(shape).astype(dtype)


@triton.jit
def binary(x, y, out, n, op: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a = tl.load(x + at, mask=inside)
    b = tl.load(y + at, mask=inside)
    if op == "add":
        c = a + b
    elif op == "sub":
        c = a - b
    elif op == "mul":
        c = a * b
    elif op == "div":
        c = a / b
    elif op == "floordiv":
        c = a // b
    elif op == "mod":
        c = a % b
    elif op == "and":
        c = a & b
    elif op == "or":
        c = a | b
    elif op == "xor":
        c = a ^ b
    elif op == "max":
        c = tl.maximum(a, b)
    elif op == "min":
        c = tl.minimum(a, b)
    elif op == "lt":
        c = a < b
    elif op == "where":
        c = tl.where(a > b, a, b)
    else:
        tl.static_assert(False, op)
    tl.store(out + at, c, mask=inside)


@triton.jit
def unary(x, out, n, op: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n, other=1)
    tl.store(out + at, op(a), mask=at < n)


@triton.jit
def rows(x, out, stride, n, fold: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    a = tl.load(x + row * stride + at, mask=at < n, other=fold(0.0, True))
    tl.store(out + row, fold(a, False))


@triton.jit
def shapes(x, out, M: tl.constexpr, N: tl.constexpr, what: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    t = tl.load(x + at)
    if what == "trans":
        r = tl.trans(t)
    elif what == "sum then trans":
        r = tl.trans(t + tl.cumsum(t, 1) * 0)
    elif what == "reshape":
        r = tl.reshape(t, (N // 2, M * 2))
    elif what == "flip":
        r = tl.flip(t, 1)
    elif what == "sort":
        r = tl.sort(t)
    elif what == "descending":
        r = tl.sort(t, descending=True)
    elif what == "cumsum":
        r = tl.cumsum(t, 0)
    elif what == "reverse cumsum":
        r = tl.cumsum(t, 1, reverse=True)
    elif what == "join":
        a, b = tl.split(tl.reshape(t, (M, N // 2, 2)))
        r = tl.reshape(tl.join(b, a), (M, N))
    elif what == "interleave":
        a, b = tl.split(tl.reshape(t, (M, N // 2, 2)))
        r = tl.interleave(b, a)
    else:
        r = t
    flat = tl.arange(0, M * N)
    tl.store(out + flat, tl.ravel(r))


@triton.jit
def product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, transposed: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    if transposed:
        y = tl.trans(tl.load(b + n[:, None] * K + k[None, :]))
    else:
        y = tl.load(b + k[:, None] * N + n[None, :])
    tl.store(c + m[:, None] * N + n[None, :], tl.dot(x, y, input_precision="ieee"))


@triton.jit
def combine(a, b):
    return tl.where(a > b, a, b) + 0 * b


@triton.jit
def affine(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def folds(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out, tl.reduce(a, 0, combine))
    _, last = tl.associative_scan((a, b), 0, affine)
    tl.store(out + 1 + at, last)


@triton.jit
def philox(out, seed, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b, c, d = tl.philox(seed, at * 0, 0, 0, 0)
    tl.store(out + at * 4, a)
    tl.store(out + at * 4 + 1, b)
    tl.store(out + at * 4 + 2, c)
    tl.store(out + at * 4 + 3, d)


@triton.jit
def uniform(out, seed, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.rand(seed, at))
    tl.store(out + BLOCK + at, tl.randn(seed, at))


@triton.jit
def argument(x, value, index, N: tl.constexpr):
    t = tl.load(x + tl.arange(0, N))
    v, i = tl.max(t, 0, return_indices=True)
    tl.store(value, v)
    tl.store(index, i)
    tl.store(index + 1, tl.argmin(t, 0))


@triton.jit
def wraps(out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    big = n + at  # int32: wraps behind 2^31 - 1
    tl.store(out + at, (big < 0).to(tl.int32))
    tl.store(out + BLOCK + at, (big * 3) // 7)
    tl.store(out + 2 * BLOCK + at, (big + big) >> 1)


@triton.jit
def narrow(x, out, N: tl.constexpr, to: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at).to(to))


@triton.jit
def bits(x, out, N: tl.constexpr, to: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at).to(to, bitcast=True))


@triton.jit
def batched(a, b, c, B: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, B)[:, None, None] * N * N + tl.arange(0, N)[None, :, None] * N + tl.arange(0, N)[None, None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at), tl.load(c + at)))


SOFTPLUS = tl.constexpr("""{
    .reg .pred p;
    setp.gt.f32 p, $1, 20.;   // large ones as they are
    @p mov.f32 $0, $1;
    @!p mul.f32 $0, $1, 0f3FB8AA3B;
    @!p ex2.approx.ftz.f32 $0, $0;
    @!p add.f32 $0, $0, 1.0;
    @!p lg2.approx.ftz.f32 $0, $0;
    @!p mul.f32 $0, $0, 0.6931471805599453;
}""")


@triton.jit
def assembly(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.inline_asm_elementwise(SOFTPLUS, "=r,r", [tl.load(x + at)], dtype=tl.float32, is_pure=True, pack=1))


@triton.jit
def counts(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.load(x + at, mask=at < n, other=0), 1, mask=at < n)


class Language(KernelTest):
    def test_sizes(self) -> None:
        """Vector addition of sizes around a block."""
        for n in (0, 1, 255, 256, 257, 1000):
            x, y, out = random(n, numpy.float32), random(n, numpy.float32), numpy.zeros(n, numpy.float32)
            run(binary, x, y, out, n, "add", BLOCK=256, grid=(triton.cdiv(n, 256),))
            self.close(out, x + y, 0)

    def test_integers(self) -> None:
        """Integers wrap; // and % truncate as in C."""
        for dtype in INTEGERS:
            x, y = random(64, dtype), random(64, dtype)
            y[y == 0] = 3
            if numpy.issubdtype(dtype, numpy.signedinteger):
                x[:3], y[:3] = numpy.iinfo(dtype).min, [-1, 1, numpy.iinfo(dtype).max]
            wide = x.astype(object)
            quotient = numpy.array([abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) for a, b in zip(wide, y.astype(object))], dtype=object)
            remainder = wide - quotient * y.astype(object)
            expected = {"add": x + y, "sub": x - y, "mul": x * y, "and": x & y, "or": x | y, "xor": x ^ y, "max": numpy.maximum(x, y), "min": numpy.minimum(x, y),
                        "floordiv": (quotient & (2**64 - 1)).astype(numpy.uint64).astype(dtype), "mod": remainder.astype(dtype),
                        "where": numpy.maximum(x, y)}  # fmt: skip
            for op, result in expected.items():
                out = numpy.zeros(64, dtype)
                with numpy.errstate(over="ignore"):
                    run(binary, x, y, out, 64, op, BLOCK=64)
                self.close(out, result, 0, f"{op} {dtype}")

    def test_floats(self) -> None:
        """Arithmetic is rounded to its dtype; a maximum with NaN is the other one."""
        for dtype in FLOATS:
            x, y = random(64, dtype), random(64, dtype)
            x[0], y[1], x[2], y[2] = numpy.nan, numpy.nan, numpy.nan, numpy.nan
            with numpy.errstate(all="ignore"):
                expected = {"add": x + y, "sub": x - y, "mul": x * y, "max": numpy.fmax(x, y), "min": numpy.fmin(x, y), "where": numpy.where(x > y, x, y)}
            for op, result in expected.items():
                out = numpy.zeros(64, dtype)
                run(binary, x, y, out, 64, op, BLOCK=64)
                self.close(out, result, 0, f"{op} {dtype}")

    def test_division(self) -> None:
        """/ of integers is float32."""
        x, y, out = random(64, numpy.int16), numpy.full(64, 7, numpy.int16), numpy.zeros(64, numpy.float32)
        run(binary, x, y, out, 64, "div", BLOCK=64)
        self.close(out, x.astype(numpy.float32) / numpy.float32(7), 0)

    def test_promotion(self) -> None:
        """The dtype of two tensors, as their text shows."""
        cases = [(numpy.int8, numpy.int16, "i16"), (numpy.int32, numpy.uint32, "u32"), (numpy.int64, numpy.float16, "f16"), (numpy.float16, numpy.float32, "f32")]
        for a, b, ir in cases:
            text = text_of(binary, numpy.ones(8, a), numpy.ones(8, b), numpy.ones(8, numpy.float64), 8, "where", BLOCK=8)
            self.assertIn(f": tile<[8], {ir}>", text.split("select")[1].split("\n")[0])
            verify(text)

    def test_wrapping(self) -> None:
        """Sums of int32 wrap where it can be seen."""
        out = numpy.zeros(24, numpy.int32)
        n = 2**31 - 4
        with numpy.errstate(over="ignore"):
            big = (numpy.full(8, n, numpy.int32) + numpy.arange(8, dtype=numpy.int32)).astype(numpy.int32)
            third = numpy.trunc((big * numpy.int32(3)).astype(numpy.float64) / 7).astype(numpy.int32)
            expected = numpy.concatenate([big < 0, third, (big + big) >> 1])
        run(wraps, out, n, BLOCK=8)
        self.close(out, expected, 0)

    def test_functions(self) -> None:
        x = numpy.abs(random(100, numpy.float32)) + numpy.float32(0.1)
        for op, expected in [(tl.exp, numpy.exp), (tl.exp2, numpy.exp2), (tl.log, numpy.log), (tl.log2, numpy.log2), (tl.sqrt, numpy.sqrt), (tl.sin, numpy.sin), (tl.cos, numpy.cos), (tl.floor, numpy.floor), (tl.ceil, numpy.ceil), (tl.abs, numpy.abs), (tl.rsqrt, lambda v: 1 / numpy.sqrt(v)), (tl.sigmoid, lambda v: 1 / (1 + numpy.exp(-v)))]:  # fmt: skip
            out = numpy.zeros(100, numpy.float32)
            run(unary, x, out, 100, op, BLOCK=128)
            self.close(out, expected(x), 1e-6, str(op))

    def test_shapes(self) -> None:
        for m, n in ((4, 8), (16, 16), (2, 64), (2, 128)):
            x = random((m, n), numpy.float32)
            pairs = x.reshape(m, n // 2, 2)
            expected = {"trans": x.T, "sum then trans": x.T, "reshape": x, "flip": x[:, ::-1], "sort": numpy.sort(x, 1), "descending": -numpy.sort(-x, 1), "cumsum": numpy.cumsum(x, 0),
                        "reverse cumsum": numpy.cumsum(x[:, ::-1], 1)[:, ::-1], "join": pairs[:, :, ::-1], "interleave": pairs[:, :, ::-1]}  # fmt: skip
            for what, result in expected.items():
                out = numpy.zeros(m * n, numpy.float32)
                run(shapes, x, out, m, n, what)
                self.close(out, result.reshape(-1), 1e-6, f"{what} {m} {n}")

    def test_transposed_load(self) -> None:
        """A transposed load reads in the other order, without memory of the program."""
        x = numpy.zeros((16, 16), numpy.float16)
        text = text_of(product, x, x, numpy.zeros((16, 16), numpy.float32), 16, 16, 16, True)
        self.assertNotIn("scratch", text)
        verify(text, ptx=True)

    def test_products(self) -> None:
        for dtype, tolerance in ((numpy.float16, 1e-3), (numpy.float32, 1e-6), (numpy.float64, 1e-12), (numpy.int8, 0)):
            for transposed in (False, True):
                a, b = random((16, 32), dtype), random((32, 16), dtype)
                out = numpy.zeros((16, 16), numpy.int32 if dtype == numpy.int8 else numpy.float64 if dtype == numpy.float64 else numpy.float32)
                run(product, a, numpy.ascontiguousarray(b.T) if transposed else b, out, 16, 16, 32, transposed)
                wide = numpy.float64 if dtype != numpy.int8 else numpy.int32
                self.close(out, a.astype(wide) @ b.astype(wide), tolerance, str(dtype))

    def test_folds(self) -> None:
        """Reductions and scans by functions of the user; the scan's function does not commute."""
        for n in (1, 2, 64):
            x, y, out = random(n, numpy.float32), random(n, numpy.float32), numpy.zeros(n + 1, numpy.float32)
            state, expected = numpy.float64(0), [float(x.max())]
            for a, b in zip(x, y):
                state = state * a + b
                expected.append(state)
            run(folds, x, y, out, n)
            self.close(out, numpy.array(expected), 1e-5)

    def test_random(self) -> None:
        """The known answer of Philox 4x32-10 for counter 0 and key 0, and distributions."""
        out = numpy.zeros(32, numpy.uint32)
        run(philox, out, 0, BLOCK=8)
        self.close(out[:4], numpy.array([0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8], numpy.uint32), 0)
        out = numpy.zeros(2048, numpy.float32)
        run(uniform, out, 42, BLOCK=1024)
        self.close(numpy.array([out[:1024].mean(), out[1024:].std()]), [0.5, 1.0], 0.1)

    def test_arguments(self) -> None:
        """Ties go to the lowest index."""
        x = numpy.array([1, 5, -2, 5, -2, 0, 5, 1], numpy.float32)
        value, index = numpy.zeros(1, numpy.float32), numpy.zeros(2, numpy.int32)
        run(argument, x, value, index, 8)
        self.close(numpy.concatenate([value, index]), [5, 1, 2], 0)

    def test_casts(self) -> None:
        x = random(16, numpy.float32) * 100
        for dtype, to in ((numpy.int32, tl.int32), (numpy.int8, tl.int8), (numpy.float16, tl.float16), (numpy.float64, tl.float64)):
            out = numpy.zeros(16, dtype)
            clipped = numpy.clip(x, -128, 127) if dtype == numpy.int8 else x
            run(narrow, clipped.astype(numpy.float32), out, 16, to)
            self.close(out, clipped.astype(dtype), 0, str(to))
        integers = random(16, numpy.int64)
        for dtype, to in ((numpy.int32, tl.int32), (numpy.uint8, tl.uint8), (numpy.bool_, tl.int1)):
            out = numpy.zeros(16, dtype)
            run(narrow, integers, out, 16, to)
            self.close(out, integers.astype(dtype), 0, str(to))

    def test_bitcasts(self) -> None:
        x = random(16, numpy.float32)
        out = numpy.zeros(16, numpy.int32)
        run(bits, x, out, 16, tl.int32)
        self.close(out, x.view(numpy.int32), 0)
        halves = triton.reinterpret((x.view(numpy.uint32) >> 16).astype(numpy.uint16), tl.bfloat16)
        short = numpy.zeros(16, numpy.int16)
        run(bits, halves, short, 16, tl.int16)
        self.close(short, (x.view(numpy.uint32) >> 16).astype(numpy.uint16).view(numpy.int16), 0)

    def test_bits_of_halves(self) -> None:
        """All float16 numbers, NaN apart: their bits and back."""
        every = numpy.arange(2**16, dtype=numpy.uint16)
        numbers = every[~numpy.isnan(every.view(numpy.float16))]
        for start in range(0, len(numbers), 16384):
            part = numbers[start : start + 16384]
            part = part[: 1 << (len(part).bit_length() - 1)]
            halves, codes = numpy.zeros(len(part), numpy.float16), numpy.zeros(len(part), numpy.uint16)
            run(bits, part.view(numpy.float16), codes, len(part), tl.uint16)
            run(bits, part, halves, len(part), tl.float16)
            self.close(codes, part, 0)
            self.close(halves.view(numpy.uint16), part, 0)

    def test_batches(self) -> None:
        a, b, c = random((2, 16, 16), numpy.float32), random((2, 16, 16), numpy.float32), random((2, 16, 16), numpy.float32)
        expected = a @ b + c
        run(batched, a, b, c, 2, 16)
        self.close(c, expected, 1e-6)

    def test_assembly(self) -> None:
        x, out = random(64, numpy.float32) * 12, numpy.zeros(64, numpy.float32)
        run(assembly, x, out, 64)
        self.close(out, numpy.where(x > 20, x, numpy.log1p(numpy.exp(numpy.minimum(x, 20).astype(numpy.float64)))), 1e-5)

    def test_atomics(self) -> None:
        x, out = RANDOM.integers(0, 10, 100).astype(numpy.int32), numpy.zeros(10, numpy.int32)
        run(counts, x, out, 100, 10, BLOCK=32, grid=(4,))
        self.close(out, numpy.bincount(x, minlength=10), 0)


if __name__ == "__main__":
    unittest.main()
