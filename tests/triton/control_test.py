"""Control flow, functions, pointers, grids and launches of Triton's language."""

from __future__ import annotations

import unittest

from support import KernelTest, numpy, run, text_of, tl, triton, verify

SCALE = tl.constexpr(2)


@triton.jit
def guarded(x, out, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    if start >= n:
        return
    at = start + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * SCALE, mask=at < n)


@triton.jit
def sign(v):
    if v > 0:
        return 1
    elif v < 0:
        return -1
    return 0


@triton.jit
def split_sum(t, scale=1.0):
    return tl.sum(t, 0) * scale, tl.max(t, 0)


@triton.jit
def helpers(x, out, N: tl.constexpr, flag):
    t = tl.load(x + tl.arange(0, N))
    total, most = split_sum(t, scale=0.5)
    tl.store(out, total)
    tl.store(out + 1, most)
    tl.store(out + 2, sign(flag).to(tl.float32))
    y = most if flag > 0 else total
    tl.store(out + 3, y)


@triton.jit
def loops(x, out, n, STEP: tl.constexpr, BLOCK: tl.constexpr):
    p = x + tl.arange(0, BLOCK)
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    count = 0
    for start in range(0, n, BLOCK):
        total += tl.load(p, mask=start + tl.arange(0, BLOCK) < n, other=0.0)
        p += BLOCK
        at += BLOCK
        count += 1
    last = 0
    for i in range(n - 1, -1, -STEP):
        last += i
    unrolled = 0
    for i in tl.static_range(0, 6, 2):
        unrolled += i * count
    tl.store(out, tl.sum(total, 0))
    tl.store(out + 1, count.to(tl.float32))
    tl.store(out + 2, last.to(tl.float32))
    tl.store(out + 3, unrolled.to(tl.float32))
    tl.store(out + 4, tl.max(at, 0).to(tl.float32))


@triton.jit
def counting(out, n, BLOCK: tl.constexpr):
    i = 3
    total = 0
    while i < n:
        total += i
        i += BLOCK
    tl.store(out, total)
    tl.store(out + 1, i)


@triton.jit
def branches(out, a, b, constant: tl.constexpr):
    if a > b:
        big = a
        small = b
        if constant is not None:
            big += constant
    else:
        big = b
        small = a
    if a == b and big == small:
        small = -1
    if a > 0:
        if b > 0:
            small += 100
        else:
            big += 100
    tl.store(out, big)
    tl.store(out + 1, small)


