"""Loaded models in graphs of PyTorch: what tracers, torch.export, modes and transforms make of a call."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx.parser
import support  # puts the package on the path
import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import tessera

MODEL = support.ROOT / "models" / "small" / "mlp.onnx"  # float32[batch, 64] -> float32[batch, 10]


class Module(torch.nn.Module):
    def __init__(self, model: tessera.Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: torch.Tensor) -> Any:
        return self.model(*args)


class Recorded(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.model = tessera.load(MODEL, "cpu", threads=1)
        self.x = torch.rand(8, 64)
        self.want = self.model(self.x)

    def load(self, graph: str) -> tessera.Model:
        onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {graph}'), self.folder / "model.onnx")
        return tessera.load(self.folder / "model.onnx", "cpu", threads=1)

    def same(self, got: torch.Tensor, rows: int = 8) -> None:
        self.assertIs(type(got), torch.Tensor)
        torch.testing.assert_close(got, self.want[:rows])

    def test_tracers(self) -> None:
        def calls(x: torch.Tensor) -> Any:
            return self.model(x)

        self.same(torch.jit.trace(calls, self.x)(self.x[:3]), 3)
        for mode in ("real", "fake", "symbolic"):
            self.same(make_fx(calls, tracing_mode=mode)(self.x)(self.x[:3]), 3)
        self.same(make_fx(torch.func.functionalize(calls))(self.x)(self.x[:3]), 3)
        self.same(torch.compile(calls, backend="aot_eager")(self.x))
        (name,) = (n.args[1] for n in make_fx(calls)(self.x).graph.nodes if n.target is torch.ops.tessera.call.default)
        torch.library.opcheck(torch.ops.tessera.call.default, ([self.x], name))

    def test_export(self) -> None:
        """Saved, and run by another process that has not loaded the model."""
        program = torch.export.export(Module(self.model), (self.x,), dynamic_shapes=(({0: torch.export.Dim("rows")},),))
        self.same(program.run_decompositions().module()(self.x[:3]), 3)
        torch.export.save(program, self.folder / "program.pt2")
        torch.save((self.x[:3], self.want[:3]), self.folder / "values.pt")
        code = (
            "import sys, torch, tessera.recorded\n"
            "x, want = torch.load(sys.argv[1] + '/values.pt')\n"
            "torch.testing.assert_close(torch.export.load(sys.argv[1] + '/program.pt2').module()(x), want)"
        )
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(self.folder)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_sizes(self) -> None:
        """Sizes of outputs are expressions over the inputs'; those that no input gives are data."""
        graph = """(float[n, m] x, float[n, m] w) => (float[k, q] y, float[2, n, m] z, float[a, b] f) {
            y = Concat<axis = 0>(x, w)  zero = Constant<value_ints = [0]>()  a1 = Unsqueeze(x, zero)  b1 = Unsqueeze(w, zero)
            z = Concat<axis = 0>(a1, b1)  two = Constant<value_ints = [2]>()  one = Constant<value_ints = [1]>()
            far = Constant<value_ints = [1000000]>()  f = Slice(x, zero, far, one, two) }"""
        model = self.load(graph)
        rows = {0: torch.export.Dim("rows", min=2)}
        x = torch.rand(4, 5)
        program = torch.export.export(Module(model), (x, x), dynamic_shapes=((rows, rows),))
        shapes = [tuple(map(str, n.meta["val"].shape)) for n in program.graph.output_node().args[0]]
        (n,) = {str(s) for s in shapes[1]} - {"2", "5"}
        self.assertEqual(shapes, [(f"2*{n}", "5"), ("2", n, "5"), (n, "3")])
        for got, want in zip(program.module()(x, x), model(x, x), strict=True):
            torch.testing.assert_close(got, want)
        with self.assertRaisesRegex(RuntimeError, r"dimension 0 of input 'w' is not as the model declares it, w: float32\[n, m\]"):
            make_fx(model, tracing_mode="symbolic")(x, x[:3])
        nonzero = self.load("(float[n] x) => (int64[1, k] y) { y = NonZero(x) }")
        program = torch.export.export(Module(nonzero), (torch.ones(4),))
        self.assertEqual(program.module()(torch.tensor([0.0, 1, 1, 0])).tolist(), [[1, 2]])
        with self.assertRaises(DynamicOutputShapeException):
            nonzero(FakeTensorMode().from_tensor(torch.ones(4)))

    def test_tensors_that_stand_for_others(self) -> None:
        mode = FakeTensorMode()
        y = self.model(mode.from_tensor(self.x))
        self.assertIsInstance(y, FakeTensor)
        self.assertEqual((y.shape, y.dtype), (torch.Size([8, 10]), torch.float32))
        self.same(torch.func.functionalize(self.model)(self.x))

    def test_vmap(self) -> None:
        x = self.x.reshape(4, 2, 64)
        self.same(torch.vmap(self.model)(x).reshape(8, 10))
        self.same(torch.vmap(self.model, in_dims=1, out_dims=1)(x).reshape(8, 10))
        self.same(torch.vmap(torch.vmap(self.model))(x[:, :, None]).reshape(8, 10))
        add = self.load("(float[n] x, float[n] w) => (float[n] y) { y = Add(x, w) }")
        torch.testing.assert_close(torch.vmap(add, in_dims=(0, None))(self.x, self.x[0]), self.x + self.x[0])

    def check(self, kind: type[tessera.Error], message: str, call: Callable[[], Any]) -> None:
        with self.subTest(message=message):
            with self.assertRaisesRegex(kind, message):
                call()

    def test_errors(self) -> None:
        def loss(x: torch.Tensor) -> torch.Tensor:
            return self.model(x).sum()

        for differentiate in (torch.func.grad(loss), lambda x: torch.func.jvp(loss, (x,), (x,)), torch.vmap(torch.func.grad(lambda x: loss(x[None])))):
            self.check(tessera.UnsupportedError, "a loaded model has no gradients", lambda: differentiate(self.x))
        self.check(tessera.UnsupportedError, "has no gradients", lambda: make_fx(lambda x: loss(x).backward())(self.x.clone().requires_grad_()))
        weights = torch.ones(10)  # what is not differentiated by may pass through a model
        torch.testing.assert_close(torch.func.grad(lambda w: (self.model(self.x * 1) * w).sum())(weights), self.want.sum(0))
        self.check(tessera.UsageError, "a stream is given in a call that PyTorch traces", lambda: make_fx(lambda x: self.model(x, stream=1))(self.x))
        self.check(tessera.InputError, "vmap over a dimension of size 0", lambda: torch.vmap(self.model)(torch.rand(0, 2, 64)))
        self.check(tessera.InputTypeError, "input 'x' has dtype torch.float64; the model declares", lambda: make_fx(self.model)(self.x.double()))
        self.check(tessera.InputError, "input 'x' has 1 dimension", lambda: make_fx(self.model)(self.x[0]))

    def test_states(self) -> None:
        class Counter(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("count", torch.zeros(()))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                self.count.add_(1)
                return x + self.count

        torch.export.save(torch.export.export(Counter(), (torch.ones(2),)), self.folder / "counter.pt2")
        counter = tessera.load(self.folder / "counter.pt2", "cpu")
        self.check(tessera.UnsupportedError, "change its states, which a graph of PyTorch cannot record", lambda: make_fx(counter)(torch.ones(2)))
        torch.testing.assert_close(counter(torch.ones(2)), torch.full((2,), 2.0))


if __name__ == "__main__":
    unittest.main()
