"""The meaning of torch.compile(backend="tessera"): results, effects, aliasing, strides, gradients and state as
eager's.

    python tests/torch/backend_test.py [Class[.test] ...]
"""

from __future__ import annotations

import copy
import threading
import unittest
from collections.abc import Callable
from typing import Any

import support
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_flatten, tree_map


# ---- calls, and what is seen of them


def cloned(args: Any) -> Any:
    """Copies of tensors that alias as the originals do: views of one storage stay so."""
    memo: dict[int, Any] = {}
    return tree_map(lambda a: copy.deepcopy(a, memo) if isinstance(a, torch.Tensor) and a.is_leaf else a, args)


def storage(t: torch.Tensor) -> int:
    return t.untyped_storage().data_ptr() if t.numel() else 0


def observed(fn: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    """Results, inputs afterwards, and which of them share memory."""
    result = fn(*args)
    outputs, spec = tree_flatten(result)
    inputs = [a for a in tree_flatten(args)[0] if isinstance(a, torch.Tensor)]
    tensors = [o for o in outputs if isinstance(o, torch.Tensor)]
    every = [*inputs, *tensors]
    return {
        "structure": str(spec),
        "kinds": [type(o).__name__ for o in outputs],
        "results": [o.detach().clone() if isinstance(o, torch.Tensor) else o for o in outputs],
        "strides": [(t.stride(), t.dtype, t.is_inference()) for t in tensors],
        "requires_grad": [t.requires_grad for t in tensors],
        "inputs": [t.detach().clone() for t in inputs],
        "shares": [[i for i, other in enumerate(every) if t.numel() and storage(other) == storage(t)] for t in tensors],
        "same": [[i for i, other in enumerate(every) if t is other] for t in tensors],
    }


class Custom:
    """Operators that no library but PyTorch's can have."""

    @staticmethod
    @torch.library.custom_op("tessera_test::cube", mutates_args=())
    def cube(x: torch.Tensor) -> torch.Tensor:
        return x**3

    @staticmethod
    @torch.library.custom_op("tessera_test::fill", mutates_args={"x"})
    def fill(x: torch.Tensor, value: float) -> None:
        x.fill_(value)


    @staticmethod
    @torch.library.custom_op("tessera_test::strides", mutates_args=())
    def strides(x: torch.Tensor) -> torch.Tensor:
        return torch.tensor(x.stride())


Custom.cube.register_fake(torch.empty_like)
Custom.strides.register_fake(lambda x: torch.empty(x.dim(), dtype=torch.int64))


def r(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes))).to(dtype)


def add_in_place(x):
    x.add_(1)
    return x * 2


def mutate_a_view(x):
    x[1:].mul_(2)
    return x.sum()


def mutate_an_alias(x, y):
    x.add_(1)
    return x + y


def mutate_only(x):
    x.copy_(x.sin())


def mutate_the_shape(x):
    x.t_()
    return x * 2


def views_of_a_result(x):
    y = x + 1
    return y, y.t(), y[0], y.reshape(-1)


def views_of_an_input(x):
    return x[1:], x.t(), x.unfold(0, 2, 1), (x * 2).sum()


def same_twice(x):
    y = x.exp()
    return y, y, x, x


def odd_outputs(x):
    return {"none": None, "int": x.shape[0] * 2, "float": 1.5, "list": [x + 1, (x * 2, True)]}


def channels_last(x):
    return F.conv2d(x.to(memory_format=torch.channels_last), torch.ones(4, 3, 3, 3) / 9).relu()


def scatter_in_place(cache, at, x):
    cache.index_copy_(0, at, x)
    return cache[: x.shape[0]] * 2


def detached(x):
    y = x.sin()
    return y, y.detach() * 2


def grad_modes(x):
    with torch.no_grad():
        a = x * 2
    with torch.enable_grad():
        b = x * 3
    return a, b


