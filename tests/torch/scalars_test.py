"""Single elements where rules differ from machine to machine: limits of integers, zeros, signs, NaN, numbers and indices beyond.

The right value is eager PyTorch's on a CPU; where eager mode raises an error, so must the compiled program.

    python tests/torch/scalars_test.py [Class[.test] ...]
"""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any

import support
import torch
import torch.nn.functional as F

INF, NAN = float("inf"), float("nan")
SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
INTEGERS = (*SIGNED, torch.uint8)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)

Function = Callable[..., Any]


def outcome(f: Function, *args: Any) -> Any:
    """The result, or the name of the error."""
    try:
        return f(*args)
    except Exception as e:
        return type(e).__name__


class Case(unittest.TestCase):
    def same(self, f: Function, *args: Any, dynamic: bool = False, what: str = "", kind: bool = True) -> tuple[Any, Any]:
        """The compiled result and eager's, which are equal. kind: an error must be of eager's type, too."""
        want = outcome(f, *args)
        got = outcome(support.compiled(f, dynamic=dynamic), *args)
        if isinstance(want, str) or isinstance(got, str):
            if kind:
                self.assertEqual(got, want, what)
            else:
                self.assertEqual(isinstance(got, str), isinstance(want, str), f"{what}: {got}, eager {want}")
            return got, want
        self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape), what)
        if got.is_floating_point():
            support.assert_close(got, want)
        else:
            self.assertTrue(torch.equal(got, want), f"{what}: {got.flatten()[:40].tolist()}, eager {want.flatten()[:40].tolist()}")
        return got, want

    def same_signs(self, f: Function, *args: Any, what: str = "") -> None:
        """Signs of zeros are eager's, too."""
        got, want = self.same(f, *args, what=what)
        number = ~want.isnan()
        self.assertTrue(torch.equal(torch.signbit(got)[number], torch.signbit(want)[number]), f"{what}: {got.tolist()}, eager {want.tolist()}")


DIVISIONS: dict[str, Function] = {
    "//": lambda a, b: a // b,
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "%": lambda a, b: a % b,
    "fmod": torch.fmod,
}


