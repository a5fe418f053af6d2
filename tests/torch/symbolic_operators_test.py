"""Operators at symbolic sizes and at fixed ones: nothing is left to PyTorch, results and gradients are eager's.

    python tests/torch/symbolic_operators_test.py [Class[.test] ...]
"""

from __future__ import annotations

import unittest
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import support
import torch
import torch.nn.functional as F

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.uint8)
NUMBERS = (*FLOATS, *INTEGERS)


def values(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(sum(sizes))
    if dtype.is_floating_point:
        return torch.randn(sizes, generator=g).to(dtype)
    if dtype == torch.bool:
        return torch.rand(sizes, generator=g) > 0.5
    return torch.randint(0 if dtype == torch.uint8 else -60, 60, sizes, generator=g).to(dtype)


def tolerances(dtype: torch.dtype) -> dict[str, float]:
    return {"rtol": 1e-9, "atol": 1e-9} if dtype == torch.float64 else {"rtol": 1e-2, "atol": 1e-2} if dtype.itemsize == 2 else {"rtol": 2e-5, "atol": 2e-5}


def tensors(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else [t for r in result for t in tensors(r)]


SHARE = support.Share()  # of all tests of this file: which dtypes it takes differs from one operator to the next


def kind_of(fn: Callable[..., Any]) -> Hashable:
    """The place of a lambda and the function or the word that it binds; a function itself."""
    code = getattr(fn, "__code__", None)
    return (code.co_firstlineno, *(d for d in fn.__defaults__ or () if callable(d) or isinstance(d, str))) if code else fn


class Test(unittest.TestCase):
    def same(self, fn: Callable[..., Any], sizes: Sequence[tuple[int, ...]], dtypes: Sequence[torch.dtype] = FLOATS, gradients: bool = True,
             tensors_of: Callable[[torch.dtype, tuple[int, ...]], list[torch.Tensor]] | None = None, dynamic: Sequence[bool] = (True, False)) -> None:  # fmt: skip
        """sizes: of the calls, of one tensor each; or what `tensors_of` makes the tensors of a call of. Of a share of the cases at least
        one of each function is at symbolic sizes, where `dynamic` has them, and one of each test at fixed ones."""
        for symbolic in dynamic:
            for dtype in dtypes:
                if not SHARE.takes((self.id(), kind_of(fn)), (self.id(), symbolic), dtype):
                    continue
                compiled = support.compiled(fn, dynamic=symbolic)
                for size in sizes:
                    with self.subTest(dynamic=symbolic, dtype=dtype, size=size), support.Counted() as c:
                        args = tensors_of(dtype, size) if tensors_of else [values(dtype, *size)]
                        self.one_call(compiled, fn, args, gradients and dtype.is_floating_point)
                        self.assertEqual((c.operators_left, c.fallback_calls), (0, 0))

    def one_call(self, compiled: Callable[..., Any], fn: Callable[..., Any], args: list[torch.Tensor], gradients: bool) -> None:
        inputs = [t.detach().clone().requires_grad_(gradients) for t in args]
        args = [t.detach().clone().requires_grad_(gradients) for t in args]
        want, got = tensors(fn(*args)), tensors(compiled(*inputs))
        for g, w in zip(got, want, strict=True):
            if w.dtype.is_floating_point and w.itemsize == 1:
                g, w = g.float(), w.float()
            support.assert_close(g, w, **tolerances(w.dtype) if w.dtype.is_floating_point else {})
        if not gradients or not all(t.numel() for t in want):
            return
        of = [i for i, t in enumerate(want) if t.requires_grad]
        weights = [torch.rand(want[i].shape, generator=torch.Generator().manual_seed(1)).to(want[i].dtype) for i in of]
        for g, w in zip(torch.autograd.grad([got[i] for i in of], inputs, weights), torch.autograd.grad([want[i] for i in of], args, weights)):
            # Eager rounds sums of bfloat16 after each addition.
            support.assert_close(g, w, **({"rtol": 4e-2, "atol": 6e-2} if w.dtype == torch.bfloat16 else tolerances(w.dtype)))


class Bits(Test):
    """view(dtype)"""

    def test_same_width(self) -> None:
        self.same(lambda x: (x + 1).view(torch.int32) ^ 1, [(3, 8), (0, 8), (1, 1)], (torch.float32,), gradients=False)
        self.same(lambda x: ((x + 1).view(torch.int16) & 0x3FFF).view(torch.float16) * 2, [(3, 8)], (torch.bfloat16,), gradients=False)

    def test_narrower(self) -> None:
        self.same(lambda x: (x * 2).view(torch.uint8) & 15, [(3, 5), (0, 5), (1, 1), (7,)], (*FLOATS, torch.int64, torch.int8), gradients=False)
        self.same(lambda x: (x + 1).view(torch.float32).abs(), [(3, 5)], (torch.float64,), gradients=False)
        self.same(lambda x: (x + 1).view(torch.int16) >> 3, [(3, 5)], (torch.float32, torch.int64), gradients=False)

    def test_wider(self) -> None:
        self.same(lambda x: ((x + 1).view(torch.int16) & 0x3FFF).view(torch.float32) * 2, [(3, 6), (0, 6), (1, 2)], (torch.float16,), gradients=False)
        self.same(lambda x: (x + 1).view(torch.int64) + 1, [(3, 16), (8,)], (torch.uint8, torch.int32), gradients=False)

    def test_there_and_back(self) -> None:
        for dtype in (torch.uint8, torch.int16, torch.int32):
            self.same(lambda x, dtype=dtype: (x * 3).view(dtype).clone().view(x.dtype) * 2, [(3, 5)], (torch.float32, torch.float64), gradients=False)


class Windows(Test):
    def test_unfold(self) -> None:
        self.same(lambda x: (x * 2).unfold(1, 3, 2).sum(-1) + 1, [(3, 9), (2, 4), (1, 3)], NUMBERS)
        self.same(lambda x: (x * 2).unfold(-1, 4, 1).unfold(1, 2, 2).amax(-1) * 2, [(3, 6, 12)], (torch.float32,))

    def test_adaptive_means(self) -> None:
        for size in (3, (3, 2), (None, 2), (1, None), 1, 7, 20):
            self.same(lambda x, size=size: F.adaptive_avg_pool2d(x * 2, size) + 1, [(2, 3, 11, 13), (2, 2, 5, 4), (2, 3, 2, 64)], (torch.float32, torch.float16))
        self.same(lambda x: F.adaptive_avg_pool1d(x * 2, 5) + 1, [(2, 3, 12), (2, 3, 3)])
        self.same(lambda x: F.adaptive_avg_pool3d(x * 2, (2, 3, 4)) + 1, [(2, 3, 5, 6, 7)], (torch.float32,))
        self.same(lambda x: F.adaptive_avg_pool2d(x * 2, (3, 2)) + 1, [(3, 11, 13)], (torch.float32,))

    def test_adaptive_maxima(self) -> None:
        for size in (3, (3, 2), (None, 2), 7, 20):
            self.same(lambda x, size=size: F.adaptive_max_pool2d(x * 2, size) + 1, [(2, 3, 11, 13), (2, 2, 5, 4)], (torch.float32, torch.bfloat16))
        self.same(lambda x: F.adaptive_max_pool2d(x, (3, 4), return_indices=True), [(2, 3, 11, 13), (2, 3, 40, 41)], (torch.float32, torch.float64))
        self.same(lambda x: F.adaptive_max_pool1d(x * 2, 5) + 1, [(2, 3, 12)], (torch.float32,))
        self.same(lambda x: F.adaptive_max_pool3d(x * 2, (2, 3, 4)) + 1, [(2, 3, 5, 6, 7)], (torch.float32,))

    def test_adaptive_maxima_of_nan(self) -> None:
        """NaN is the maximum, the last of them its place."""

        def with_nan(dtype: torch.dtype, size: tuple[int, ...]) -> list[torch.Tensor]:
            x = values(dtype, *size)
            x[..., ::3] = float("nan")
            x[0] = -torch.inf
            return [x]

        self.same(lambda x: F.adaptive_max_pool2d(x, (3, 4), return_indices=True), [(2, 3, 11, 13), (2, 3, 4, 9)], (torch.float32,), gradients=False, tensors_of=with_nan)

    def test_sizes_of_another_tensor(self) -> None:
        both = lambda dtype, size: [values(dtype, 2, 3, 11, 13), values(dtype, 1, 1, *size)]  # noqa: E731
        pool = lambda x, y: F.adaptive_avg_pool2d(x * 2, y.shape[2:]) + y.sum()  # noqa: E731
        self.same(pool, [(5, 4), (3, 30), (11, 13)], (torch.float32,), tensors_of=both)
        for mode in ("bilinear", "bicubic"):
            resize = lambda x, y, mode=mode: F.interpolate(x * 2, size=y.shape[2:], mode=mode, antialias=True) + y.sum()  # noqa: E731
            # PyTorch does not trace the cubic one's gradient at symbolic sizes.
            self.same(resize, [(5, 4), (3, 30), (11, 13)], (torch.float32, torch.float64), mode == "bilinear", tensors_of=both)
            scale = lambda x, mode=mode: [F.interpolate(x, scale_factor=f, mode=mode, antialias=True) * 2 for f in (0.4, 0.7, 1.7)]  # noqa: E731
            self.same(scale, [(2, 3, 11, 13), (1, 2, 20, 5)], (torch.float32, torch.float64), mode == "bilinear")
            corners = lambda x, mode=mode: F.interpolate(x, size=(1, 20), mode=mode, antialias=True, align_corners=True) * 2  # noqa: E731
            self.same(corners, [(2, 3, 11, 13)], (torch.float32,), gradients=False)
            scaled_corners = lambda x, mode=mode: F.interpolate(x, scale_factor=0.7, mode=mode, antialias=True, align_corners=True) * 2  # noqa: E731
            self.same(scaled_corners, [(2, 3, 11, 13)], (torch.float32,), gradients=False)


class Running(Test):
    SIZES = ((3, 17), (2, 1), (1, 300), (0, 4), (4, 0), (33, 2))

    def test_extremes(self) -> None:
        for op in (torch.cummax, torch.cummin):
            self.same(lambda x, op=op: op(x, 0), self.SIZES, (torch.float32, torch.int64))
            self.same(lambda x, op=op: op(x, 1), self.SIZES[:4], (*NUMBERS, torch.bool))
            self.same(lambda x, op=op: op(x * 2, -1)[0] + 1, [(2, 3, 5)], (torch.float32,))

    def test_extremes_of_nan(self) -> None:
        def with_nan(dtype: torch.dtype, size: tuple[int, ...]) -> list[torch.Tensor]:
            x = values(dtype, *size)
            x[:, size[1] // 2 :: 3] = float("nan")
            x[0, :2] = torch.inf
            return [x]

        for op in (torch.cummax, torch.cummin):
            self.same(lambda x, op=op: op(x, 1), [(3, 17), (2, 100)], FLOATS, gradients=False, tensors_of=with_nan)

    def test_logcumsumexp(self) -> None:
        self.same(lambda x: torch.logcumsumexp(x * 3, 0) + 1, self.SIZES, (torch.float32,))
        self.same(lambda x: torch.logcumsumexp(x * 3, 1) + 1, self.SIZES[:3], FLOATS)
        far = lambda dtype, size: [values(dtype, *size) * 1000]  # noqa: E731
        self.same(lambda x: torch.logcumsumexp(x, 1), [(3, 17)], (torch.float32,), tensors_of=far, gradients=False)

    def test_mode(self) -> None:
        """The index may be that of any of the equal elements."""

        def mode(x: torch.Tensor) -> list[torch.Tensor]:
            x = (x * 2).round() if x.dtype.is_floating_point else x % 5
            value, index = torch.mode(x, 1)
            return [value, x.gather(1, index[:, None])[:, 0]]

        self.same(mode, [(7, 50), (3, 1)], (torch.float32, torch.int64), gradients=False)


class Lists(Test):
    """_foreach_*"""

    def test_values(self) -> None:
        for fn in (
            lambda a, b: torch._foreach_add(a, b, alpha=2), lambda a, b: torch._foreach_sub(a, 1.5), lambda a, b: torch._foreach_mul(a, b),
            lambda a, b: torch._foreach_div(a, [2.0, 3.0]), lambda a, b: torch._foreach_lerp(a, b, 0.3), lambda a, b: torch._foreach_addcmul(a, b, b, value=2),
            lambda a, b: torch._foreach_addcdiv(a, b, b, [1.0, 2.0]), lambda a, b: torch._foreach_norm(a), lambda a, b: torch._foreach_sqrt(torch._foreach_abs(a)),
            lambda a, b: torch._foreach_maximum(a, b), lambda a, b: torch._foreach_clamp_max(a, 0.5), lambda a, b: torch._foreach_neg(a),
        ):  # fmt: skip
            self.same(lambda x, fn=fn: fn([x, x[0] * 2], [x * 3, x[1]]), [(3, 5), (4, 2)], (torch.float32,))

    def test_in_place(self) -> None:
        def step(p: torch.Tensor, q: torch.Tensor) -> list[torch.Tensor]:
            state = [p.clone(), q * 2]
            torch._foreach_mul_(state, 0.9)
            torch._foreach_add_(state, [q, p], alpha=0.1)
            torch._foreach_add_(state, state)
            torch._foreach_copy_(state[1:], [state[0] + q])
            zeros = [q.clone()]
            torch._foreach_zero_(zeros)
            return [*state, *zeros]

        self.same(step, [(3, 5)], (torch.float32, torch.bfloat16), gradients=False, tensors_of=lambda dtype, size: [values(dtype, *size), values(dtype, *size)])

    def test_inputs(self) -> None:
        """Inputs that are changed."""
        for dynamic in (True, False):

            def step(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
                torch._foreach_add_([p, q], [q * 2, p * 3])
                return p + q

            want, got = [torch.ones(3, 4), torch.ones(3, 4) * 2], [torch.ones(3, 4), torch.ones(3, 4) * 2]
            with support.Counted() as c:
                support.assert_close(support.compiled(step, dynamic=dynamic)(*got), step(*want))
            support.assert_close(got, want)
            self.assertEqual(c.operators_left, 0)


class Float8(Test):
    def test_conversions(self) -> None:
        for small in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz):

            def with_limits(dtype: torch.dtype, size: tuple[int, ...]) -> list[torch.Tensor]:
                special = [0.0, -0.0, torch.inf, -torch.inf, torch.nan, 448, 464, 465, 1e5, -1e5, 240, 248, 2**-9, 2**-10, 2**-16, 2**-17]
                return [torch.cat([values(dtype, *size) * 100, torch.tensor(special, dtype=dtype)])]

            self.same(lambda x, small=small: x.to(small).to(x.dtype) * 2, [(40,), (1,)], FLOATS, False, with_limits)
            self.same(lambda x, small=small: ((x + 1).to(small), (x / 3).to(small).view(torch.uint8)), [(40,), (1,)], FLOATS, False)
            self.same(lambda x, small=small: x.to(torch.float32) * 2 + x.to(torch.bfloat16), [(40,)], (small,), False)


class Functions(Test):
    @staticmethod
    def wide(dtype: torch.dtype, size: tuple[int, ...]) -> list[torch.Tensor]:
        """Around the poles and zeros of the gamma function's logarithm, and far away."""
        special = torch.tensor([0.0, -0.0, 1, 2, 0.5, 1.5, 2.5, 8, 7.99, -0.5, -1.5, 1e-3, -1e-3, 1e4, torch.inf, torch.nan, torch.finfo(dtype).min], dtype=dtype)
        return [torch.cat([values(torch.float64, *size).to(dtype) * 4, values(torch.float64, *size).abs().to(dtype) * 30 + 0.02, special])]

    def test_gamma(self) -> None:
        for fn in (torch.lgamma, torch.digamma):
            self.same(lambda x, fn=fn: fn(x) * 2, [(100,), (7,)], FLOATS, gradients=False, tensors_of=self.wide)
            self.same(lambda x, fn=fn: fn(x.abs() * 5 + 0.1), [(3, 50)], (torch.float32, torch.float64))
        self.same(lambda x: torch.lgamma(x) + 1, [(100,)], (torch.int64, torch.uint8))
        self.same(lambda x: torch.mvlgamma(x.abs() * 5 + 2, 3) + 1, [(50,)], (torch.float32, torch.float64))

    def test_polygamma(self) -> None:
        for n in (0, 1, 2, 3, 6):
            self.same(lambda x, n=n: torch.polygamma(n, x.abs() * 5 + 0.1) / 10**n, [(50,)], (torch.float32, torch.float64), gradients=n < 6)
            self.same(lambda x, n=n: torch.polygamma(n, -x.abs() * 5 - 0.1), [(20,)], (torch.float64,), gradients=False)

    def test_divisors(self) -> None:
        pairs = lambda dtype, size: [values(dtype, *size) * 6, values(dtype, size[1]) * 4]  # noqa: E731
        self.same(lambda x, y: (torch.gcd(x, y) + 1, torch.gcd(x, x.new_zeros(())), torch.lcm(x, y)), [(7, 50), (1, 1)], (*INTEGERS, torch.int16), tensors_of=pairs)
        fibonacci = torch.tensor([1346269, 2178309, 7540113804746346429, 4660046610375530309])  # most remainders
        self.same(lambda x: torch.gcd(x[1:], x[:-1]), [()], (torch.int64,), tensors_of=lambda *_: [fibonacci])

    def test_next_after(self) -> None:
        def pairs(dtype: torch.dtype, size: tuple[int, ...]) -> list[torch.Tensor]:
            special = torch.tensor([0.0, -0.0, 1, -1, torch.inf, -torch.inf, torch.nan, torch.finfo(dtype).max], dtype=dtype)
            x = torch.cat([values(dtype, *size), special])
            return [x, x.flip(0)[:, None] * 2]

        self.same(torch.nextafter, [(9,)], (torch.float32, torch.float64, torch.bfloat16), gradients=False, tensors_of=pairs)


if __name__ == "__main__":
    unittest.main()
