"""Attention as a GPU's graphs have it, without a GPU: on fake tensors, which have sizes and no memory."""

from __future__ import annotations

import operator
import types
import unittest
import unittest.mock
from collections.abc import Callable

import support  # noqa: F401
import torch
from tessera import _composites, _partition
from tessera._options import Options, statistics
from tessera._subgraph import Subgraph
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

ATEN = torch.ops.aten
GPU = torch.device("cuda", 0)


def refused(fn: Callable[..., torch.Tensor], mask: bool = False) -> dict[str, str]:
    """Calls in a graph of f16 tensors [2, 4, 16, 32] on a GPU that Tessera leaves to PyTorch, with the reason."""
    with FakeTensorMode():
        inputs = [torch.empty(2, 4, 16, 32, dtype=torch.half, device=GPU) for _ in range(3)]
        if mask:
            inputs.append(torch.empty(2, 1, 16, 16, dtype=torch.half, device=GPU))
        graph = make_fx(fn)(*inputs).graph
        return {str(n.target): why for n, why in _partition.refusals(graph, GPU, {}).items()}


class OperatorsOfGpus(unittest.TestCase):
    def test_are_taken_without_dropout(self) -> None:
        expanded = lambda m: m.expand(2, 4, 16, 16)  # noqa: E731
        self.assertEqual(refused(lambda q, k, v: ATEN._scaled_dot_product_flash_attention(q, k, v, 0.0, True)[0]), {})
        self.assertEqual(refused(lambda q, k, v, m: ATEN._scaled_dot_product_cudnn_attention(q, k, v, expanded(m), False)[0], mask=True), {})
        self.assertEqual(refused(lambda q, k, v, m: ATEN._scaled_dot_product_efficient_attention(q, k, v, expanded(m), False)[0], mask=True), {})

    def test_draw_numbers_with_dropout(self) -> None:
        found = refused(lambda q, k, v: ATEN._scaled_dot_product_flash_attention(q, k, v, 0.5, True)[0])
        self.assertIn("random numbers", found["aten._scaled_dot_product_flash_attention.default"])

    def test_whole_attention_is_that_of_pytorch(self) -> None:
        whole = torch.ops.tessera.scaled_dot_product_attention
        self.assertEqual(refused(lambda q, k, v, m: whole(q, k, v, m, 0.0, False, 0.3), mask=True), {})


Training = Callable[..., tuple[torch.Tensor, ...]]  # of q, k, v, the result's gradient and maybe a bias


def flash(causal: bool) -> Training:
    def fn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, grad: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, sums, cum_q, cum_k, max_q, max_k, seed, offset, _ = ATEN._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)
        more = (cum_q, cum_k, max_q, max_k, 0.0, causal, seed, offset)
        return (y, *ATEN._scaled_dot_product_flash_attention_backward(grad, q, k, v, y, sums, *more))

    return fn


def cudnn(causal: bool) -> Training:
    def fn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, grad: torch.Tensor, *bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
        b = bias[0] if bias else None
        y, sums, cum_q, cum_k, max_q, max_k, seed, offset, _ = ATEN._scaled_dot_product_cudnn_attention(q, k, v, b, True, 0.0, causal)
        more = (seed, offset, b, cum_q, cum_k, max_q, max_k, 0.0, causal)
        return (y, *ATEN._scaled_dot_product_cudnn_attention_backward(grad, q, k, v, y, sums, *more))

    return fn


def efficient(causal: bool) -> Training:
    def fn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, grad: torch.Tensor, *bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
        b = bias[0] if bias else None
        y, sums, seed, offset = ATEN._scaled_dot_product_efficient_attention(q, k, v, b, True, 0.0, causal)
        more = (seed, offset, 0.0, [True, True, True, b is not None], causal)
        found = ATEN._scaled_dot_product_efficient_attention_backward(grad, q, k, v, b, y, sums, *more)
        return (y, *found[: 3 + len(bias)])

    return fn


class TrainingOnGpus(unittest.TestCase):
    """The operators that Autograd calls on a GPU, forward and backward: whether they are taken, and their values on the CPU."""

    HEADS = ((4, 4), (16, 8), (6, 2), (8, 1))  # of queries, of keys and values

    def check(self, fn: Training, causal: bool, heads: tuple[int, int], queries: int, keys: int, bias: bool, symbolic: bool) -> None:
        q, grad = (torch.randn(2, heads[0], queries, 16) for _ in range(2))
        k, v = (torch.randn(2, heads[1], keys, 16) for _ in range(2))
        inputs = [q, k, v, grad, *([torch.randn(2, heads[0], queries, keys)] if bias else [])]
        with FakeTensorMode():
            there = make_fx(fn)(*(torch.empty(t.shape, dtype=torch.half, device=GPU) for t in inputs))
            self.assertEqual(_partition.refusals(there.graph, GPU, {}), {})
        graph = make_fx(fn, tracing_mode="symbolic" if symbolic else "fake")(*inputs).graph
        graph.eliminate_dead_code()
        calls = [n for n in graph.nodes if n.op == "call_function" and not isinstance(n.meta["val"], (int, torch.SymInt))]
        results = list(graph.output_node().args[0])
        program = Subgraph("attention", calls, graph.find_nodes(op="placeholder"), results, {}, torch.device("cpu"), Options(strict=True), statistics)
        got = program(*inputs)
        wide = [t.double().requires_grad_() for t in inputs]
        q, k, v, grad, *b = wide
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, *b, is_causal=causal, enable_gqa=True)
        want = (y, *torch.autograd.grad(y, (q, k, v, *b), grad))
        for g, w in zip(got, want):  # cuDNN's has no gradient of the bias
            torch.testing.assert_close(g.double(), w, rtol=1e-4, atol=1e-5)

    def test_groups(self) -> None:
        for heads in self.HEADS:
            with self.subTest(heads=heads):
                self.check(flash(True), True, heads, 9, 9, False, False)
        self.check(flash(False), False, (16, 8), 9, 7, False, False)
        self.check(cudnn(True), True, (16, 8), 9, 9, False, False)

    def test_lengths_that_libraries_pad(self) -> None:
        for fn, queries, keys in ((efficient(False), 1, 33), (efficient(False), 31, 7), (efficient(False), 32, 32), (cudnn(False), 1, 1)):
            with self.subTest(queries=queries, keys=keys):
                self.check(fn, False, (4, 4), queries, keys, True, False)

    def test_symbolic(self) -> None:
        for fn, heads in ((flash(False), (6, 2)), (cudnn(False), (6, 2)), (efficient(False), (4, 4))):
            self.check(fn, False, heads, 7, 9, False, True)