def autocast(x, w):
    with torch.autocast("cpu", torch.bfloat16):
        y = F.linear(x, w)
    return y, (x @ w.t()).softmax(-1)


def conditional(x):
    return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() - 1, (x * 2,)) * 2


def checkpointed(x):
    return torch.utils.checkpoint.checkpoint(lambda v: (v.sin() * 2).exp().sum(), x, use_reentrant=False)


def odd_offset(x):
    return x[3:10].view(7).exp() + x[1]


def fft(x):
    return torch.fft.fft(x * 2).abs() + 1


def complex_numbers(x):
    return torch.view_as_real(torch.view_as_complex(x.reshape(4, 2).contiguous()) * 1j) + 1


def random_numbers(x):
    return (x + torch.rand_like(x)).exp() + torch.randn(8)


def dropout(x):
    return F.dropout(x.exp(), 0.5) * 2


def custom(x):
    return Custom.cube(x.sin() * 2).cos() + 1


def custom_mutation(x):
    y = x.sin() * 2
    Custom.fill(y, 3.0)
    return y.cos() + x


def strides_that_pytorch_sees(x):
    y = x.sin() * 2
    return Custom.strides(y[:, ::2]), Custom.strides(y.t()), Custom.strides(x[1:, 1:]), y.exp().sum()


def nonzero(x):
    return torch.nonzero(x > 0) * 2


def masked(x):
    return x[x > 0].exp()


def item(x, n):
    return x * 2 + n.item()


def in_a_list(xs, named):
    return [x + named["scale"] for x in xs]


def every_dtype(*xs):
    return [x + x for x in xs]


SAME = [  # function, arguments, options of torch.compile, operators left to PyTorch
    (add_in_place, lambda: (r(4, 3),), {}, 0),
    (mutate_a_view, lambda: (r(4, 3),), {}, 0),
    (mutate_only, lambda: (r(4, 3),), {}, 0),
    (mutate_the_shape, lambda: (r(4, 3),), {}, 0),
    (mutate_an_alias, lambda: (lambda b: (b[2:], b[:-2]))(r(9)), {}, 0),
    (mutate_an_alias, lambda: (lambda b: (b, b))(r(9)), {}, 0),
    (scatter_in_place, lambda: (r(8, 3), torch.tensor([5, 1]), r(2, 3)), {}, 0),
    (views_of_a_result, lambda: (r(4, 3),), {}, 0),
    (views_of_an_input, lambda: (r(4, 3),), {}, 0),
    (same_twice, lambda: (r(4, 3),), {}, 0),
    (lambda x: x, lambda: (r(4, 3),), {}, 0),
    (lambda x: x.view(-1), lambda: (r(4, 3),), {}, 0),
    (lambda x: torch.ones(3), lambda: (r(4, 3),), {}, 0),
    (odd_outputs, lambda: (r(4, 3),), {}, 0),
    (odd_outputs, lambda: (r(4, 3),), {"dynamic": True}, 0),
    (channels_last, lambda: (r(2, 3, 8, 8),), {}, 0),
    (channels_last, lambda: (r(2, 3, 8, 8).to(memory_format=torch.channels_last),), {"dynamic": True}, 0),
    (lambda x: x.relu() + 1, lambda: (r(2, 3, 8, 8).to(memory_format=torch.channels_last),), {}, 0),
    (lambda x: x.exp() + 1, lambda: (r(4, 3).t(),), {}, 0),
    (lambda x: x.exp() + 1, lambda: (r(4, 6)[:, ::2],), {}, 0),
    (lambda x: x.exp() + 1, lambda: (r(4, 1).expand(4, 3),), {}, 0),
    (lambda x: x.exp() + 1, lambda: (r(4, 6)[1:, 1:4],), {"dynamic": True}, 0),
    (odd_offset, lambda: (r(11),), {}, 0),
    (lambda x: x.exp() + 1, lambda: (torch.frombuffer(bytearray(b"\0" * 33), dtype=torch.float32, offset=1, count=8),), {}, 0),
    (lambda x: x.exp() + 1, lambda: (torch.tensor(2.0),), {}, 0),
    (lambda x: (x.exp(), x.sum(), x.amax(1)), lambda: (r(0, 3),), {}, 0),
    (lambda x: torch.cat([x, x.exp()]), lambda: (r(0, 3),), {"dynamic": True}, 0),
    (lambda x, n: (x + n, x.shape[0] * n), lambda: (r(4, 3), 7), {"dynamic": True}, 0),
    (lambda x, n: x[:n] * n, lambda: (r(9, 3), 7), {"dynamic": True}, 0),
    (lambda x, f: x * f, lambda: (r(4, 3), 2.5), {}, 0),
    (lambda x, f: x * f, lambda: (r(4, 3), 2.5), {"dynamic": True}, 0),
    (in_a_list, lambda: ([r(2), r(3)], {"scale": r(1)}), {}, 0),
    (every_dtype, lambda: tuple(torch.arange(4).to(d) for d in (
        torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float64)), {}, 0),
    (detached, lambda: (r(4, 3).requires_grad_(),), {}, 0),
    (grad_modes, lambda: (r(4, 3).requires_grad_(),), {}, 0),
    (checkpointed, lambda: (r(4, 3).requires_grad_(),), {}, 0),
    (nonzero, lambda: (r(4, 3),), {}, None),
    (masked, lambda: (r(4, 3),), {}, None),
    (item, lambda: (r(4, 3), torch.tensor(3)), {}, None),
    (conditional, lambda: (r(4, 3),), {}, None),
    (fft, lambda: (r(8),), {}, None),
    (complex_numbers, lambda: (r(8),), {}, None),
    (random_numbers, lambda: (r(8),), {}, 2),
    (dropout, lambda: (r(8),), {}, None),
    (custom, lambda: (r(8),), {}, 1),
    (strides_that_pytorch_sees, lambda: (r(4, 6),), {}, None),
    (custom_mutation, lambda: (r(8),), {}, None),
]  # fmt: skip


