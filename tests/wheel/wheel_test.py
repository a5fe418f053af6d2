"""The wheel in dist/, made first where it is older than the build: installed in fresh environments of every CPython that is here,
without a compiler on the path; and the examples of README.md, run as printed.
"""

from __future__ import annotations

import email
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "small" / "mlp.onnx"
LIMIT = 60_000_000  # bytes of the wheel

# The program of an environment without NumPy and PyTorch.
ALONE = f"""
import sys, json, tessera
assert not {{"torch", "numpy", "onnx"}} & set(sys.modules), sorted(sys.modules)
model = tessera.load({str(MODEL)!r}, "cpu")
assert [str(i) for i in model.inputs + model.outputs] == ["x: float32[batch, 64]", "y: float32[batch, 10]"], model
assert "matmul" in model.explain(batch=3) and json.loads(model.explain("json"))
try:
    model([1.0])
except TypeError as e:
    assert "'x' is of type list" in str(e), e
else:
    raise AssertionError("no error")
try:
    tessera.load("nowhere.onnx")
except OSError as e:
    assert e.name == "file-error", e
"""


def wheel() -> Path:
    """Makes the wheel where there is none that is newer than what it holds."""
    held = [*(ROOT / "python" / "tessera").glob("*.py*"), *(ROOT / "build").glob("python/tessera/*.so"), *(ROOT / "build").glob("lib/libtessera.so"), ROOT / "pyproject.toml"]
    for path in (ROOT / "dist").glob("tessera-*.whl"):
        if path.stat().st_mtime > max(p.stat().st_mtime for p in held):
            return path
    subprocess.run([ROOT / "tools" / "wheel"], check=True)
    (path,) = (ROOT / "dist").glob("tessera-*.whl")
    return path


def pythons() -> list[str]:
    """This one, and of each other version from 3.10 on the one on the path, if it starts."""
    found = {sys.version_info[:2]: sys.executable}
    for minor in range(10, 20):
        path = shutil.which(f"python3.{minor}")
        if path and subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0:
            found.setdefault((3, minor), path)
    return list(found.values())


class Environment:
    """A virtual environment with the wheel, whose programs see nothing else of this machine's path."""

    def __init__(self, python: str, folder: Path, *options: str) -> None:
        self.folder, self.bin = folder, folder / "venv" / "bin"
        subprocess.run([python, "-m", "venv", folder / "venv"], check=True)
        self.run("pip", "install", "--quiet", "--disable-pip-version-check", *options, WHEEL)

    def run(self, program: str, *arguments: object, **options: object) -> str:
        done = subprocess.run(
            [self.bin / program, *map(str, arguments)], capture_output=True, text=True, cwd=self.folder,
            env={"PATH": str(self.bin), "HOME": str(self.folder), "OMP_WAIT_POLICY": "passive"}
            | {name: value for name, value in os.environ.items() if name.startswith("PIP_")},
        )  # fmt: skip
        if done.returncode != 0:
            raise AssertionError(f"{program} {arguments} ended with {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout


class Wheel(unittest.TestCase):
    def test_file(self) -> None:
        self.assertRegex(WHEEL.name, r"^tessera-[\d.]+-cp310-abi3-manylinux_2_36_x86_64\.whl$")
        self.assertLess(WHEEL.stat().st_size, LIMIT)
        with zipfile.ZipFile(WHEEL) as archive:
            names = archive.namelist()
            (metadata,) = (n for n in names if n.endswith(".dist-info/METADATA"))
            needs = email.message_from_bytes(archive.read(metadata)).get_all("Requires-Dist", [])
        self.assertEqual([n for n in needs if "extra ==" not in n], ["numpy"])
        for part in ("tessera/_native.abi3.so", "tessera/py.typed", "tessera/_native.pyi", "tessera/bin/tessera"):
            self.assertIn(part, names)
        print(f"{WHEEL.name}: {WHEEL.stat().st_size / 1e6:.1f} MB", flush=True)

    def test_licences(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            with zipfile.ZipFile(WHEEL) as archive:
                archive.extractall(folder)
            check = subprocess.run([sys.executable, ROOT / "tests" / "install" / "licences.py", folder], capture_output=True, text=True)
            self.assertEqual(check.returncode, 0, check.stdout + check.stderr)
            (info,) = Path(folder).glob("*.dist-info")
            metadata = email.message_from_bytes((info / "METADATA").read_bytes())
            texts = sorted(str(p.relative_to(info / "licenses")) for p in (info / "licenses").rglob("*") if p.is_file())
            components = json.loads((info / "sboms" / "tessera.cdx.json").read_text(encoding="utf-8"))["components"]
        self.assertEqual(metadata.get_all("License-File"), texts)
        self.assertIn("LICENSE", texts)
        expression = f" AND {metadata['License-Expression']} AND "
        for component in components:
            for part in component["licenses"][0]["expression"].split(" AND "):
                self.assertIn(f" AND {part} AND ", expression)

    def test_installed(self) -> None:
        for python in pythons():
            with self.subTest(python=python), tempfile.TemporaryDirectory() as folder:
                here = Environment(python, Path(folder), "--no-deps", "--no-index")
                here.run("python", "-c", ALONE)
                self.assertIn("explain", here.run("tessera", "--help"))
                self.assertIn("y", here.run("tessera", "run", MODEL, "--shape", "batch=2"))
                self.assertIn("matmul", here.run("tessera", "explain", MODEL))
                print(f"installed: {here.run('python', '--version').strip()}", flush=True)


@unittest.skipUnless(importlib.util.find_spec("torch"), "needs PyTorch (tools/setup --torch)")
class Readme(unittest.TestCase):
    """PyTorch comes from the environment that runs this, whose packages are found after those of the wheel."""

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.here = Environment(sys.executable, Path(folder.name))
        (cls.here.folder / "models").symlink_to(ROOT / "models")
        (site,) = (cls.here.folder / "venv" / "lib").glob("python*/site-packages")
        ours = [p for p in sys.path if p.endswith("site-packages")]
        (site / "others.pth").write_text("\n".join(ours) + "\n")

    def test_examples(self) -> None:
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        part = text[text.index("## In Python") : text.index("## Two commands")]
        parts = re.findall(r"^```python\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
        commands = re.findall(r"^    (tessera .*)$", part, re.MULTILINE)
        self.assertGreaterEqual(len(parts), 4)
        self.assertGreaterEqual(len(commands), 2)
        for i, example in enumerate(parts):
            with self.subTest(example=example):
                self.assertLessEqual(len(example.splitlines()), 10)
                (self.here.folder / f"example{i}.py").write_text(example)
                print(f"---- example {i + 1}\n{self.here.run('python', f'example{i}.py')}", flush=True)
        for command in commands:
            with self.subTest(command=command):
                print(f"---- {command}\n{self.here.run(*shlex.split(command.split('#')[0]))}", flush=True)


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    WHEEL = wheel()
    unittest.main()