class FasterInPyTorch(unittest.TestCase):
    """Attention of a training step whose scores are larger than the level-2 cache is left to PyTorch's kernel."""

    def left(self, fn: Callable[..., object], queries: int, keys: int, device: torch.device = GPU, cache: int = 1 << 20) -> set[str]:
        with FakeTensorMode():
            q, grad = (torch.empty(2, 4, queries, 16, dtype=torch.half, device=device) for _ in range(2))
            k, v = (torch.empty(2, 4, keys, 16, dtype=torch.half, device=device) for _ in range(2))
            graph = make_fx(fn)(q, k, v, grad).graph
        graph.eliminate_dead_code()
        with unittest.mock.patch("torch.cuda.get_device_properties", lambda _: types.SimpleNamespace(L2_cache_size=cache)):
            found = _partition.faster_there(graph)
        for n in graph.nodes:  # results go where their call goes
            self.assertEqual(n in found, n.args[0] in found if n.target is operator.getitem else n in found)
        return {str(n.target) for n in found if n.target is not operator.getitem}

    def test_from_scores_beyond_the_cache_on(self) -> None:
        for fn, name in ((flash(True), "flash"), (cudnn(True), "cudnn"), (efficient(True), "efficient")):
            both = {f"aten._scaled_dot_product_{name}_attention{part}.default" for part in ("", "_backward")}
            with self.subTest(name):
                self.assertEqual(self.left(fn, 182, 182), both)  # 2 * 4 * 182 * 182 * 4 bytes
                self.assertEqual(self.left(fn, 181, 181), set())
                self.assertEqual(self.left(fn, 181, 181, cache=1 << 19), both)

    def test_without_a_gradient_it_is_taken(self) -> None:
        self.assertEqual(self.left(lambda q, k, v, _: ATEN._scaled_dot_product_flash_attention(q, k, v, 0.0, True)[0], 999, 999), set())

    def test_on_the_host_it_is_taken(self) -> None:
        def fn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, grad: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y, sums = ATEN._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)
            return (y, *ATEN._scaled_dot_product_flash_attention_for_cpu_backward(grad, q, k, v, y, sums, 0.0, True))

        self.assertEqual(self.left(fn, 999, 999, torch.device("cpu")), set())


class Kept(unittest.TestCase):
    """Parts of Dynamo's graph that become an attention which reaches the importer whole."""

    def kept(self, device: str = "cuda", grad: bool = False, dropout: float = 0.0) -> bool:
        graph = torch.fx.Graph()
        with FakeTensorMode():
            values = [torch.empty(2, 4, 16, 32, dtype=torch.half, device=device, requires_grad=grad) for _ in range(4)]
        nodes = [graph.placeholder(n) for n in "qkv"]
        call = graph.call_function(torch.nn.functional.scaled_dot_product_attention, tuple(nodes), {"dropout_p": dropout})
        for node, value in zip((*nodes, call), values):
            node.meta["example_value"] = value
        graph.output((call,))
        module = torch.fx.GraphModule(torch.nn.Module(), graph)
        _composites.keep(module, values[:3])
        return call.target is torch.ops.tessera.scaled_dot_product_attention.default

    def test_on_a_gpu_without_gradients_and_dropout(self) -> None:
        self.assertTrue(self.kept())
        self.assertFalse(self.kept(device="cpu"))
        self.assertFalse(self.kept(grad=True))
        self.assertFalse(self.kept(dropout=0.1))

    def test_gradients_that_nobody_wants(self) -> None:
        with torch.no_grad():
            self.assertTrue(self.kept(grad=True))

    def test_computes_what_pytorch_does(self) -> None:
        q, k, v = (torch.randn(2, 4, 6, 8) for _ in range(3))
        mask = torch.rand(2, 1, 6, 6) > 0.3
        got = torch.ops.tessera.scaled_dot_product_attention(q, k, v, mask, 0.0, False, 0.5)
        torch.testing.assert_close(got, torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=0.5))


if __name__ == "__main__":
    unittest.main()
