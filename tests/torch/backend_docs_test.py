"""docs/pytorch.md: its programs run as printed, in order; what it shows of tessera.explain is what that prints; what it lists is all.

    python tests/torch/backend_docs_test.py            TESSERA_BLESS=1 writes the output into the page
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import support

import tessera
from tessera._options import Options

PAGE = support.ROOT / "docs" / "pytorch.md"
TEXT = PAGE.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.M | re.S)


def run(program: str) -> str:
    """The output of a program, run as the file net.py."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "net.py").write_text(program, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "net.py"], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


class Page(unittest.TestCase):
    def test_programs_run(self):
        # With the import that registers the backend where the package is not installed.
        run("import tessera.backend\n" + "\n".join(blocks("python")))
        whole = [b for b in blocks("python") if "tessera.explain" not in b]
        self.assertEqual(run("import tessera.backend\n" + "\n".join([*whole, 'print(tessera.stats()["operators_left"])'])), "0\n")

    def test_explanation(self):
        (shown,) = blocks("text")
        printed = run("import torch\n\n" + next(b for b in blocks("python") if "tessera.explain" in b))
        first = printed[: printed.index("\n\ngraph 0:")] + "\n"  # without the list of programs
        if os.environ.get("TESSERA_BLESS"):
            PAGE.write_text(TEXT.replace(f"```text\n{shown}```", f"```text\n{first}```"), encoding="utf-8")
        else:
            priced = re.compile(r"[\d.e-]+ us")  # by the figures of the machine
            self.assertEqual(priced.sub("us", first), priced.sub("us", shown))

    def test_tables_are_complete(self):
        named = set(re.findall(r"`(\w+)`", "\n".join(line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `"))))
        self.assertEqual(named, set(Options.names()) | set(tessera.stats()))


if __name__ == "__main__":
    unittest.main()
