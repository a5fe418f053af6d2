"""tessera.explain(): graphs, breaks with the user's lines, what PyTorch keeps, and reports as those of `tessera explain`.

    python tests/torch/explain_test.py
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import unittest
from pathlib import Path

import support
import torch

import tessera
from tessera._command import program


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(16, 64)
        self.norm = torch.nn.LayerNorm(64)

    def forward(self, x):
        y = self.norm(self.up(x)).relu()
        if y.sum() > 1e9:
            y = y * 2
        return torch.fft.fft(y.exp() + 1).real


def line_of(text: str) -> int:
    """The number of a line of this file."""
    return next(i for i, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.strip() == text)


class Explain(unittest.TestCase):
    def setUp(self) -> None:
        self.x = torch.randn(4, 16)

    def test_breaks(self):
        with torch.no_grad():
            e = tessera.explain(Net(), self.x)
        (b,) = e.breaks
        self.assertEqual((b.reason, b.line), ("a branch on the value of a tensor", "if y.sum() > 1e9:"))
        self.assertEqual(b.place, f"explain_test.py:{line_of('if y.sum() > 1e9:')} in forward")
        self.assertEqual([g.name for g in e.graphs], ["graph 0", "graph 1"])
        self.assertEqual((b.graph, b.bytes), ("graph 0", 4 * 64 * 4 + 1))  # y, and the condition
        self.assertIn("where()", b.help)

    def test_left(self):
        with torch.no_grad():
            e = tessera.explain(Net(), self.x)
        left = {x.operator: x for x in e.graphs[1].left}
        fft = left["aten._fft_r2c.default"]
        self.assertIn("complex64", fft.reason)
        self.assertEqual(fft.place, f"explain_test.py:{line_of('return torch.fft.fft(y.exp() + 1).real')}")
        self.assertEqual(fft.bytes, 4 * 64 * 4)  # what a subgraph made; what it makes is read by PyTorch
        self.assertEqual(e.graphs[0].left, [])

    def test_what_dynamo_gave_no_graph_of(self):
        for kind in (torch.nn.LSTM, torch.nn.GRU):
            layer = kind(16, 8)
            e = tessera.explain(layer, self.x)
            self.assertEqual((e.graphs, e.breaks, len(e.skipped)), ([], [], 1))
            self.assertIn("allow_rnn", str(e))
            e = tessera.explain(lambda x, layer=layer: layer(x)[0].relu() + 1, self.x)
            self.assertEqual((len(e.skipped), {g.name.split()[1] for g in e.graphs}), (1, {"0"}))
            self.assertIn("allow_rnn", e.json()["skipped"][0])
        self.assertIn("captured nothing", str(tessera.explain(lambda x: 3, self.x)))
        with torch.no_grad():  # a break that a graph ends with stands there
            self.assertEqual(tessera.explain(Net(), self.x).skipped, [])

    def test_backward(self):
        e = tessera.explain(torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU()), self.x)
        forward, backward = e.graphs
        self.assertEqual((forward.kind, backward.kind, e.breaks), ("forward", "backward", []))
        self.assertEqual(forward.boundary_bytes, 4 * 32 * 4)
        self.assertGreater(forward.saved_bytes, 0)
        self.assertEqual(backward.boundary_bytes, (16 * 32 + 32) * 4)

    def test_text(self):
        """The summary is what the first lines say; every number in it is json()'s."""
        with torch.no_grad():
            e = tessera.explain(Net(), self.x)
        lines = str(e).splitlines()
        self.assertEqual(lines[0], f"2 graphs, 1 graph break, {sum(g.launches for g in e.graphs)} launches")
        self.assertEqual(lines[2].split()[:3], ["graph", "0", str(e.graphs[0].launches)])
        text = str(e)
        for part in ("graph break at explain_test.py:", "It ends graph 0: 1.02 kB", "left to PyTorch", "norm: native_layer_norm (explain_test.py:"):
            self.assertIn(part, text)
        self.assertNotIn("torch_dynamo_resume_in", text)

    def test_json(self):
        """Programs have the members that the command's JSON has of the same module, exported."""
        module = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.LayerNorm(32)).eval()
        with torch.no_grad():
            ours = json.loads(json.dumps(tessera.explain(module, self.x).json()))
        (report,) = ours["graphs"][0]["programs"]
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/model.pt2"
            torch.export.save(torch.export.export(module, (self.x,)), path)
            out = subprocess.run([program(), "explain", path, "--format", "json"], stdout=subprocess.PIPE, check=True, text=True).stdout
        theirs = json.loads(out)
        self.assertEqual(set(theirs) ^ set(report), set())
        self.assertEqual([s["id"] for s in report["steps"]], [s["id"] for s in theirs["steps"]])
        for a, b in zip(report["steps"], theirs["steps"]):
            self.assertEqual(set(b) - set(a), {"nest"} & set(b))

    def test_compiled_and_options(self):
        compiled = torch.compile(Net(), backend="inductor")
        with torch.no_grad():
            self.assertEqual(len(tessera.explain(compiled, self.x, dynamic=True).graphs), 2)
            with self.assertRaisesRegex(Exception, "strict"):
                tessera.explain(Net(), self.x, options={"strict": True})

    def test_error_of_the_function(self):
        with self.assertRaises(ZeroDivisionError):
            tessera.explain(lambda x: x / (1 // 0), self.x)

    def test_counts(self):
        with torch.no_grad(), support.Counted() as c:
            e = tessera.explain(Net(), self.x)
        self.assertEqual((c.graphs, c.operators_left), (len(e.graphs), sum(x.count for g in e.graphs for x in g.left)))


if __name__ == "__main__":
    unittest.main()
