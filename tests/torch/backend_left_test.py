"""torch.compile(backend="tessera") compiles once for all shapes, and says what it leaves to PyTorch, once; nothing raises.

    python tests/torch/backend_left_test.py [Class[.test] ...]
"""

from __future__ import annotations

import contextlib
import logging
import unittest
import unittest.mock
from typing import Any

import support
import torch
import torch.nn.functional as F
from backend_test import custom, r

import tessera
from tessera import _subgraph, backend


@contextlib.contextmanager
def failing(error):
    """Programs whose calls raise what `error` returns, where it returns something. Yields the list of those that are made."""
    made: list[_subgraph.Subgraph] = []
    wrap = _subgraph.Subgraph.__init__

    class Failing:
        def __init__(self, session):
            self.session = session

        def call(self, *args):
            if (e := error()) is not None:
                raise e
            return self.session.call(*args)

        def __getattr__(self, name):
            return getattr(self.session, name)

    def init(self, *args, **kwargs):
        wrap(self, *args, **kwargs)
        self.session = Failing(self.session)
        made.append(self)

    with unittest.mock.patch.object(_subgraph.Subgraph, "__init__", init):
        yield made


class Shapes(unittest.TestCase):
    """A shape that was not seen before compiles nothing once a dimension is dynamic."""

    def calls(self, fn, shapes, **how):
        """Programs compiled after each call; results are eager's."""
        compiled, counts = support.compiled(fn, **how), []
        with torch.no_grad(), support.Counted() as c:
            for shape in shapes:
                x = r(*shape)
                support.assert_close(compiled(x), fn(x))
                counts.append(c.compiles)
        self.assertEqual((c.fallback_calls, c.variants), (0, c.compiles))
        return counts

    FUNCTIONS = [
        lambda x: x.softmax(-1) @ x.t(),
        lambda x: torch.cat([x, x.flip(0)]).cumsum(0),
        lambda x: x.reshape(-1)[: x.shape[0]] * x.shape[1],
        lambda x: F.pad(x, (1, 2)).unfold(1, 3, 1).amax(-1),
        lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], is_causal=True),
        lambda x: torch.tril(torch.ones(x.shape[0], x.shape[0])) @ x,
        lambda x: x.view(x.shape[0], 2, -1).transpose(1, 2).mean(0),
    ]

    def test_dynamic(self):
        for n, fn in enumerate(self.FUNCTIONS):
            with self.subTest(n):
                counts = self.calls(fn, [(4, 6), (5, 8), (2, 4), (33, 64)], dynamic=True)
                self.assertEqual(counts[1:], counts[:-1])

    def test_automatic(self):
        for n, fn in enumerate(self.FUNCTIONS):
            with self.subTest(n), torch._dynamo.config.patch(automatic_dynamic_shapes=True):
                counts = self.calls(fn, [(4, 6), (5, 8), (2, 4), (33, 64)], dynamic=None)
                self.assertEqual(counts[2:], counts[1:-1])

    def test_marked(self):
        fn = lambda x: x.exp().sum(0)  # noqa: E731
        compiled = support.compiled(fn)
        with support.Counted() as c:
            for rows in (4, 7, 100):
                x = r(rows, 3)
                torch._dynamo.mark_dynamic(x, 0)
                support.assert_close(compiled(x), fn(x))
        self.assertEqual((c.compiles, c.variants), (1, 1))


