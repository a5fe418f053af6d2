"""`import triton` as Tessera's: in a process of its own, with PyTorch where it is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = """
import sys
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda.libdevice import tanh
from triton.runtime import driver
from triton.tools.tensor_descriptor import TensorDescriptor
import triton.runtime.driver, triton.testing


@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=2)], key=["n"])
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + libdevice.tanh(tl.load(y + at, mask=at < n)), mask=at < n)


device = driver.active.get_active_torch_device()
x = torch.rand(1000, device="cuda")
y = torch.rand_like(x).to("cuda:0").cuda()
out = torch.empty(1000, device=torch.device("cuda", 0))
assert x.device.type == out.device.type == "cpu" and torch.cuda.is_available() and x.device == device and x.is_cuda
assert torch.cuda.get_device_capability()[0] * 10 == driver.active.get_current_target().arch // 10 * 10
assert sys.argv[1:] == ["a", "-b"], sys.argv
generator = torch.Generator(device="cuda").manual_seed(1)
torch.randn(3, generator=generator, device="cuda")
torch.nn.Linear(2, 2).to("cuda")(torch.zeros(1, 2, device="cuda"))
grid = lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)
add[grid](x, y, out, 1000)
torch.testing.assert_close(out, x + torch.tanh(y))
print("done")
"""


class Install(unittest.TestCase):
    def run_script(self, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "script.py"
            path.write_text(text, encoding="utf-8")
            return subprocess.run([sys.executable, "-m", "tessera.triton", *arguments[:2], str(path), *arguments[2:]], capture_output=True, text=True, timeout=300)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "needs PyTorch (tools/setup --torch)")
    def test_script(self) -> None:
        """A script that says cuda, on host tensors."""
        done = self.run_script(SCRIPT, "--device", "cpu", "a", "-b")
        self.assertEqual((done.returncode, done.stdout), (0, "done\n"), done.stderr)

    def test_without_torch(self) -> None:
        """Neither NumPy nor PyTorch is imported."""
        done = self.run_script("import sys, triton, triton.language as tl\nassert not {'torch', 'numpy'} & set(sys.modules)\nprint(triton.cdiv(5, 2), triton.next_power_of_2(5), triton.__version__)", "--device", "cuda")
        self.assertEqual((done.returncode, done.stdout), (0, "3 8 3.9.0\n"), done.stderr)

    def test_twice(self) -> None:
        """install() again changes nothing; after another Triton it is an error."""
        text = "import sys, types, tessera.triton as t\nt.install()\nt.install()\nsys.modules['triton'] = types.ModuleType('triton')\ntry:\n    t.install()\nexcept ImportError as e:\n    print(e)"
        done = self.run_script(text, "--device", "cuda")
        self.assertIn("imported already", done.stdout, done.stderr)


if __name__ == "__main__":
    unittest.main()
