"""Products of groups of rows, of columns and of the depth (grouped_mm), their gradients, and mixtures of experts made of them."""

from __future__ import annotations

import unittest
from collections.abc import Callable

import support
import torch
import torch.nn.functional as F
from support import assert_close
from tessera import _partition
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

Tensors = tuple[torch.Tensor, ...]

ENDS = {"a group without rows": (0, 3, 3, 63, 128), "one group": (128,), "tiles and one more": (63, 127, 192, 192), "no rows": (0, 0)}


def drawn(dtype: torch.dtype, *shapes: tuple[int, ...], seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*s, generator=generator).mul(0.5).to(dtype) for s in shapes]


def tolerance(dtype: torch.dtype) -> dict[str, float]:
    return {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 3e-2, "atol": 3e-2}


class Compiled(unittest.TestCase):
    def check(self, fn: Callable[..., Tensors | torch.Tensor], *inputs: torch.Tensor, dynamic: bool = False, gradients: int = 0) -> None:
        """The backend's results, and gradients of the first inputs, against PyTorch's; all of it in one program each."""
        with support.Counted() as counted:
            found, wanted = [], []
            for f, results in ((support.compiled(fn, dynamic=dynamic), found), (fn, wanted)):
                leaves = [x.detach().clone().requires_grad_(i < gradients) for i, x in enumerate(inputs)]
                y = f(*leaves)
                results.append(y)
                if gradients:
                    y.float().square().sum().backward()
                    results += [x.grad for x in leaves[:gradients]]
            self.assertEqual(counted.operators_left, 0)
        assert_close(found, wanted, **tolerance(inputs[0].dtype))

    def test_rows(self) -> None:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for name, ends in ENDS.items():
                for turned in (False, True):
                    with self.subTest(dtype=dtype, ends=name, turned=turned):
                        groups, rows = len(ends), max(ends[-1], 1 if name != "no rows" else 0)
                        x, w = drawn(dtype, (rows, 32), (groups, 48, 32) if turned else (groups, 32, 48))
                        offs = torch.tensor(ends, dtype=torch.int32)
                        fn = lambda x, w, offs: torch._grouped_mm(x, w.transpose(1, 2) if turned else w, offs=offs)  # noqa: E731, B023
                        self.check(fn, x, w, offs)

    def test_columns(self) -> None:
        a, b = drawn(torch.float32, (4, 24, 32), (32, 128))
        self.check(lambda a, b, offs: torch._grouped_mm(a, b, offs=offs), a, b, torch.tensor([16, 16, 64, 128], dtype=torch.int32))

    def test_depth(self) -> None:
        a, b = drawn(torch.float32, (24, 128), (128, 32))
        self.check(lambda a, b, offs: torch._grouped_mm(a, b, offs=offs), a, b, torch.tensor([16, 16, 64, 128], dtype=torch.int32))

    def test_batch(self) -> None:
        a, b = drawn(torch.float32, (3, 24, 32), (3, 32, 16))
        self.check(lambda a, b: torch._grouped_mm(a, b), a, b)

    def test_gradients(self) -> None:
        for dtype in (torch.float32, torch.bfloat16):
            for name, ends in ENDS.items():
                if name == "no rows":
                    continue
                with self.subTest(dtype=dtype, ends=name):
                    x, w = drawn(dtype, (ends[-1], 32), (len(ends), 32, 48))
                    self.check(lambda x, w, offs: torch._grouped_mm(x, w, offs=offs), x, w, torch.tensor(ends, dtype=torch.int32), gradients=2)

    def test_epilogue(self) -> None:
        x, w, bias, scale = drawn(torch.float32, (128, 32), (5, 32, 48), (5, 48), (128, 1))
        offs = torch.tensor(ENDS["a group without rows"], dtype=torch.int32)
        ids = torch.repeat_interleave(torch.arange(5), torch.diff(offs, prepend=torch.zeros(1, dtype=torch.int32)))
        fn = lambda x, w, offs, bias, ids, scale: F.silu(torch._grouped_mm(x, w, offs=offs) + bias[ids]) * scale  # noqa: E731
        self.check(fn, x, w, offs, bias, ids, scale)