class IntegerDivision(Case):
    def pairs(self, d: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """All pairs of numbers of 8 bits; of others, those around the limits and zero. The least one divided by -1 is undefined."""
        i = torch.iinfo(d)
        if i.bits == 8:
            numbers = torch.arange(i.min, i.max + 1).to(d)
        else:
            near = [*range(-9, 10), 100, -100, 12345, -12345]
            numbers = torch.tensor(sorted({*near, *(i.min + k for k in range(9)), *(i.max - k for k in range(9)), i.min // 2, i.max // 2, i.max // 3}), dtype=d)
        a, b = numbers.repeat_interleave(len(numbers)), numbers.repeat(len(numbers))
        defined = b != 0 if i.min == 0 else (b != 0) & ~((a == i.min) & (b == -1))
        return a[defined], b[defined]

    def test_tensors(self) -> None:
        share = support.Share()
        for d in INTEGERS:
            a, b = self.pairs(d)
            for name, f in DIVISIONS.items():
                if share.takes(d, name):
                    self.same(f, a, b, what=f"{d} {name}")

    def test_numbers(self) -> None:
        share = support.Share()
        for d in INTEGERS:
            a = self.pairs(d)[0].unique()
            for by in (7, 3, -7, -16, -3, 2, -2, 100) if d != torch.uint8 else (7, 3, 16, 200):
                for name, f in DIVISIONS.items():
                    if share.takes(d, name, by):
                        self.same(lambda x, f=f, by=by: f(x, by), a, what=f"{d} {name} {by}")
        a = torch.tensor([7, -7, 3, -100], dtype=torch.int32)
        self.same(lambda x: 100 // x, a)
        self.same(lambda x: 100 % x, a)

    def test_by_zero(self) -> None:
        share = support.Share()
        for d in INTEGERS:
            a, zero, some = torch.tensor([1, 2, 0], dtype=d), torch.zeros(3, dtype=d), torch.tensor([3, 0, 1], dtype=d)
            for name, f in DIVISIONS.items():
                if not share.takes(d, name):
                    continue
                for b in (zero, some):
                    self.same(f, a, b, what=f"{d} {name} {b.tolist()}")
                    self.same(lambda a, b, f=f: f(a, b) + 1, a, b[1], what=f"{d} {name} a scalar")
                self.same(lambda x, f=f: f(x, 0), a, what=f"{d} {name} 0")
                self.same(f, a[:0], zero[:0], what=f"{d} {name} nothing")
        large = torch.ones(5, 7, dtype=torch.int64)
        large[4, 6] = 0
        for f in DIVISIONS.values():
            self.same(lambda a, b, f=f: f(a, b).sum(), torch.ones(5, 7, dtype=torch.int64), large)
            self.same(lambda a, b, f=f: f(a, b), torch.ones(5, 7, dtype=torch.int64), large, dynamic=True)
            self.same(lambda a, b, f=f: f(a, b[:4]), torch.ones(7, dtype=torch.int64), large)  # the zero is not read
            self.same(lambda a, b, f=f: torch.where(b == 0, a, f(a, b)), torch.ones(5, 7, dtype=torch.int64), large)  # both are computed
            self.same(lambda a, b, f=f: F.pad(f(a, b), (1, 1)), torch.ones(5, 7, dtype=torch.int64), large + 1)

    def test_sizes_divide(self) -> None:
        x = torch.arange(12).reshape(4, 3)
        self.same(lambda x: x // x.shape[0] + x % x.shape[1], x, dynamic=True)


class Signs(Case):
    FUNCTIONS: dict[str, Function] = {
        "tanh": torch.tanh, "frac": torch.frac, "relu": torch.relu, "abs": torch.abs, "round": torch.round, "sign": torch.sign, "sgn": torch.sgn,
        "// 2": lambda a: a // 2, "// -2": lambda a: a // -2, "floor": lambda a: torch.div(a, 3.0, rounding_mode="floor"),
        "copysign": lambda a: torch.copysign(torch.ones_like(a), a), "copysign of": lambda a: torch.copysign(a, torch.flip(a, (0,))),
        "clamp min": lambda a: a.clamp(min=0), "clamp max": lambda a: a.clamp(max=0), "relu6": F.relu6, "hardtanh": lambda a: F.hardtanh(a, 0.0, 1.0),
        "ceil": lambda a: (a - 0.5).ceil(), "trunc": lambda a: (a - 0.5).trunc(), "% 3": lambda a: a % 3, "% -3": lambda a: a % -3, "fmod": lambda a: torch.fmod(a, 3),
        "leaky_relu": F.leaky_relu, "atan2": lambda a: torch.atan2(a, torch.ones_like(a)), "neg": torch.neg, "nan_to_num": torch.nan_to_num,
        "hardshrink": F.hardshrink, "div trunc": lambda a: torch.div(a, 2, rounding_mode="trunc"),
    }  # fmt: skip

    def test_zeros_keep_theirs(self) -> None:
        share = support.Share()
        for d in FLOATS:
            x = torch.tensor([-0.0, 0.0, -1.5, 1.5, -2.0, 2.0, INF, -INF, NAN] * 5, dtype=d)
            if d in (torch.float32, torch.float64):
                x = torch.cat([x, torch.tensor([-1e-30, 1e-30], dtype=d)])
            for name, f in self.FUNCTIONS.items():
                if not share.takes(d, name):
                    continue
                with self.subTest(f"{d} {name}"):
                    self.same_signs(f, x, what=f"{d} {name}")

    def test_signs_of_nan(self) -> None:
        for d in (torch.float32, torch.float64, torch.float16):
            x = torch.tensor([NAN, -2.0, 0.0, -0.0, 3.0], dtype=d)
            x = torch.cat([x, -x])
            self.same(torch.signbit, x, what=f"{d}")
            self.same(lambda x: torch.copysign(torch.ones_like(x), x), x, what=f"{d}")
        for d in FLOATS:
            x = torch.tensor([NAN, -2.0, 0.5, -INF], dtype=d)
            self.same(lambda x: torch.sign(x) * 1, x)
            self.same(lambda x: torch.sgn(x) * 1, x)
            self.same(lambda x: torch.sign(x).to(torch.int32), x)


class NumbersBeyond(Case):
    """Numbers that a dtype does not hold: operands of arithmetic and comparisons wrap, other ones are errors, bounds bound nothing."""

    ANY: tuple[str, ...] = (
        "u+300", "u+(-1)", "u-300", "u*300", "300-u", "torch.sub(u,u,alpha=-1)", "i8+300", "i8*1000", "i32+2**40", "u==-1", "u==300", "u<300", "u>-1",
        "i8<1000", "i8>-1000", "i32<2**40", "u<3.5", "u&300", "i8|1000", "u^-1", "u//300", "u%300", "u//-1", "u%-1", "torch.fmod(u,300)", "i8//1000", "u/300",
        "300**u", "torch.full((2,),-1,dtype=torch.uint8)", "u.masked_fill(u>4,-1)", "u.masked_fill(u>4,2.7)", "h.masked_fill(h>1,-inf)",
        "torch.where(u>4,u,-1)", "torch.where(h>1,h,1e6)", "torch.addcmul(h,h,h,value=1e6)", "torch.addcmul(i32,i32,i32,value=1.5)",
        "torch.addcdiv(h,h,h,value=1e6)", "h+1e6", "h*1e6", "h*1e-8", "bf+1e39", "h==1e6", "h<1e6", "f<1e39", "f==0.1", "h==0.1", "f+1e39", "f*1e39",
        "torch.rsub(u,300)", "u.eq(255.0)", "u.eq(256.0)", "u.scatter(0,torch.tensor([0]),-1)", "torch.nan_to_num(h,posinf=1e6)", "torch.isin(u,300)",
        "u.clamp(min=-1)", "u.clamp(max=256)", "i8.clamp(-1000,1000)", "u.clamp(min=1.5)", "u.clamp_min(-1)", "u.clamp_max(300)", "i32.clamp(max=2**40)",
        "i16.clamp(max=40000)", "i64.clamp(-2**63,2**63-1)", "i32.clamp(max=1e20)", "F.hardtanh(u,-1.,1.)", "F.hardtanh(i8,-1000,1000)", "F.relu6(u)",
        "F.hardtanh(i8,-1.5,1.5)", "h.clamp(max=inf)", "u.clamp(torch.tensor(-1),torch.tensor(300))",
    )  # fmt: skip
    ERRORS: tuple[str, ...] = (
        "torch.add(u,u,alpha=300)", "u**300", "torch.full((2,),300,dtype=torch.uint8)", "torch.full((2,),-2.2,dtype=torch.uint8)",
        "torch.full((2,),1e6,dtype=torch.float16)", "torch.full((2,),1e39,dtype=torch.bfloat16)", "torch.full((2,),inf,dtype=torch.int32)",
        "torch.full((2,),2**40,dtype=torch.int32)", "torch.full_like(u,300)", "u.new_full((2,),300)", "u.clone().fill_(300)", "u.masked_fill(u>4,300)",
        "h.masked_fill(h>1,1e6)", "i8.masked_fill(i8>1,200)", "u.clamp(min=300)", "h.clamp(max=1e6)",
        "torch.addcmul(u,u,u,value=300)", "torch.addcmul(i32,i32,i32,value=2**40)", "u.index_fill(0,torch.tensor([0]),300)",
        "u.scatter(0,torch.tensor([0]),300)", "F.pad(u,(1,1),value=300)", "F.pad(h,(1,1),value=1e6)", "F.threshold(u,3,300)", "torch.rsub(u,u,alpha=300)",
        "u.index_add(0,torch.tensor([0]),u[:1],alpha=300)",
    )  # fmt: skip

    def expressions(self, which: tuple[str, ...]) -> None:
        u = torch.tensor([0, 5, 255], dtype=torch.uint8)
        values = {
            "u": u, "i8": u.to(torch.int8), "i16": u.to(torch.int16), "i32": u.to(torch.int32), "i64": u.to(torch.int64), "h": torch.tensor([1.0, 2.0], dtype=torch.float16),
            "bf": torch.tensor([1.0, 2.0], dtype=torch.bfloat16), "f": torch.tensor([1.0, 2.0]),
        }  # fmt: skip
        for text in which:
            with self.subTest(text):
                f = eval(f"lambda {', '.join(values)}: {text}", {"torch": torch, "F": F, "inf": INF})
                self.same(f, *values.values(), what=text, kind=False)

    def test_values(self) -> None:
        self.expressions(self.ANY)

    def test_errors(self) -> None:
        self.expressions(self.ERRORS)


class Shares(Case):
    """Numbers that are to lie between 0 and 1."""

    def test_cross_entropy(self) -> None:
        right = torch.tensor([0.0, 0.25, 1.0])
        for wrong in (-0.1, 1.5, NAN, INF):
            x = torch.tensor([0.5, wrong, 0.5])
            self.same(F.binary_cross_entropy, x, right, what=f"input {wrong}", kind=False)
            self.same(F.binary_cross_entropy, right, x, what=f"target {wrong}", kind=False)
            self.same(torch.bernoulli, x, what=f"bernoulli {wrong}", kind=False)
        self.same(F.binary_cross_entropy, right, right.flip(0))


class GradientsOfNan(Case):
    def test_smooth_l1(self) -> None:
        for d in FLOATS:
            x = torch.tensor([NAN, 0.5, -3.0, 2.0, INF, -INF, 1.0, -1.0, 0.0], dtype=d)
            found = []
            for f in (F.smooth_l1_loss, support.compiled(F.smooth_l1_loss)):
                y = x.clone().requires_grad_()
                f(y, torch.zeros_like(x)).backward()
                found.append(y.grad)
            support.assert_close(found[1], found[0])


class IntegerWindows(Case):
    def test_means(self) -> None:
        x = torch.tensor([2**62, 2**62, -1, 3, 2**53 + 1, 0, -(2**63), 5, -7, 1, 2**62, 2**62, 2**62, 9, -2, -2]).reshape(1, 4, 4)
        for f in (
            lambda x: F.avg_pool1d(x, 3, 1, 1), lambda x: F.avg_pool2d(x, 2), lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
            lambda x: F.avg_pool2d(x, 2, 1, divisor_override=3), lambda x: F.avg_pool3d(x[None], (1, 2, 2)),
        ):  # fmt: skip
            for dynamic in (False, True):
                self.same(f, x, dynamic=dynamic)


class FloatToInteger(Case):
    VALUES = (-2.2, -1.0, -0.5, 2.7, 255.5, 300.0, 40000.0, -40000.0, 70000.0, 2147483520.0, 3e9, -3e9, 5e9, 9e18, 1e19, 1e20, -1e20, INF, -INF, NAN)

    def test_dtypes(self) -> None:
        share = support.Share()
        for source in FLOATS:
            v = torch.tensor(self.VALUES, dtype=torch.float64).to(source)
            for to in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint64):
                if share.takes(source, to):
                    self.same(lambda x, to=to: (x * 1).to(to), v, what=f"{source} to {to}")
        v = torch.tensor([v for v in self.VALUES if -2e9 < v < 4e9])  # beyond it eager's vectors and single elements differ
        self.same(lambda x: (x * 1).to(torch.uint32), v)

    def test_other_ways(self) -> None:
        v = torch.tensor([-2.2, -1.0, 300.0, 3e9, NAN])
        self.same(lambda x: torch.empty(5, dtype=torch.uint8).copy_(x * 1), v)
        self.same(lambda x: (x * 1).byte() + 1, v)
        self.same(lambda x: (x * 1).type_as(torch.zeros(1, dtype=torch.int8)), v)
        self.same(lambda x: (x * 1).int().float(), v, dynamic=True)
        self.same(lambda x: (x.half() * 1).to(torch.uint8), v)
        self.same(lambda x: x.sum(dtype=torch.float64).to(torch.int16), v[:4])


class Indices(Case):
    """Negative positions: errors of most operators, counted from the end by a few."""

    def test_operators(self) -> None:
        x = torch.arange(12.0).reshape(4, 3)
        i, j, targets = torch.tensor([-1]), torch.tensor([[0, 1, -1]]), torch.tensor([0, 1, 2, -1])
        for name, f in {
            "embedding": lambda x, i, j: F.embedding(i, x) + 1, "embedding_bag": lambda x, i, j: F.embedding_bag(i[None], x, mode="sum") + 1,
            "gather": lambda x, i, j: x.gather(0, j) + 1, "scatter": lambda x, i, j: x.scatter(0, j, 5.0) + 1, "scatter src": lambda x, i, j: x.scatter(0, j, x[:1] * 2) + 1,
            "scatter_add": lambda x, i, j: x.scatter_add(0, j, x[:1]) + 1, "scatter_reduce": lambda x, i, j: x.scatter_reduce(0, j, x[:1], "amax") + 1,
            "index_select": lambda x, i, j: x.index_select(0, i) + 1, "index_add": lambda x, i, j: x.index_add(0, i, x[:1]) + 1,
            "index_copy": lambda x, i, j: x.index_copy(0, i, x[:1]) + 1, "index_reduce": lambda x, i, j: x.index_reduce(0, i, x[:1], "amax") + 1,
            "index_fill": lambda x, i, j: x.index_fill(0, i, 7.0) + 1, "take": lambda x, i, j: x.take(i) + 1, "put": lambda x, i, j: x.put(i, i * 2.0) + 1,
            "index": lambda x, i, j: x[i] + 1, "index of two": lambda x, i, j: x[i, j] + 1, "index_put": lambda x, i, j: x.index_put((i,), x[:1]) + 1,
            "take_along_dim": lambda x, i, j: x.take_along_dim(j, 0) + 1, "select": lambda x, i, j: x[-1] + 1,
            "nll_loss": lambda x, i, j: F.nll_loss(x, targets), "cross_entropy": lambda x, i, j: F.cross_entropy(x, targets),
            "cross_entropy, smoothed": lambda x, i, j: F.cross_entropy(x, targets, label_smoothing=0.1), "ignored": lambda x, i, j: F.nll_loss(x, targets, ignore_index=-1),
        }.items():  # fmt: skip
            with self.subTest(name):
                self.same(f, x, i, j, dynamic=len(name) % 2 == 0, what=name, kind=False)

    def test_sources_that_are_the_same_everywhere(self) -> None:
        """The index is checked where no element depends on it, too."""
        x, i = torch.arange(3.0).reshape(1, 3), torch.tensor([7, 0, 0])
        for name, f in {
            "expanded": lambda x, i: x.expand(5, 3).gather(0, i[None]), "full": lambda x, i: torch.full((5,), 3.0)[i], "a sum": lambda x, i: (x.sum() + torch.zeros(5))[i],
            "ones": lambda x, i: F.embedding(i, torch.ones(5, 3)), "a scalar": lambda x, i: x.sum().reshape(1)[i], "size 1": lambda x, i: x[:1, :1].gather(1, i[None, :1]),
            "unsqueezed": lambda x, i: x.unsqueeze(0).gather(0, i[None, None]), "selected": lambda x, i: x.sum().index_select(0, i[:1]),
            "a range": lambda x, i: torch.gather(torch.arange(1), 0, i),
        }.items():  # fmt: skip
            with self.subTest(name):
                for dynamic in (False, True):
                    self.same(f, x, i, dynamic=dynamic, what=name, kind=False)

    def test_other_positions(self) -> None:
        """Positions of pooling, bags and losses."""
        x, i = torch.arange(4.0).reshape(1, 1, 2, 2), torch.tensor([0, 3])
        for k in (-1, 9, 15, 16):
            self.same(lambda x, j: F.max_unpool2d(x, j, 2), x, torch.tensor([[[[0, 2], [k, 10]]]]), what=f"unpool {k}", kind=False)
        for k in (-1, 2, 3):
            self.same(lambda w, i, o: F.embedding_bag(i, w, o, mode="sum"), torch.ones(4, 3), i, torch.tensor([0, k]), what=f"bag {k}", kind=False)
            self.same(F.multi_margin_loss, torch.tensor(1.0), torch.tensor(k), what=f"margin {k}", kind=False)

    def test_right_ones(self) -> None:
        x, i, j = torch.arange(12.0).reshape(4, 3), torch.tensor([3, 0]), torch.tensor([[0, 1, 3]])
        for f in (
            lambda x: F.embedding(i, x), lambda x: x.gather(0, j), lambda x: x.scatter_add(0, j, x[:1]), lambda x: x.index_select(0, i),
            lambda x: x.index_add(0, i, x[:2]), lambda x: x.index_copy(0, i, x[:2]), lambda x: F.cross_entropy(x, torch.tensor([0, -100, 2, 1])),
            lambda x: F.one_hot(i, 4) * 2,
        ):  # fmt: skip
            self.same(lambda x, f=f: f(x) * 1, x)

    def test_targets_of_training(self) -> None:
        for targets in ([0, 1, 2, 1], [0, 1, 2, -1], [0, 3, 2, 1], [0, -100, 2, 1]):
            def loss(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
                return F.cross_entropy(x * 2, t)

            def gradient(f: Function) -> Any:
                x = torch.linspace(-1, 2, 12).reshape(4, 3).requires_grad_()
                f(x, torch.tensor(targets)).backward()
                return x.grad

            want, got = outcome(gradient, loss), outcome(gradient, support.compiled(loss))
            if isinstance(want, str) or isinstance(got, str):
                self.assertEqual(isinstance(got, str), isinstance(want, str), f"{targets}: {got}, eager {want}")
            else:
                support.assert_close(got, want)


class Assertions(Case):
    def test_one_hot(self) -> None:
        x = torch.arange(12.0).reshape(4, 3)
        for classes in ([0, 2], [0, 3], [0, -1]):
            t = torch.tensor(classes)
            self.same(lambda x, t: F.one_hot(t, 3) + 1, x, t, what=str(classes))
            self.same(lambda x, t: x[:2] * F.one_hot(t, 3), x, t, what=str(classes))
            self.same(lambda x, t: (F.one_hot(t, 3) * 2, x.sum())[1], x, t, what=f"{classes}, another result")
            self.same(lambda x, t: F.one_hot(t, 3) + 1, x, t, dynamic=True, what=str(classes))

    def test_strict(self) -> None:
        t = torch.tensor([0, 2])
        self.assertTrue(torch.equal(support.compiled(lambda t: F.one_hot(t, 3) + 1, strict=True)(t), F.one_hot(t, 3) + 1))
        with self.assertRaises(Exception):
            support.compiled(lambda t: F.one_hot(t, 3) + 1, strict=True)(torch.tensor([0, 3]))

    def test_beside_operators_of_pytorch(self) -> None:
        def f(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            y = torch.linalg.svdvals(x * 2)  # which the library does not have
            return F.one_hot(t, 3).sum() + (y + 1).sum().round()

        def dead(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            F.one_hot(t, 3)
            return torch.linalg.svdvals(x * 2) + 1

        x = torch.eye(3)
        for classes in ([0, 2], [0, 3], [0, -1]):
            self.same(f, x, torch.tensor(classes), what=str(classes))
            self.assertEqual(isinstance(outcome(support.compiled(dead), x, torch.tensor(classes)), str), classes != [0, 2], str(classes))

    def test_training(self) -> None:
        def loss(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            return (x * F.one_hot(t, 3)).sum()

        for classes in ([0, 2], [0, 3], [0, -1]):
            def gradient(f: Function, classes: list[int] = classes) -> Any:
                x = torch.ones(2, 3, requires_grad=True)
                f(x, torch.tensor(classes)).backward()
                return x.grad

            want, got = outcome(gradient, loss), outcome(gradient, support.compiled(loss))
            self.assertEqual(str(got), str(want), str(classes))


if __name__ == "__main__":
    unittest.main()