class Same(unittest.TestCase):
    """A call gives what eager gives: values, types, strides, effects, and what shares memory with what."""

    def test_table(self):
        for n, (fn, make, how, left) in enumerate(SAME):
            for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
                with self.subTest(case=n, fn=fn.__name__, mode=mode.__name__, **how):
                    self.check(fn, make, how, left, mode)

    def check(self, fn, make, how, left, mode):
        with mode():
            torch.manual_seed(1)
            want = observed(fn, make())
            with support.Counted() as c:
                torch.manual_seed(1)
                got = observed(support.compiled(fn, **how), make())
        if mode is torch.inference_mode:  # PyTorch's other backends give gradients to results made under enable_grad there, too
            got["requires_grad"] = want["requires_grad"]
        for key in ("structure", "kinds", "strides", "requires_grad", "shares", "same"):
            self.assertEqual(got[key], want[key], key)
        for key in ("results", "inputs"):
            support.assert_close(got[key], want[key])
        self.assertEqual(c.fallback_calls, 0)
        if left is not None:
            self.assertEqual(c.operators_left, left)


    def test_autocast(self):
        """Operands of a product in bf16 may keep the digits that they have before they are rounded."""
        x, w = r(4, 8), r(6, 8)
        with support.Counted() as c:
            (got, softmax), (want, _) = support.compiled(autocast)(x, w), autocast(x, w)
        self.assertEqual((got.dtype, c.operators_left), (torch.bfloat16, 0))
        rounding = 2.0**-8  # of an operand, of the other one, and of the result
        bound = 3 * rounding * (x.abs() @ w.abs().t())
        self.assertTrue(bool(((got.float() - want.float()).abs() <= bound).all()))
        support.assert_close(softmax, autocast(x, w)[1])


