"""PyTorch's own settings: what the backend reads of them, and that a change of them is seen."""

import logging
import unittest

import torch
from shards import Share

import tessera
from tessera import _settings
from tessera._options import Options

logging.getLogger("tessera").setLevel(logging.ERROR)


def compiled(f, **options):
    torch._dynamo.reset()
    return torch.compile(f, backend="tessera", options=options | {"strict": True})


class Settings(unittest.TestCase):
    def tf32(self, **options):
        return _settings.current(Options(**options), True).tf32

    def test_tf32_is_what_pytorch_says(self):
        self.assertEqual(self.tf32(), "conv")  # PyTorch's default
        cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
        before = cudnn.conv.fp32_precision, matmul.fp32_precision, torch.backends.fp32_precision
        try:
            for convolutions, products, name in (("ieee", "ieee", "off"), ("tf32", "ieee", "conv"), ("ieee", "tf32", "matmul"), ("tf32", "tf32", "all")):
                cudnn.conv.fp32_precision, matmul.fp32_precision = convolutions, products
                self.assertEqual(self.tf32(), name)
                self.assertEqual(self.tf32(tf32="conv"), "conv")  # the option goes first
            cudnn.conv.fp32_precision = matmul.fp32_precision = "none"
            torch.backends.fp32_precision = "tf32"
            self.assertEqual(self.tf32(), "all")
        finally:
            cudnn.conv.fp32_precision, matmul.fp32_precision, torch.backends.fp32_precision = before

    def test_settings_of_older_names(self):
        for name in ("high", "medium"):
            before = torch.get_float32_matmul_precision()
            try:
                torch.set_float32_matmul_precision(name)
                self.assertEqual(self.tf32(), "all")
                torch.backends.cudnn.allow_tf32 = False
                self.assertEqual(self.tf32(), "matmul")
            finally:
                torch.set_float32_matmul_precision(before)
                torch.backends.cudnn.allow_tf32 = True
        self.assertEqual(self.tf32(), "conv")

    def test_further_options_reach_the_session(self):
        x = torch.tensor([-1.0, 2.0])
        self.assertEqual(compiled(torch.relu, tune_share=0.1, strict_rounding=True)(x).tolist(), [0, 2])
        with self.assertRaisesRegex(Exception, "a tune share replaces kernels between calls"):
            compiled(torch.relu, tune_share=0.1, deterministic=True)(x)

    def test_a_change_between_calls_is_seen(self):
        x = torch.randn(64, 8)
        f = compiled(lambda x, i: torch.zeros(4, 8).index_add(0, i, x))
        i = torch.randint(0, 4, (64,))
        with torch.no_grad():
            f(x, i)
            before = tessera.stats()["compiles"]
            f(x, i)
            self.assertEqual(tessera.stats()["compiles"], before)
            torch.use_deterministic_algorithms(True)
            try:
                y = f(x, i)
                self.assertGreater(tessera.stats()["compiles"], before)
                torch.testing.assert_close(y, torch.zeros(4, 8).index_add(0, i, x))
            finally:
                torch.use_deterministic_algorithms(False)

    def test_a_change_before_a_backward_pass_is_seen(self):
        threads = torch.get_num_threads()
        x = torch.randn(64, 8, requires_grad=True)
        f = compiled(lambda x: (x.sin() * x).sum())
        f(x).backward()
        y = f(x)
        before = tessera.stats()["compiles"]
        torch.set_num_threads(threads + 1)
        try:
            y.backward()  # no guard of Dynamo's is asked here
            self.assertEqual(tessera.stats()["compiles"], before + 1)
        finally:
            torch.set_num_threads(threads)
        torch.testing.assert_close(x.grad, 2 * (x.cos() * x + x.sin()).detach())

    def test_flushed_denormals(self):
        x = torch.full((1 << 20,), 1e-39)  # enough for all threads
        f = compiled(lambda x: x * 0.5)
        self.assertEqual(torch.count_nonzero(f(x)), x.numel())
        if not torch.set_flush_denormal(True):
            self.skipTest("this processor does not flush denormals")
        try:
            self.assertEqual(torch.count_nonzero(f(x)), 0)
        finally:
            torch.set_flush_denormal(False)
        self.assertEqual(torch.count_nonzero(f(x)), x.numel())


