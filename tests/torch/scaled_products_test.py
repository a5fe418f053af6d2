"""Products of 8-bit floats with scales (torch._scaled_mm) in one program, against sums in f64."""

import unittest

from support import Counted, compiled

import torch

DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
KINDS = (torch.float8_e4m3fn, torch.float8_e5m2)


def numbers(shape, kind, seed, device):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(kind).to(device)


class ScaledProducts(unittest.TestCase):
    def check(self, f, m, n, k, rows, device, kinds=(KINDS[0], KINDS[0]), dtype=torch.bfloat16):
        a, b = numbers((m, k), kinds[0], 1, device), numbers((n, k), kinds[1], 2, device)
        sa = torch.rand((m, 1) if rows else (), generator=torch.Generator().manual_seed(3)).to(device) + 0.5
        sb = torch.rand((1, n) if rows else (), generator=torch.Generator().manual_seed(4)).to(device) + 0.5
        bias = numbers((n,), torch.bfloat16, 5, device)
        with Counted() as counted, torch.no_grad():
            got = compiled(f, strict=True)(a, b, sa, sb, bias)
        self.assertEqual(len(counted.programs), 1)
        self.assertEqual(got.dtype, dtype)
        want = a.double() @ b.double().t() * sa.double() * sb.double() + bias.double()
        if f is activated:
            want = torch.nn.functional.gelu(want)
        torch.testing.assert_close(got.double(), want, rtol=1e-2, atol=2e-2)

    def test_scales_of_tensors_and_of_rows(self):
        for device in DEVICES:
            for rows in (False, True):
                for m, n, k in ((17, 48, 32), (1, 16, 96), (128, 64, 144)):
                    with self.subTest(device=device, rows=rows, m=m):
                        self.check(product, m, n, k, rows, device)
                        self.check(activated, m, n, k, rows, device)

    def test_types(self):
        for device in DEVICES:
            self.check(product, 33, 32, 64, False, device, (KINDS[1], KINDS[0]))
            self.check(product, 33, 32, 64, False, device, (KINDS[0], KINDS[1]))


def product(a, b, sa, sb, bias):
    return torch._scaled_mm(a, b.t(), sa, sb, bias=bias, out_dtype=torch.bfloat16)


def activated(a, b, sa, sb, bias):
    return torch.nn.functional.gelu(torch._scaled_mm(a, b.t(), sa, sb, bias=bias, out_dtype=torch.bfloat16))


if __name__ == "__main__":
    unittest.main()
