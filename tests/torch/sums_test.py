"""Sums of many elements: their error does not grow with the number."""

import itertools
import logging
import os
import unittest

import torch

import tessera  # noqa: F401

logging.getLogger("tessera").setLevel(logging.ERROR)

# Equal elements may all be rounded in one direction: 64 additions of each of three levels.
MOST = 4e-6
# A quarter of the seeds also means a quarter of the longest sums.
DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
LONGEST = 60_000_000 if int(os.environ.get("TESSERA_TEST_SEEDS", "100")) >= 100 else 15_000_000


def elements(kind, shape):
    n = int(torch.Size(shape).numel())
    if kind == "constant":
        return torch.full(shape, 0.37)
    if kind == "one sign":
        return (torch.rand(n, generator=torch.Generator().manual_seed(n)) + 0.5).reshape(shape)
    x = torch.full((n,), 0.37)
    x[::2] = -0.11
    return x.reshape(shape)


class Sums(unittest.TestCase):
    def check(self, f, shape, most, kinds=("constant", "one sign", "alternating"), dynamic=(False, True), devices=DEVICES):
        for kind, device in itertools.product(kinds, devices):
            x = elements(kind, shape).to(device)
            want = f(x.double())
            for d in dynamic:
                torch._dynamo.reset()
                got = torch.compile(f, backend="tessera", dynamic=d, options={"strict": True})(x)
                error = ((got.double() - want).norm() / want.norm()).item()
                self.assertLess(error, most, f"{kind} {shape} dynamic {d} {device}")

    def test_sums_of_all(self):
        for n in (1, 63, 4095, 4096, 4097, 65537, 1_000_001, LONGEST):
            self.check(lambda x: x.sum(), (n,), MOST)
        self.check(lambda x: x.sum(), (LONGEST + 3,), MOST, ("constant",), (False,))
        for n in (99_999_999, 100_000_000):  # which a GPU sums in no time
            self.check(lambda x: x.sum(), (n,), MOST, devices=DEVICES[1:])

    def test_means_and_norms(self):
        for f in (torch.mean, torch.linalg.vector_norm, lambda x: x.square().sum(), lambda x: x.abs().sum(), lambda x: x.logsumexp(0)):
            self.check(f, (4_000_001,), MOST, ("constant", "one sign"))

    def test_several_axes(self):
        self.check(lambda x: x.mean((1, 2)), (3, 1080, 1920), MOST)
        self.check(lambda x: x.sum((0, 2)), (400_000, 3, 16), MOST)
        self.check(lambda x: x.sum(0), (2_000_000, 5), MOST)
        self.check(lambda x: x.mean((0, 2, 3)), (64, 3, 129, 129), MOST)

    def test_variance(self):
        self.check(lambda x: x.var(), (LONGEST,), MOST, ("one sign",))
        self.check(lambda x: x.softmax(0), (LONGEST,), MOST, ("constant", "one sign"))
        self.check(lambda x: x.var((0, 2, 3)), (50, 31, 31, 129), MOST, ("one sign",))

    def test_running_sums(self):
        self.check(lambda x: x.cumsum(0), (4_000_001,), MOST, ("constant", "one sign"))
        self.check(lambda x: x.cumsum(0), (300_001, 9), MOST, ("constant", "one sign"))

    def test_infinities_and_nan_stay(self):
        f = torch.compile(lambda x: (x.sum(), x.cumsum(0)[-1]), backend="tessera", options={"strict": True})
        for value, device in itertools.product((float("inf"), float("-inf"), float("nan")), DEVICES):
            x = torch.ones(2_000_000, device=device)
            x[1_234_567] = value
            for got in f(x):
                self.assertTrue(got.isnan().item() if value != value else got.item() == value)


if __name__ == "__main__":
    unittest.main()
