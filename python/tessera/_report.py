"""Reports of a compile as text."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from ._command import program
from ._errors import RunError


def text(path: str, device: str, sizes: Mapping[str, int]) -> str:
    """What `tessera explain` prints of a model. Raises RunError with the command's message."""
    arguments = [program(), "explain", path, "--device", device]
    for symbol, size in sizes.items():
        arguments += ["--shape", f"{symbol}={size}"]
    done = subprocess.run(arguments, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise RunError(f"tessera explain ended with {done.returncode}: {done.stderr.strip()}", code="TES-4999", name="internal")
    return done.stdout
