"""Sizes that operators need as constants: guarded where all sizes are symbols, for code of GPUs.

Without a GPU: graphs of fake tensors there, and calls on the CPU that is treated as if it had such code.
"""

from __future__ import annotations

import unittest
from unittest import mock

import support
import torch
from tessera import _known_sizes, _program
from torch._dynamo.source import ConstantSource
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

GPU = torch.device("cuda", 0)
SDPA = torch.nn.functional.scaled_dot_product_attention
WHOLE = torch.ops.tessera.scaled_dot_product_attention


def graph_of(heads: tuple[int, int]) -> torch.fx.Graph:
    """An attention of f16 on a GPU all of whose sizes are symbols; heads: of queries, of keys and values."""
    env = ShapeEnv()

    def symbol(value: int) -> torch.SymInt | int:
        source = ConstantSource(f"size_of_{value}")
        return env.create_symintnode(env.create_symbol(value, source, DimDynamic.DUCK), hint=value, source=source)

    with FakeTensorMode(shape_env=env):
        inputs = [torch.empty([symbol(s) for s in (3, h, length, 64)], dtype=torch.half, device=GPU) for h, length in zip((*heads, heads[1]), (20, 30, 30))]
    fn = lambda q, k, v: WHOLE(q, k, v, None, 0.0, False, None, heads[0] != heads[1])  # noqa: E731
    return make_fx(fn, tracing_mode="symbolic")(*inputs).graph


def sizes(graph: torch.fx.Graph) -> list[list[int | None]]:
    """The sizes of each input that are known; None for a symbol."""

    def known(s: int | torch.SymInt) -> int | None:
        if isinstance(s, int):
            return s
        return int(s.node.expr) if s.node.expr.is_Integer else None

    return [[known(s) for s in n.meta["val"].shape] for n in graph.find_nodes(op="placeholder")]


class Graphs(unittest.TestCase):
    def test_width_alone(self) -> None:
        graph = graph_of((4, 4))
        self.assertEqual(sizes(graph), [[None] * 4] * 3)
        _known_sizes.make_known(graph, torch.device("cpu"))
        self.assertEqual(sizes(graph), [[None] * 4] * 3)
        _known_sizes.make_known(graph, GPU)
        self.assertEqual(sizes(graph), [[None, None, None, 64]] * 3)

    def test_heads_of_groups(self) -> None:
        graph = graph_of((6, 2))
        _known_sizes.make_known(graph, GPU)
        self.assertEqual(sizes(graph), [[None, 6, None, 64], [None, 2, None, 64], [None, 2, None, 64]])

    def test_the_program_states_numbers(self) -> None:
        graph = graph_of((4, 4))
        _known_sizes.make_known(graph, GPU)
        inputs = graph.find_nodes(op="placeholder")
        calls = [n for n in graph.nodes if n.target is WHOLE.default]
        stated = _program.write_program(inputs, calls, calls, {}).json["graph_module"]["graph"]["tensor_values"]
        for n in (*inputs, *calls):
            self.assertEqual(stated[n.name]["sizes"][3], {"as_int": 64})
            self.assertIn("as_expr", stated[n.name]["sizes"][0])


def of_cpu() -> object:
    """The CPU, and its operator, as if they had code for known sizes."""
    table = {"aten._scaled_dot_product_flash_attention_for_cpu.default": _known_sizes._by_operator()["aten.scaled_dot_product_attention.default"]}
    return mock.patch.multiple(_known_sizes, DEVICES=frozenset({"cpu"}), _by_operator=lambda: table)


class Calls(unittest.TestCase):
    def call(self, fn: object, shape: tuple[int, ...], train: bool) -> None:
        given = [torch.randn(shape, requires_grad=train) for _ in range(3)]
        got, want = fn(*given), SDPA(*given, is_causal=True)  # type: ignore[operator]
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        if train:
            grad = torch.randn(shape)
            torch.testing.assert_close(torch.autograd.grad(got, given, grad), torch.autograd.grad(want, given, grad), rtol=1e-4, atol=1e-4)

    def check(self, train: bool) -> None:
        fn = support.compiled(lambda q, k, v: SDPA(q, k, v, is_causal=True), dynamic=True)
        with of_cpu(), torch.set_grad_enabled(train):  # type: ignore[attr-defined]
            for shape, graphs in (((2, 4, 12, 16), 1), ((3, 5, 9, 16), 0), ((2, 4, 12, 32), 1), ((4, 2, 7, 32), 0), ((3, 3, 5, 16), 0)):
                with self.subTest(shape=shape), support.Counted() as counted:
                    self.call(fn, shape, train)
                    self.assertEqual(counted.graphs, graphs * (2 if train else 1))
                    self.assertEqual(counted.fallback_calls, 0)

    def test_another_width_is_one_more_compile(self) -> None:
        self.check(False)

    def test_in_training_too(self) -> None:
        self.check(True)


if __name__ == "__main__":
    unittest.main()
