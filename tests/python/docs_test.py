"""Python in the pages of docs/, run as printed in a folder with a model.onnx: x: float32[batch, 64]."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import unittest

from support import FOLDER, ROOT

PAGES = {"serving": "0\ntessera_calls_total{model=\"mlp\"} 1\n"}


class Docs(unittest.TestCase):
    def test_python_of_pages(self) -> None:
        shutil.copy(ROOT / "models" / "small" / "mlp.onnx", FOLDER / "model.onnx")
        for page, expected in PAGES.items():
            code = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
            self.assertTrue(code, page)
            for block in code:
                with self.subTest(page=page, code=block):
                    path = os.pathsep.join(os.path.abspath(p) for p in sys.path if p)
                    done = subprocess.run([sys.executable, "-c", block], cwd=FOLDER, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
                    self.assertEqual((done.returncode, done.stdout), (0, expected), done.stderr)


if __name__ == "__main__":
    unittest.main()