class Rounding(unittest.TestCase):
    def test_strict_rounding_has_the_bits_of_eager(self):
        generator = torch.Generator().manual_seed(0)
        for dtype in (torch.float16, torch.bfloat16):
            x, y = (torch.randn(4096, generator=generator).to(dtype) for _ in range(2))
            f = lambda x, y: (x * y + x - x, x * 0.3 + y / 3, (x - y) * (x + y))  # noqa: E731
            for a, b in zip(compiled(f, strict_rounding=True)(x, y), f(x, y), strict=True):
                self.assertTrue(torch.equal(a, b))

    def test_what_decides_is_rounded_as_in_eager(self):
        share = Share()
        generator = torch.Generator().manual_seed(0)
        for dtype in (torch.float16, torch.bfloat16):
            x, y = (torch.randn(4096, generator=generator).to(dtype) for _ in range(2))
            for index, f in enumerate((
                lambda x, y: (x * y + x - x) >= x * y,
                lambda x, y: torch.where(x * y == (x.float() * y.float()).to(x.dtype), x, y),
                lambda x, y: torch.floor(x * 8 + y),
                lambda x, y: (x * 100 * y).to(torch.int32),
                lambda x, y: torch.isinf(x * 60000 * y),
                lambda x, y: torch.remainder(x * 3, 0.25),
                lambda x, y: (x * y).reshape(64, 64).argmax(1),
                lambda x, y: torch.sign(x * 1e-5 * (y * 1e-4)),
            )):
                for dynamic in (False, True):
                    if not share.takes(dtype, index, dynamic):
                        continue
                    torch._dynamo.reset()
                    self.assertTrue(torch.equal(torch.compile(f, backend="tessera", dynamic=dynamic, options={"strict": True})(x, y), f(x, y)))

    def test_casts_of_the_model_round(self):
        x = torch.tensor([0.1, 70000.0, 1e-9, -2049.0, 4097.0])
        for dtype in (torch.float16, torch.bfloat16):
            for f in (
                lambda x: x.to(dtype).float(),  # noqa: B023
                lambda x: x.to(dtype).to(torch.float64) * 3,  # noqa: B023
                lambda x: (x.to(dtype) * 2).float() + 1,  # noqa: B023
                lambda x: x.clamp(-4000, 4000).to(dtype).to(torch.int32),  # noqa: B023
            ):
                self.assertTrue(torch.equal(compiled(f)(x), f(x)))
            a = torch.full((1, 1), 0.1)
            g = lambda a: (a.to(dtype) @ a.to(dtype)).float()  # noqa: B023, E731
            self.assertTrue(torch.equal(compiled(g)(a), g(a)))

    def test_gradients_of_extremes_meet_the_stored_extreme(self):
        for dtype in (torch.float16, torch.bfloat16):
            for pre in (torch.square, torch.nn.functional.silu, torch.exp):
                x = torch.randn(16, 5, 15, generator=torch.Generator().manual_seed(1)).to(dtype).requires_grad_()
                f = lambda x: pre(x).amax(1)  # noqa: B023, E731
                (want,) = torch.autograd.grad(f(x).sum(), x)
                (got,) = torch.autograd.grad(compiled(f)(x).sum(), x)
                self.assertTrue(torch.isfinite(got).all())
                torch.testing.assert_close(got, want, rtol=2e-2, atol=1e-3)

    def test_what_is_compared_with_its_extreme_is_computed_once(self):
        makers = (
            lambda x: x * 3.1 - x * x,
            lambda x: x * 3 / (x * x).sum(-1, keepdim=True),  # a kernel of rows multiplies by a reciprocal
            lambda x: (x * 3).softmax(-1),
        )
        share = Share()
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            x = torch.randn(7, 65, 129, generator=torch.Generator().manual_seed(1)).to(dtype)
            for make in makers:
                for axes in (-1, 1, (0, 2)):
                    if not share.takes(dtype, make, axes):
                        continue
                    for compare, extreme in ((torch.eq, torch.amax), (torch.ge, torch.amax), (torch.eq, torch.amin)):
                        f = lambda x: (lambda y: compare(y, extreme(y, axes, keepdim=True)).sum(axes))(make(x))  # noqa: B023, E731
                        self.assertGreater(compiled(f)(x).min().item(), 0)
                    g = lambda x: make(x).amax(axes).sum()  # noqa: B023, E731
                    (got,) = torch.autograd.grad(compiled(g)(x.requires_grad_()), x)
                    self.assertTrue(torch.isfinite(got).all())


if __name__ == "__main__":
    unittest.main()