class Gradients(unittest.TestCase):
    """Gradients are eager's; what needs none gets none."""

    CASES = [
        lambda x, w: F.gelu(F.linear(x, w)),
        lambda x, w: F.relu(F.linear(x, w)) * F.hardtanh(x @ w.t()),
        lambda x, w: torch.cond(x.sum() > 0, lambda a: a.sin() + 1, lambda a: a.cos(), (x @ w.t(),)),
        lambda x, w: torch.utils.checkpoint.checkpoint(lambda a, b: F.layer_norm(a @ b.t(), (4,)).exp(), x, w, use_reentrant=False),
        lambda x, w: x.sin().sum() * Custom.cube(w.detach()) * w.exp(),
        lambda x, w: F.dropout(x @ w.t(), 0.3).cos() + F.embedding(torch.tensor([0, 2, 2]), w).sum(),
        lambda x, w: F.cross_entropy(x @ w.t(), torch.tensor([0, 3, 1])),
        lambda x, w: (x.detach() * 2 + x).sum() + w[1:].t().reshape(-1).cumsum(0)[-1],
    ]

    def test_gradients(self):
        for n, fn in enumerate(self.CASES):
            for needs in ((True, True), (True, False), (False, True)):
                with self.subTest(case=n, needs=needs):
                    self.assertGradients(fn, needs)

    def gradients(self, fn, needs):
        torch.manual_seed(3)
        args = [t.requires_grad_(n) for t, n in zip((r(3, 8), r(4, 8)), needs)]
        y = fn(*args)
        (y * torch.arange(1.0, y.numel() + 1).view(y.shape)).sum().backward()
        return y.detach(), [a.grad for a in args]

    def assertGradients(self, fn, needs):
        want = self.gradients(fn, needs)
        got = self.gradients(support.compiled(fn), needs)
        support.assert_close(got[0], want[0])
        for g, w in zip(got[1], want[1]):
            self.assertEqual(g is None, w is None)
            if w is not None:
                support.assert_close(g, w)

    def test_accumulates_and_runs_twice(self):
        x = r(4).requires_grad_()
        y = support.compiled(lambda x: (x * x).sum())(x)
        y.backward(retain_graph=True)
        y.backward()
        support.assert_close(x.grad, 4 * x.detach())

    def test_double_backward_is_pytorchs_error(self):
        x = r(4).requires_grad_()
        g = torch.autograd.grad(support.compiled(lambda x: (x**3).sum())(x), x, create_graph=True)[0]
        with self.assertRaisesRegex(RuntimeError, "double backward"):
            g.sum().backward()


class Buffer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return x * self.scale + self.count


class Modules(unittest.TestCase):
    """Modules keep their state: it is read and written where it lies."""

    def test_buffers_and_updates(self):
        module = Buffer()
        compiled = support.compiled(module)
        with torch.no_grad(), support.Counted() as c:
            for step in range(3):
                support.assert_close(compiled(torch.ones(3)), module.scale + step + 1)
                module.scale.mul_(2)
        self.assertEqual((float(module.count), c.compiles), (3.0, 1))

    def test_deepcopy(self):
        compiled = support.compiled(Buffer())
        other = copy.deepcopy(compiled)
        support.assert_close(compiled(torch.ones(3)), torch.full((3,), 2.0))
        support.assert_close(other(torch.ones(3)), torch.full((3,), 2.0))

    def test_freeze(self):
        module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).eval()
        x = r(3, 4)
        with torch.no_grad():
            want = module(x)
            support.assert_close(support.compiled(module, freeze=True)(x), want)
            module[0].weight.zero_()
            self.assertFalse(torch.equal(module(x), want))

    def test_threads(self):
        module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 8))
        compiled = support.compiled(module)
        wrong: list[Any] = []

        def call(seed: int) -> None:
            for n in range(50):
                x = r(seed + 2, 8)
                with torch.no_grad():
                    if not torch.allclose(compiled(x), module(x), atol=1e-5):
                        wrong.append((seed, n))

        threads = [threading.Thread(target=call, args=(i,)) for i in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main(verbosity=1)
