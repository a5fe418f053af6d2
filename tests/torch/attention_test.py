"""Attention as a GPU's graphs have it, without a GPU: on fake tensors, which have sizes and no memory."""

from __future__ import annotations

import unittest
from collections.abc import Callable

import support  # noqa: F401
import torch
from tessera import _composites, _partition
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


class Kept(unittest.TestCase):
    """What of Dynamo's graph becomes an attention that reaches the importer whole."""

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
