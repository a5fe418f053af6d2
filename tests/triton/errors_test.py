"""Errors of kernels: each names the place in the user's source, what is wrong, and what to do."""

from __future__ import annotations

import unittest

from support import KernelTest, numpy, text_of, tl, triton

X = numpy.zeros(64, numpy.float32)
H = numpy.zeros(64, numpy.float16)
I = numpy.zeros(64, numpy.int32)  # noqa: E741


@triton.jit
def undefined(x, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(x + at, tl.load(x + att))


@triton.jit
def misspelled(x, N: tl.constexpr):
    tl.store(x + tl.arange(0, N), tl.zeroes((N,), tl.float32))


@triton.jit
def shapes(x, N: tl.constexpr):
    a = tl.arange(0, N)
    b = tl.arange(0, 2 * N)
    tl.store(x + a, a + b)


@triton.jit
def run_time_range(x, n):
    at = tl.arange(0, n)
    tl.store(x + at, 0.0)


@triton.jit
def small_float(x, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(x + at, tl.exp(tl.load(x + at)))


@triton.jit
def truth(x, N: tl.constexpr):
    t = tl.load(x + tl.arange(0, N))
    if t > 0:
        tl.store(x, 1.0)


@triton.jit
def carried(x, n, N: tl.constexpr):
    total = 0.0
    for i in range(n):
        total += tl.load(x + tl.arange(0, N))
    tl.store(x, tl.sum(total, 0))


@triton.jit
def one_branch(x, n):
    if n > 3:
        y = 1.0
    tl.store(x, y)


@triton.jit
def two_parameters(x, y, n, N: tl.constexpr):
    p = x
    if n > 3:
        p = y
    tl.store(p + tl.arange(0, N), 0.0)


@triton.jit
def atomic_result(x, N: tl.constexpr):
    old = tl.atomic_add(x, 1.0)
    tl.store(x + 1, old)


@triton.jit
def exchange(x, N: tl.constexpr):
    tl.atomic_cas(x, 0, 1)


@triton.jit
def endless(x, n):
    i = n
    while i > 0:
        i = i // 2
    tl.store(x, i)


@triton.jit
def broken(x, n):
    for i in range(n):
        break


@triton.jit
def returns_in_loop(x, n):
    for i in range(n):
        if i > 3:
            return
        tl.store(x + i, 0.0)


@triton.jit
def asserted(x, N: tl.constexpr):
    tl.static_assert(N > 100, "N is small")


@triton.jit
def helper(v):
    return v + nothing  # noqa: F821


@triton.jit
def calls(x, N: tl.constexpr):
    tl.store(x, helper(tl.load(x)))


@triton.jit
def assembly(x, N: tl.constexpr):
    t = tl.load(x + tl.arange(0, N))
    tl.store(x, tl.inline_asm_elementwise("bar.sync 0;", "=r,r", [t], dtype=tl.float32, is_pure=True, pack=1))


@triton.jit
def signs(x, y, N: tl.constexpr):
    a = tl.load(x + tl.arange(0, N))
    b = tl.load(y + tl.arange(0, N))
    tl.store(x + tl.arange(0, N), a // b)


@triton.jit
def products(x, y, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(x + at, tl.dot(tl.load(x + at), tl.load(y + at)))


@triton.jit
def permuted(x, N: tl.constexpr):
    t = tl.load(x + tl.arange(0, N))
    tl.store(x, tl.sum(tl.trans(t), 0))


@triton.jit
def foreign(x, N: tl.constexpr):
    tl.store(x, numpy.exp(tl.load(x)))


class Errors(KernelTest):
    def test_refusals(self) -> None:
        for kernel, arguments, says, at in (
            (undefined, (X, 8), "'att' is not defined", "att"),
            (misspelled, (X, 8), "did you mean 'zeros", "tl.zeroes"),
            (shapes, (X, 8), "do not broadcast: 8 and 16", "a + b"),
            (run_time_range, (X, 8), "constants", "tl.arange"),
            (small_float, (H, 8), "fp32 and fp64, not of fp16", "tl.exp"),
            (truth, (X, 8), "a condition is a scalar", "if t > 0"),
            (carried, (X, 5, 8), "'total' is fp32[] before the loop", "for i in"),
            (one_branch, (X, 5), "'y' is assigned in one branch only", "y)"),
            (returns_in_loop, (X, 5), "a return inside a loop", "return"),
            (asserted, (X, 8), "N is small", "tl.static_assert"),
            (broken, (X, 5), "'break' is not a part", "break"),
            (signs, (I, I.view(numpy.uint32), 8), "their signs differ", "a // b"),
            (products, (X, H, 8), "tl.dot of fp32 and fp16", "tl.dot"),
            (permuted, (X, 8), "exchanges two dimensions", "tl.trans"),
            (foreign, (X, 8), "is no function of triton.language", "numpy.exp"),
        ):
            with self.subTest(kernel.fn.__name__):
                kind = triton.UnsupportedKernelError if kernel is returns_in_loop else triton.CompilationError
                self.refused(kernel, *arguments, says=says, at=at, kind=kind)

    def test_lacking(self) -> None:
        """Constructs of Triton that the tile IR does not have are of a kind of their own, with advice."""
        for kernel, arguments, says, at in (
            (two_parameters, (X, I, 5, 8), "one of two parameters", "if n > 3"),
            (atomic_result, (X, 8), "without its result", "old"),
            (exchange, (I, 8), "atomic", "tl.atomic_cas"),
            (endless, (I, 5), "write it as 'for i in range", "while"),
            (assembly, (X, 8), "inline assembly", "tl.inline_asm_elementwise"),
        ):
            with self.subTest(kernel.fn.__name__):
                self.refused(kernel, *arguments, says=says, at=at, kind=triton.UnsupportedKernelError)

    def test_calls(self) -> None:
        """An error in a function names it, and a note names each call."""
        with self.assertRaises(triton.CompilationError) as raised:
            text_of(calls, X, 8)
        self.assertIn("'nothing' is not defined", raised.exception.message)
        self.assertEqual(len(raised.exception.notes), 1)
        self.assertIn("called at", raised.exception.notes[0])


if __name__ == "__main__":
    unittest.main()