class Experts(torch.nn.Module):
    """Tokens to the best experts of a router, sorted by expert: two grouped products with a gated activation between them."""

    def __init__(self, experts: int = 8, best: int = 2, width: int = 32, inner: int = 48) -> None:
        super().__init__()
        self.experts, self.best = experts, best
        self.router = torch.nn.Linear(width, experts, bias=False)
        self.up = torch.nn.Parameter(torch.randn(experts, 2 * inner, width) * 0.1)
        self.down = torch.nn.Parameter(torch.randn(experts, width, inner) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = torch.topk(F.softmax(self.router(x).float(), dim=-1), self.best, dim=-1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        tokens = torch.arange(x.shape[0], device=x.device).unsqueeze(1).expand(-1, self.best).reshape(-1)
        order = torch.argsort(chosen.reshape(-1))
        ids = chosen.reshape(-1)[order]
        count = torch.histc(ids.float() if x.device.type == "cpu" else ids.int(), bins=self.experts, min=0, max=self.experts - 1)
        offs = torch.cumsum(count, 0, dtype=torch.int32)
        gate, up = torch._grouped_mm(x[tokens[order]], self.up.transpose(1, 2), offs=offs).chunk(2, dim=-1)
        y = torch._grouped_mm(F.silu(gate) * up, self.down.transpose(1, 2), offs=offs)
        y = y * weights.reshape(-1)[order].unsqueeze(1)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.shape[0], device=x.device)
        return y[back].view(x.shape[0], self.best, -1).sum(1)


class FasterInPyTorch(unittest.TestCase):
    """Products of groups on a GPU that PyTorch's kernel computes in less time."""

    def left(self, a: tuple[int, ...], b: tuple[int, ...], device: str, groups: int = 4) -> bool:
        with FakeTensorMode():
            x, w = (torch.empty(s, dtype=torch.bfloat16, device=device) for s in (a, b))
            ends = torch.empty(groups, dtype=torch.int32, device=device)
            graph = make_fx(lambda x, w, e: torch._grouped_mm(x, w, offs=e))(x, w, ends).graph
        return any(str(n.target) == "aten._grouped_mm.default" for n in _partition.faster_there(graph))

    def test_groups_that_fill_its_tiles(self) -> None:
        for rows, left in ((4 * 127, False), (4 * 128, True)):
            self.assertEqual(self.left((rows, 64), (4, 64, 32), "cuda"), left)
        self.assertFalse(self.left((4 * 128, 64), (4, 64, 32), "cpu"))

    def test_groups_of_the_depth(self) -> None:
        self.assertTrue(self.left((64, 32), (32, 64), "cuda"))
        self.assertFalse(self.left((4, 64, 32), (32, 48), "cuda"))


class Mixtures(unittest.TestCase):
    def test_of_experts(self) -> None:
        torch.manual_seed(1)
        model = Experts()
        for dynamic in (False, True):
            compiled = support.compiled(model, dynamic=dynamic)
            for tokens in (16, 65) if dynamic else (33,):
                with self.subTest(dynamic=dynamic, tokens=tokens), support.Counted() as counted:
                    x = torch.randn(tokens, 32)
                    results = []
                    for f in (compiled, model):
                        model.zero_grad()
                        leaf = x.clone().requires_grad_()
                        y = f(leaf)
                        y.square().sum().backward()
                        results.append([y, leaf.grad, *(p.grad.clone() for p in model.parameters())])
                    self.assertEqual(counted.operators_left, 0)
                    assert_close(results[0], results[1], rtol=1e-4, atol=1e-4)

    def test_in_inference(self) -> None:
        torch.manual_seed(2)
        model = Experts().to(torch.bfloat16)
        x = torch.randn(64, 32, dtype=torch.bfloat16)
        with torch.no_grad():
            assert_close(support.compiled(model)(x), model(x), rtol=5e-2, atol=5e-2)


if __name__ == "__main__":
    unittest.main()