@triton.jit
def pointers(x, y, out, flag, N: tl.constexpr):
    at = tl.arange(0, N)
    p = x + at
    if flag > 0:
        p = x + at + N
    q = tl.where(at < N // 2, y + at, y + 2 * at)
    tl.store(out + at, tl.load(p) + tl.load(q))


@triton.jit
def choices(a, b, c, out, n, N: tl.constexpr):
    i = tl.program_id(0)
    if i == 0:
        p = a
    elif i == 1:
        p = b + 1
    else:
        p = c
    at = tl.arange(0, N)
    q = tl.where(i == 2, p, tl.where(i == 0, b, a))
    tl.store(out + i * N + at, tl.load(p + at, mask=at < n, other=9.0) + tl.load(q + at))
    if c:
        tl.atomic_add(q + at, 1.0)


@triton.jit
def grid(out, W: tl.constexpr, H: tl.constexpr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x
    tl.store(out + at, x + 10 * y + 100 * z)


@triton.jit
def blocks(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_block_ptr(x, (M, N), (N, 1), (0, 0), (BM, BN), (1, 0))
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, tl.cdiv(N, BN)):
        total += tl.load(source, boundary_check=(0, 1), padding_option="zero")
        source = tl.advance(source, (0, BN))
    tl.store(out + tl.arange(0, BM), tl.sum(total, 1), mask=tl.arange(0, BM) < M)


@triton.jit
def descriptors(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN])
    target = tl.make_tensor_descriptor(out, [M, N], [N, 1], [BM, BN])
    for i in range(0, M, BM):
        for j in range(0, N, BN):
            target.store([i, j], source.load([i, j]) + 1)


@triton.jit
def described(source, target, BM: tl.constexpr, BN: tl.constexpr):
    target.store([0, 0], source.load([0, 0]) * 2)


@triton.jit
def apply(f: tl.constexpr, x):
    return f(x)


@triton.jit
def constants(x, out, kind: tl.constexpr, optional, N: tl.constexpr):
    at = tl.arange(0, N)
    t = tl.load(x + at)
    if optional is not None:
        t += tl.load(optional + at)
    if kind == "half":
        t = t.to(tl.float16).to(x.dtype.element_ty)
    elif kind != "none":
        t = apply(tl.exp, t)
    if t.dtype == tl.float32 and x.dtype.element_ty.is_fp32():
        t += 1
    tl.static_assert(N % 4 == 0, "N is a multiple of 4")
    tl.store(out + at, t)


@triton.autotune(configs=[triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((32, 1), (64, 4))], key=["n"], restore_value=["out"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned(x, out, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out + at, tl.load(x + at) + tl.load(out + at))
    else:
        tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(out + at, mask=at < n), mask=at < n)


@triton.autotune(configs=[triton.Config({"BLOCK": b}) for b in (8, 16, 32)], key=["n"])
@triton.jit
def asserted(out, n, LEAST: tl.constexpr, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK >= LEAST)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, at, mask=at < n)


def floats(*shape):  # type: ignore[no-untyped-def]
    return numpy.random.default_rng(1).standard_normal(shape).astype(numpy.float32)


class Control(KernelTest):
    def test_early_return(self) -> None:
        x, out = floats(100), numpy.zeros(100, numpy.float32)
        run(guarded, x, out, 100, BLOCK=32, grid=(8,))
        self.close(out, 2 * x, 0)

    def test_helpers(self) -> None:
        x = floats(16)
        for flag in (5, 0, -7):
            out = numpy.zeros(4, numpy.float32)
            run(helpers, x, out, 16, flag)
            total = x.sum() * numpy.float32(0.5)
            self.close(out, [total, x.max(), numpy.sign(flag), x.max() if flag > 0 else total], 1e-6)

    def test_loops(self) -> None:
        for n in (1, 31, 32, 33, 100):
            x, out = floats(n), numpy.zeros(5, numpy.float32)
            run(loops, x, out, n, 3, BLOCK=32)
            count = -(-n // 32)
            self.close(out, [x.sum(), count, sum(range(n - 1, -1, -3)), 6 * count, 31 + 32 * count], 1e-5, str(n))

    def test_sums_are_not_carried(self) -> None:
        """A pointer and a tile that move by the same in each iteration are computed from its number."""
        text = text_of(loops, floats(64), floats(5), 64, 3, BLOCK=32)
        head = next(line for line in text.splitlines() if " = for " in line)
        self.assertEqual(head.split("carry")[1].count("="), 2, head)  # total and count
        verify(text, ptx=True)

    def test_while(self) -> None:
        for n in (0, 3, 4, 100):
            out = numpy.zeros(2, numpy.int32)
            run(counting, out, n, BLOCK=7)
            steps = list(range(3, n, 7))
            self.close(out, [sum(steps), 3 + 7 * len(steps)], 0, str(n))

    def test_branches(self) -> None:
        for a, b in ((3, 2), (2, 3), (5, 5), (-4, -4), (7, -2)):
            for constant in (None, 4):
                out = numpy.zeros(2, numpy.int32)
                run(branches, out, a, b, constant)
                big, small = max(a, b), min(a, b)
                big += constant if constant and a > b else 0
                small = -1 if a == b == big == small else small
                small, big = (small + 100, big) if a > 0 and b > 0 else (small, big + 100 if a > 0 else big)
                self.close(out, [big, small], 0, f"{a} {b} {constant}")

    def test_pointers(self) -> None:
        x, y = floats(16), floats(16)
        for flag in (0, 1):
            out = numpy.zeros(8, numpy.float32)
            run(pointers, x, y, out, flag, 8)
            at = numpy.arange(8)
            self.close(out, x[at + 8 * flag] + y[numpy.where(at < 4, at, 2 * at)], 0)

    def test_choices(self) -> None:
        """Pointers into one of several parameters, by a scalar condition."""
        a, b, c, out = floats(9), floats(9) + 1, floats(9) + 2, numpy.zeros(24, numpy.float32)
        expected, sums = numpy.zeros((3, 8), numpy.float32), [a.copy(), b.copy(), c.copy()]
        for i, (p, q) in enumerate(((0, 1), (1, 0), (2, 2))):
            expected[i] = numpy.where(numpy.arange(8) < 5, sums[p][(i == 1) :][:8], 9) + sums[q][:8]
            sums[q][:8] += 1
        run(choices, a, b, c, out, 5, 8, grid=(3,))
        self.close(out, expected.reshape(-1), 1e-6)
        self.close(numpy.concatenate([a, b, c]), numpy.concatenate(sums), 1e-6)

    def test_grids(self) -> None:
        for sizes in ((1,), (3,), (3, 2), (1, 4), (2, 1, 3), (3, 4, 2), lambda meta: (meta["W"], meta["H"])):
            x, y, z = (*(sizes({"W": 2, "H": 5}) if callable(sizes) else sizes), 1, 1)[:3]
            out = numpy.zeros(x * y * z, numpy.int32)
            run(grid, out, W=2, H=5, grid=sizes)
            i, j, k = numpy.arange(x), numpy.arange(y)[:, None], numpy.arange(z)[:, None, None]
            self.close(out, (i + 10 * j + 100 * k).reshape(-1), 0, str(sizes))

    def test_blocks(self) -> None:
        for m, n in ((1, 1), (8, 16), (7, 33)):
            x, out = floats(m, n), numpy.zeros(m, numpy.float32)
            run(blocks, x, out, m, n, BM=8, BN=16)
            self.close(out, x.sum(1), 1e-5)
            moved = numpy.zeros_like(x)
            run(descriptors, x, moved, m, n, BM=4, BN=8)
            self.close(moved, x + 1, 0)

    def test_host_descriptors(self) -> None:
        from tessera.triton.tools.tensor_descriptor import TensorDescriptor

        x, out = floats(5, 8), numpy.zeros((5, 8), numpy.float32)
        run(described, TensorDescriptor.from_tensor(x, [8, 8]), TensorDescriptor.from_tensor(out, [8, 8]), 8, 8)
        self.close(out, 2 * x, 0)

    def test_constants(self) -> None:
        x = floats(8)
        for kind, of in (("half", lambda v: v.astype(numpy.float16).astype(numpy.float32)), ("none", lambda v: v), ("exp", numpy.exp)):
            for optional in (None, floats(8)):
                out = numpy.zeros(8, numpy.float32)
                run(constants, x, out, kind, optional, 8)
                self.close(out, of(x if optional is None else x + optional) + 1, 1e-6, kind)

    def test_specialisation(self) -> None:
        """1 is a constant; divisibility by 16 and alignment are in the text."""
        x = numpy.zeros(64, numpy.float32)
        at_16, aligned = text_of(guarded, x, x, 32, BLOCK=32), x.ctypes.data % 16 == 0
        self.assertIn("%n: i64 multiple=16", at_16)
        self.assertIn(f"align={16 if aligned else 4}", at_16)
        self.assertIn("align=4", text_of(guarded, x[1:], x[1:], 33, BLOCK=32))
        self.assertNotIn("%n", text_of(guarded, x, x, 1, BLOCK=32))
        self.assertNotIn("cast", text_of(guarded, x, x, 100, BLOCK=32, grid=(4,)))  # within 32 bits, nothing wraps
        self.assertIn("i32", text_of(guarded, x, x, 100, BLOCK=8192, grid=(2**19,)))

    def test_tuning(self) -> None:
        for n in (64, 100):
            x, out = floats(n), numpy.ones(n, numpy.float32)
            tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)].func.__self__  # the decorators keep the launch's form
            run(tuned, x, out, n, grid=lambda meta: (triton.cdiv(n, meta["BLOCK"]),))
            self.close(out, x + 1, 0)
            self.assertIn(tuned.best_config.kwargs["BLOCK"], (32, 64))

    def test_configurations_that_do_not_compile(self) -> None:
        out = numpy.zeros(40, numpy.int32)
        run(asserted, out, 40, 16, grid=lambda meta: (triton.cdiv(40, meta["BLOCK"]),))
        self.close(out, numpy.arange(40), 0)
        self.assertIn(asserted.best_config.kwargs["BLOCK"], (16, 32))
        with self.assertRaises(triton.CompilationError):
            run(asserted, out, 41, 64)

    def test_launch_again(self) -> None:
        """A compiled kernel with other grids and arguments of other kinds than it was compiled for."""
        x = floats(101)
        for given in (lambda n: (x, out, n, 32), lambda n: (x[1:], out, n)):
            out = numpy.zeros(100, numpy.float32)
            kernel = guarded.warmup(x, out, 32, BLOCK=32, grid=(1,))
            kernel[(4,)](*given(100))
            self.close(out, 2 * given(100)[0][:100], 0)

    def test_launch_errors(self) -> None:
        x = numpy.zeros(8, numpy.float32)
        for arguments, keywords, says in (((x, x), {}, "missing a required argument: 'n'"), ((x, x, 8), {"BLOK": 8}, "unexpected keyword argument 'BLOK'"), ((x, x, 8), {"BLOCK": 8, "num_warp": 4}, "num_warp")):
            with self.assertRaises(triton.CompilationError) as raised:
                text_of(guarded, *arguments, **keywords)
            self.assertIn(says, str(raised.exception))
        with self.assertRaisesRegex(triton.CompilationError, "complex64"):
            text_of(guarded, x.astype(numpy.complex64), x, 8, BLOCK=8)
        with self.assertRaisesRegex(triton.CompilationError, "launch it with"):
            guarded(x, x, 8, 8)


if __name__ == "__main__":
    unittest.main()
