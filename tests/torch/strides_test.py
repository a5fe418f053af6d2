"""Results that are views of what a graph computes: strides, offsets' effects and sharing as eager's, and no memory that eager does not have."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any

import support
import torch
import torch.nn.functional as F
from torch import Tensor

r = torch.randn

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "slice": lambda x: (x + 1)[:, 1:3],
    "step": lambda x: (x + 1)[::2],
    "rows": lambda x: (x + 1)[1:],
    "select": lambda x: (x + 1).select(1, 0),
    "row": lambda x: (x + 1)[0],
    "diagonal": lambda x: (x + 1).diagonal(),
    "expand": lambda x: (x + 1).expand(5, *x.shape),
    "expand of a row": lambda x: (x.sum(0, keepdim=True) + 1).expand(7, -1),
    "transpose": lambda x: (x + 1).t(),
    "narrow of padded": lambda x: F.pad(x, (1, 2, 3, 0)).narrow(1, 1, x.shape[1]),
    "unsqueeze of a slice": lambda x: (x + 1)[:, ::2].unsqueeze(1),
    "slice of transposed": lambda x: (x + 1).t()[1:, ::2],
    "part of a split": lambda x: (x * 2).split(2, 1)[0],
    "unfold": lambda x: (x + 1).unfold(1, 2, 1),
    "as_strided": lambda x: (x + 1).as_strided((2, 2), (3, 1), 1),
    "detach": lambda x: (x + 1)[:, 1:].detach(),
    "bits": lambda x: (x.float() + 1).view(torch.int32)[:, 1:],
    "of a product": lambda x: (x.float() @ x.float().t())[:, :2],
    "of a reduction": lambda x: x.unsqueeze(-1).expand(-1, -1, 3).sum(-1)[:, :1],
    "of channels last": lambda x: F.conv2d(x.float()[None, None].contiguous(memory_format=torch.channels_last), torch.ones(4, 1, 1, 1)).contiguous(memory_format=torch.channels_last)[:, 1:3],
}  # fmt: skip


def _memory(t: Tensor) -> tuple[Any, ...]:
    return t.stride(), t.dtype, tuple(t.shape)


class AsEager(unittest.TestCase):
    def check(self, fn: Callable[..., Any], *args: Any, dynamic: bool = False) -> tuple[Any, Any]:
        with torch.no_grad():
            got, want = support.compiled(fn, dynamic=dynamic, strict=True)(*args), fn(*args)
        for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (got, want)), strict=True):
            self.assertEqual(_memory(a), _memory(b))
            support.assert_close(a, b)
        return got, want

    def test_views(self) -> None:
        share = support.Share()
        for name, fn in VIEWS.items():
            for dynamic in (False, True):
                for shape in ((6, 4), (3, 5)):
                    if not share.takes(name, dynamic, shape):
                        continue
                    with self.subTest(name, dynamic=dynamic, shape=shape):
                        self.check(fn, r(shape), dynamic=dynamic)

    def test_types(self) -> None:
        share = support.Share()
        for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8):
            for name in ("slice", "step", "select", "diagonal", "expand", "narrow of padded", "unfold"):
                if not share.takes(name, dtype):
                    continue
                with self.subTest(name, dtype=dtype):
                    self.check(VIEWS[name], torch.randint(0, 9, (6, 4)).to(dtype))
        self.check(lambda x: (x > 0)[:, ::2], r(6, 4))

    def test_sizes_0_and_1(self) -> None:
        share = support.Share()
        for shape in ((0, 4), (6, 0), (1, 4), (6, 1), (1, 1), (0, 0)):
            for name in ("slice", "step", "diagonal", "expand", "transpose", "slice of transposed", "detach"):
                for dynamic in (False, True):
                    if not share.takes(name, shape, dynamic):
                        continue
                    with self.subTest(name, shape=shape, dynamic=dynamic):
                        self.check(VIEWS[name], r(shape), dynamic=dynamic)

    def test_a_second_size(self) -> None:
        for name, fn in VIEWS.items():
            with self.subTest(name), torch.no_grad():
                fast = support.compiled(fn, dynamic=True)
                for shape in ((6, 4), (9, 5), (7, 12)):
                    x = r(shape)
                    self.assertEqual(_memory(fast(x)), _memory(fn(x)))
                    support.assert_close(fast(x), fn(x))

    def test_what_is_repeated_is_not_written(self) -> None:
        x = r(6, 4)
        got, _ = self.check(lambda x: (x + 1).expand(1000, 6, 4), x)
        self.assertEqual(got.untyped_storage().nbytes(), 96)
        got, _ = self.check(lambda x: (x + 1).sum().expand(1000), x)
        self.assertEqual(got.untyped_storage().nbytes(), 4)

    def test_results_share_memory_as_in_eager(self) -> None:
        def two(x: Tensor) -> tuple[Tensor, ...]:
            y = x + 1
            return y[:, 1:3], y.t(), (x * 2)[::2], y.expand(2, 6, 4)

        for dynamic in (False, True):
            for of in self.check(two, r(6, 4), dynamic=dynamic):
                self.assertEqual(len({t.untyped_storage().data_ptr() for t in of}), 2)

    def test_a_small_part_of_much_memory(self) -> None:
        for fn in (lambda x: (x + 1)[:, :1], lambda x: (x * 2)[::64, 3:5], lambda x: (x.exp())[:, -1]):
            got, want = self.check(fn, r(1024, 1024))
            self.assertEqual(got.untyped_storage().nbytes(), want.untyped_storage().nbytes())
            self.assertEqual(got.storage_offset(), want.storage_offset())

    def test_writes_to_results(self) -> None:
        for fn in (VIEWS["slice"], VIEWS["diagonal"], VIEWS["transpose"], lambda x: (x + 1)[:, :1]):
            x = r(1024, 1024)
            with torch.no_grad():
                got, want = support.compiled(fn)(x), fn(x)
            support.assert_close(got.add_(1), want.add_(1))

    def test_gradients(self) -> None:
        share = support.Share()
        for name, fn in VIEWS.items():
            if name in ("bits", "unfold", "of channels last"):  # integers; AOTAutograd makes others of two by itself
                continue
            for dynamic in (False, True):
                if not share.takes(name, dynamic):
                    continue
                with self.subTest(name, dynamic=dynamic):
                    x, z = r(6, 4).requires_grad_(), None
                    z = x.detach().clone().requires_grad_()
                    got, want = support.compiled(fn, dynamic=dynamic)(x), fn(z)
                    self.assertEqual(_memory(got), _memory(want))
                    weights = r(want.shape)
                    for y, t in ((got, x), (want, z)):
                        (y * weights).sum().backward() if y.requires_grad else None
                    support.assert_close(got, want)
                    if want.requires_grad:
                        assert x.grad is not None and z.grad is not None
                        support.assert_close(x.grad, z.grad)
                        self.assertEqual(x.grad.stride(), z.grad.stride())

    def test_gradients_of_results_that_are_saved(self) -> None:
        def fn(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
            y = torch.tanh(x * w)[:, 1:3]
            return y, torch.exp(y).expand(3, 6, 2)

        given = [(t.requires_grad_(), u.requires_grad_()) for t, u in [(r(6, 4), r(4))]]
        given.append(tuple(t.detach().clone().requires_grad_() for t in given[0]))
        fast = support.compiled(fn)
        for f, args in zip((fast, fn), given):
            sum(y.sin().sum() for y in f(*args)).backward()
        for a, b in zip(*given):
            support.assert_close(a.grad, b.grad)
        for a, b in zip(fast(*given[0]), fn(*given[0])):
            self.assertEqual(_memory(a), _memory(b))

    def test_parts_that_pytorch_runs(self) -> None:
        def fn(x: Tensor) -> tuple[Tensor, ...]:
            y = torch.fft.fft((x + 1)[:, 1:3]).real
            return (y * 2)[:, :1], y[::2], (x - 1)[:, ::2]

        with torch.no_grad():
            got, want = support.compiled(fn)(r(6, 4)), fn(r(6, 4))
        self.assertEqual([_memory(t) for t in got], [_memory(t) for t in want])


if __name__ == "__main__":
    unittest.main()
