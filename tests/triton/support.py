"""Helpers for the tests of Triton's language: texts that the command verifies, launches on NumPy's arrays, and errors by place."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if importlib.util.find_spec("tessera") is None:  # neither PYTHONPATH nor an installed wheel has it
    sys.path.append(str(ROOT / "build" / "python"))
COMMAND = os.environ.get("TESSERA_COMMAND", str(ROOT / "build/bin/tessera"))

import numpy  # noqa: E402

import tessera  # noqa: E402
import tessera.triton as triton  # noqa: E402
import tessera.triton.language as tl  # noqa: E402


def text_of(kernel: Any, *arguments: Any, grid: Any = (1,), **constants: Any) -> str:
    """The tile IR of a kernel for arguments."""
    return str(kernel.warmup(*arguments, grid=grid, **constants).asm["tile"])


def verify(text: str, *, ptx: bool = False) -> str:
    """Parses and verifies a text by the command, or with ptx compiles it for sm_90a; what the command prints."""
    with tempfile.NamedTemporaryFile("w", suffix=".tile") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([COMMAND, "kernel", file.name, "--arch", "sm_90a", "--emit", "ptx" if ptx else "tile"], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise AssertionError(f"{done.stderr}{text}")
    return done.stdout


def run(kernel: Any, *arguments: Any, grid: Any = (1,), **constants: Any) -> None:
    """Verifies a kernel's text, and launches it."""
    verify(text_of(kernel, *arguments, grid=grid, **constants))
    kernel[grid](*arguments, **constants)


def error(result: Any, expected: Any) -> float:
    """||result - expected|| / ||expected||, 0 where both have the same NaN and infinities and are else equal."""
    a, b = (numpy.asarray(x).astype(numpy.float64) for x in (result, expected))
    if not numpy.array_equal(numpy.isnan(a), numpy.isnan(b)):
        return float("inf")
    same = (a == b) | numpy.isnan(a)
    a, b = numpy.where(same, 0, a), numpy.where(same, 0, b)
    scale = float(numpy.linalg.norm(numpy.where(numpy.isfinite(numpy.asarray(expected, numpy.float64)), numpy.asarray(expected, numpy.float64), 0)))
    return float(numpy.linalg.norm(a - b)) / (scale or 1.0)


class KernelTest(unittest.TestCase):
    """Checks of values and of errors."""

    def close(self, result: Any, expected: Any, tolerance: float = 1e-6, what: str = "") -> None:
        """Compares by norm; an exact comparison for tolerance 0."""
        self.assertLessEqual(error(result, expected), tolerance, what)

    def refused(self, kernel: Any, *arguments: Any, says: str, at: str, kind: type[tessera.Error] = triton.CompilationError, **keywords: Any) -> None:
        """The kernel is an error that contains `says`, at the line and column where `at` begins in its source."""
        with self.assertRaises(kind) as raised:
            text_of(kernel, *arguments, **keywords)
        e = raised.exception
        self.assertIn(says, str(e))
        file, line, column = re.fullmatch(r"(.*):(\d+):(\d+)", e.location).groups()  # type: ignore[union-attr]
        self.assertEqual(Path(file).name, Path(sys.modules[kernel.fn.__module__].__file__ or "").name)
        source = Path(file).read_text(encoding="utf-8").splitlines()[int(line) - 1]
        self.assertTrue(source[int(column) - 1 :].startswith(at), f"{e.location} is at {source[int(column) - 1:]!r}, expected {at!r}")


__all__ = ["COMMAND", "ROOT", "KernelTest", "error", "numpy", "run", "text_of", "tl", "triton", "verify"]
