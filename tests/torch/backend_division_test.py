"""Operators that cannot be compiled run in PyTorch by themselves, and nothing raises where eager runs.

    python tests/torch/backend_division_test.py [Class[.test] ...]
"""

from __future__ import annotations

import json
import logging
import pickle
import unittest
import unittest.mock
from collections.abc import Callable
from typing import Any

import support
import sympy
import torch
import torch.nn.functional as F
from backend_test import r

import tessera
from tessera import _decompositions, _library, _partition, backend
from tessera._program import is_part
from tessera._subgraph import SizeFunction

OPEN = _library.open_program


def opening(error: Callable[[list[dict[str, Any]]], Exception | None], tries: list[int]) -> Any:
    """The library's compile, which fails with what `error` says of a program's nodes; counts the compiles in tries[0]."""

    def opened(name: str, text: bytes, *rest: Any) -> Any:
        tries[0] += 1
        if (e := error(json.loads(text)["graph_module"]["graph"]["nodes"])) is not None:
            raise e
        return OPEN(name, text, *rest)

    return unittest.mock.patch.object(_library, "open_program", opened)


def layers(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Twenty layers with two erf of one type among them; a view of a result is a result."""
    for i in range(20):
        x = (x @ w).softmax(-1)
        if i in (7, 13):
            x = torch.erf(x)
        x = x * 1.5 + i
    return x, x.t(), x.sum()


def fails_on(target: str, named: bool) -> Callable[[list[dict[str, Any]]], Exception | None]:
    def error(nodes: list[dict[str, Any]]) -> Exception | None:
        for n in nodes:
            if n["target"] == f"torch.ops.{target}":
                return tessera.RunError("it failed", output=n["outputs"][0]["as_tensor"]["name"] if named else "")
        return None

    return error


class Division(unittest.TestCase):
    def check(self, error: Callable[[list[dict[str, Any]]], Exception | None]) -> tuple[backend.CompiledGraph, int]:
        tries = [0]
        seen: list[backend.CompiledGraph] = []
        args = r(8, 8), r(8, 8)
        with opening(error, tries), backend.observed(seen.append), torch.no_grad(), support.Counted() as c:
            got = support.compiled(layers)(*args)
            support.assert_close(got, layers(*args))
            self.assertEqual(got[1].untyped_storage().data_ptr(), got[0].untyped_storage().data_ptr())
        self.assertEqual(c.fallback_calls, 0)
        (graph,) = seen
        return graph, tries[0]

    def test_a_named_call_alone_is_left(self) -> None:
        graph, tries = self.check(fails_on("aten.erf.default", named=True))
        self.assertEqual([str(n.target) for n in graph.left], ["aten.erf.default"] * 2)
        self.assertEqual(set(graph.left.values()), {"it failed"})
        self.assertEqual(len(graph.subgraphs), 3)
        self.assertLessEqual(tries, 5)  # the whole, the call alone, three parts

    def test_a_call_that_no_error_names_is_found(self) -> None:
        graph, tries = self.check(fails_on("aten.erf.default", named=False))
        self.assertEqual([str(n.target) for n in graph.left], ["aten.erf.default"] * 2)
        self.assertEqual(len(graph.subgraphs), 3)
        self.assertLess(tries, 40)

    def test_what_fails_only_together_is_two_programs(self) -> None:
        graph, _ = self.check(lambda nodes: ValueError("too many") if len(nodes) > 50 else None)
        self.assertEqual((dict(graph.left), len(graph.subgraphs), graph.error), ({}, 2, "too many"))

    def test_everything_fails(self) -> None:
        graph, tries = self.check(lambda nodes: RecursionError("deep"))
        self.assertEqual((len(graph.left), graph.subgraphs), (84, []))
        self.assertLess(tries, 12 * len(graph.left))

    def test_strict(self) -> None:
        with opening(fails_on("aten.erf.default", named=True), [0]), self.assertRaisesRegex(Exception, "it failed"):
            support.compiled(layers, strict=True)(r(8, 8), r(8, 8))

    def test_random_numbers_alone_are_left(self) -> None:
        def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return F.dropout((x @ w).relu() * 2, 0.5).softmax(-1) @ w

        seen: list[backend.CompiledGraph] = []
        with backend.observed(seen.append), torch.no_grad():
            torch.manual_seed(3)
            got = support.compiled(fn)(r(8, 8), r(8, 8))
            torch.manual_seed(3)
            support.assert_close(got, fn(r(8, 8), r(8, 8)))
        left = [n for n in seen[0].left if not is_part(n)]
        self.assertEqual([_partition.is_random(n) for n in left], [True], seen[0].left)
        self.assertEqual(len(seen[0].subgraphs), 2)


class NothingRaises(unittest.TestCase):
    """Errors of ours at every stage of a compile: the calls run in PyTorch, counted, with eager's results and gradients."""

    STAGES = (
        (backend._GraphCompiler, "__init__"), (backend._GraphCompiler, "compile"), (backend._GraphCompiler, "assemble"), (backend._GraphCompiler, "subgraph"),
        (backend, "_views"), (backend, "_inputs_of"), (_partition, "stages"), (_partition, "refusals"), (backend, "_parameters"), (backend, "compile_graph"),
    )  # fmt: skip

    def test_stages(self) -> None:
        fn = lambda x, w: F.dropout(x[1:] @ w, 0.0).softmax(-1).sum(0)  # noqa: E731
        for owner, name in self.STAGES:
            with self.subTest(name), unittest.mock.patch.object(owner, name, side_effect=RuntimeError("injected")), support.Counted():
                given = [(r(8, 3).requires_grad_(), r(3, 3).requires_grad_()) for _ in range(2)]
                results = []
                for f, args in zip((support.compiled(fn, dynamic=True), fn), given):
                    y = f(*args)
                    y.sum().backward()
                    results.append((y, *(t.grad for t in args)))
                support.assert_close(*results)

    def test_a_decomposition_that_raises(self) -> None:
        broken = {**_decompositions.inference()}

        def gelu(*_args: Any, **_kwargs: Any) -> Any:
            raise RuntimeError("injected")

        broken[torch.ops.aten.gelu.default] = gelu
        fn = lambda x: F.gelu(x * 2).cumsum(0)  # noqa: E731
        with unittest.mock.patch.object(_decompositions, "inference", lambda: broken), support.Counted() as c, torch.no_grad():
            support.assert_close(support.compiled(fn)(r(8, 3)), fn(r(8, 3)))
        self.assertGreater(c.calls, 0)

    def test_calls(self) -> None:
        """A call that fails for its sizes says nothing of the next one."""
        compiled = support.compiled(lambda x: x.exp() + 1, dynamic=True)
        with support.Counted() as c, torch.no_grad():
            compiled(r(8))
            (program,) = c.programs
            with unittest.mock.patch.object(program, "_run", side_effect=tessera.InputError("too large")), self.assertLogs("tessera", logging.WARNING) as logs:
                for _ in range(2):
                    support.assert_close(compiled(r(8)), r(8).exp() + 1)
            compiled(r(9))
        self.assertEqual((c.fallback_calls, c.calls, len(logs.output)), (2, 2, 1))


class Sizes(unittest.TestCase):
    """Sizes that are expressions, in training."""

    FUNCTIONS = [
        lambda x: x[1:].sum(0),
        lambda x: torch.cat([x, x[:-1]]).sum(1),
        lambda x: F.pad(x, (1, 2)).sum(1),
        lambda x: F.pad(x[None], (1, 1), mode="circular").sum(2),
        lambda x: x.repeat(2, 3).cumsum(0),
        lambda x: F.conv1d(x[None, None].flatten(2), torch.ones(1, 1, 3), stride=2).sum(-1),
        lambda x: F.max_pool2d(x[None, None], 2).sum(-1) + F.avg_pool2d(x[None, None], 2, 2).sum(-1),
        lambda x: F.cross_entropy(x[:-1], torch.arange(x.shape[0] - 1) % x.shape[1]),
        lambda x: F.interpolate(x[None, None], scale_factor=0.7).sum(-1),
    ]

    def test_training(self) -> None:
        for n, fn in enumerate(self.FUNCTIONS):
            for dynamic in (True, None):
                with self.subTest(n, dynamic=dynamic), torch._dynamo.config.patch(automatic_dynamic_shapes=True), support.Counted() as c:
                    compiled = support.compiled(fn, dynamic=dynamic)
                    for rows in (8, 5, 13):
                        a, b = r(rows, 6).requires_grad_(), r(rows, 6).requires_grad_()
                        got, want = compiled(a), fn(b)
                        support.assert_close(got, want)
                        got.square().sum().backward()
                        want.square().sum().backward()
                        support.assert_close(a.grad, b.grad)
                self.assertEqual((c.operators_left, c.fallback_calls), (0, 0))

    def test_functions(self) -> None:
        s, t = sympy.Symbol("s0", integer=True), sympy.Symbol("s1", integer=True)
        for expr, value in ((s * 2 + t, 13), (s // 2, 2), (sympy.Max(s, t), 5), (sympy.Mod(s, 3), 2)):
            f = SizeFunction(expr, (s, t))
            self.assertEqual((f(5, 3), pickle.loads(pickle.dumps(f))(5, 3)), (value, value))
            self.assertNotIn("lambda", torch.fx.node._get_qualified_name(f))


if __name__ == "__main__":
    unittest.main()