class Left(unittest.TestCase):
    """Operators that Tessera does not take run in PyTorch, which is said once."""

    def test_said_once(self):
        compiled = support.compiled(custom)
        with self.assertLogs("tessera", logging.WARNING) as logs, support.Counted() as c:
            for _ in range(3):
                compiled(r(8))
        self.assertEqual(len(logs.output), 1)
        self.assertRegex(logs.records[0].getMessage(), r"^Tessera: .*1 operator.*tessera_test\.cube")
        self.assertEqual((c.graphs, c.operators_left), (1, 1))

    def test_strict(self):
        with self.assertRaisesRegex(Exception, "strict"):
            support.compiled(custom, strict=True)(r(8))
        support.assert_close(support.compiled(torch.sin, strict=True)(r(8)), r(8).sin())

    def test_options(self):
        for options, text in (({"fast": True}, "no option 'fast'"), ({"threads": "2"}, "must be a int|must be an int"), ({"tf32": "some"}, "must be one of auto, off, conv")):
            with self.subTest(text), self.assertRaisesRegex(Exception, text):
                support.compiled(torch.sin, **options)(r(8))

    def test_other_device(self):
        with self.assertLogs("tessera", logging.WARNING) as logs:
            support.assert_close(support.compiled(torch.sin, device="cuda")(r(8)), r(8).sin())
        self.assertIn("'device' is 'cuda'", logs.output[0])

    def test_host_operators(self):
        """Operators that a program on a GPU would compute on the host are left to PyTorch; shown on the CPU, as if it were one."""

        def fn(x, i):
            y = (x.sin() * 0.01)[i]
            return y.exp() + 1, torch.linalg.det(y @ y.T + torch.eye(29))

        args = r(30, 30), torch.arange(29)
        decide = lambda self, parts: {n: why for s in parts for n, why in s.host_operators().items()}  # noqa: E731
        with unittest.mock.patch.object(backend._GraphCompiler, "on_host", decide), support.Counted() as c, torch.no_grad():
            support.assert_close(support.compiled(fn)(*args), fn(*args))
        self.assertEqual((c.graphs, c.fallback_calls), (1, 0))
        self.assertGreater(c.operators_left, 0)
        for s in c.programs:
            self.assertEqual(s.host_operators(), {})

    def test_collective(self):
        import torch.distributed as dist
        import torch.distributed._functional_collectives as collectives

        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            fn = lambda x: collectives.all_reduce(x.sin() * 2, "sum", dist.group.WORLD).cos() + 1  # noqa: E731
            with support.Counted() as c:
                support.assert_close(support.compiled(fn)(r(8)), fn(r(8)))
            self.assertEqual(c.operators_left, 2)  # all_reduce, wait_tensor
        finally:
            dist.destroy_process_group()

    def test_graph_breaks(self):
        def fn(x):
            y = x.sin() * 2
            torch._dynamo.graph_break()
            return y.cos() + 1

        with support.Counted() as c:
            support.assert_close(support.compiled(fn)(r(8)), fn(r(8)))
        self.assertEqual((c.graphs, c.operators_left), (2, 0))
        with self.assertRaisesRegex(Exception, "graph_break"):
            torch._dynamo.reset()
            torch.compile(fn, backend="tessera", fullgraph=True)(r(8))

    def test_failing_call(self):
        """A call that the library fails runs in PyTorch, from then on; what is an error there is one here."""
        compiled = support.compiled(lambda x: x.exp() + 1)
        compiled(r(8))
        with failing(lambda: tessera.RunError("the device is gone")) as made:
            compiled = support.compiled(lambda x: x.exp() + 1)
            with self.assertLogs("tessera", logging.WARNING) as logs, support.Counted() as c:
                for _ in range(3):
                    support.assert_close(compiled(r(8)), r(8).exp() + 1)
        self.assertEqual((len(made), len(logs.output), c.fallback_calls, c.calls), (1, 1, 3, 0))
        self.assertIn("the device is gone", logs.output[0])

    def test_no_memory(self):
        """The caller gets the error of PyTorch's allocator where it has no memory; that of the library costs one call."""
        errors = []
        with failing(lambda: errors.pop() if errors else None):
            compiled = support.compiled(lambda x: x.exp() + 1)
            support.assert_close(compiled(r(8)), r(8).exp() + 1)
            errors = [torch.OutOfMemoryError("CUDA out of memory")]
            with self.assertRaises(torch.OutOfMemoryError):
                compiled(r(8))
            errors = [tessera.OutOfMemoryError("no memory")]
            with self.assertLogs("tessera", logging.WARNING) as logs, support.Counted() as c:
                for _ in range(3):
                    support.assert_close(compiled(r(8)), r(8).exp() + 1)
        self.assertEqual((len(logs.output), c.fallback_calls, c.calls), (1, 1, 2))

    def test_captured_call(self):
        """While a CUDA graph is captured no error leads to PyTorch's operators, which may not be ready for that."""
        errors = []
        with failing(lambda: errors.pop() if errors else None) as made:
            compiled = support.compiled(lambda x: x.exp() + 1)
            compiled(r(8))
            made[0]._stream = lambda: 0
            for error in (tessera.UsageError("call it once before capturing"), tessera.OutOfMemoryError("no memory")):
                errors = [error]
                with unittest.mock.patch("torch.cuda.is_current_stream_capturing", lambda: True), self.assertRaises(type(error)):
                    compiled(r(8))
                with support.Counted() as c:
                    support.assert_close(compiled(r(8)), r(8).exp() + 1)
                self.assertEqual((c.fallback_calls, c.calls), (0, 1))

    def test_sizes_that_are_data(self):
        """Sizes that follow from values: in programs, and where PyTorch computes in the place of one."""
        functions = (
            lambda x: x[x > 0].exp(),
            lambda x: (x[x > 0] * 2).sum() + torch.nonzero(x > 0).shape[0],
            lambda x: torch.nonzero(x > 0)[:, 0].sum(),
        )
        for n, fn in enumerate(functions):
            with self.subTest(n), torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), torch.no_grad(), support.Counted() as c:
                want = fn(r(4, 8))
                support.assert_close(support.compiled(fn)(r(4, 8)), want)
                for s in c.programs:
                    s.failed = "as a call that failed leaves it"
                    support.assert_close(s._run_eager([r(4, 8)]), s(r(4, 8)))

    def test_index_out_of_range(self):
        compiled = support.compiled(lambda x, i: x[i].exp())
        for at in (torch.tensor([0, 9]), torch.tensor([2, 1])):
            try:
                want: Any = r(3)[at].exp()
            except Exception as e:
                with self.assertRaises(type(e)):
                    compiled(r(3), at)
            else:
                support.assert_close(compiled(r(3), at), want)


if __name__ == "__main__":
    unittest.main()
