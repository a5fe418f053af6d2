"""The package's types: `mypy --strict` accepts them, and the extension has what _native.pyi says."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import subprocess
import sys
import unittest

from support import FOLDER, ROOT

from tessera import _native


class Types(unittest.TestCase):
    @unittest.skipUnless(importlib.util.find_spec("mypy") and importlib.util.find_spec("torch"), "needs mypy and PyTorch (tools/setup --wheel --torch)")
    def test_mypy(self) -> None:
        done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", FOLDER / "mypy"], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_stub(self) -> None:
        """Functions, classes, their members and the parameters of each."""
        stub = ast.parse((ROOT / "python" / "tessera" / "_native.pyi").read_text(encoding="utf-8"))
        seen = self.compare(stub.body, _native)
        self.assertEqual(seen, {n for n in vars(_native) if not n.startswith("_")})
        for kind in (c for c in stub.body if isinstance(c, ast.ClassDef)):
            of = getattr(_native, kind.name)
            own = {n for n in vars(of) if not n.startswith("_") or n.startswith("__dlpack")}
            self.assertEqual(self.compare(kind.body, of), own)

    def compare(self, body: list[ast.stmt], real: object) -> set[str]:
        names = set()
        for item in body:
            if isinstance(item, ast.ClassDef):
                names.add(item.name)
            if not isinstance(item, ast.FunctionDef):
                continue
            constructor = item.name == "__new__"  # whose parameters are those of the class
            if not constructor:
                names.add(item.name)
            if any(isinstance(d, ast.Name) and d.id == "property" for d in item.decorator_list):
                self.assertTrue(inspect.isgetsetdescriptor(getattr(real, item.name)), item.name)
                continue
            a = item.args
            written = [p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs) if p.arg not in ("self", "cls")]
            described = real if constructor else getattr(real, item.name)
            parameters = [p for p in inspect.signature(described).parameters if p != "self"]
            self.assertEqual(written, parameters, item.name)
            self.assertTrue(described.__doc__, item.name)
        return names


if __name__ == "__main__":
    unittest.main()
