"""Reports of a compile as text."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

from ._command import program
from ._errors import Error, RunError, make_error
from ._libraries import environment


def text(path: str, device: str, sizes: Mapping[str, int]) -> str:
    """The text that `tessera explain` prints of a model. Raises the command's error."""
    arguments = [program(), "explain", path, "--device", device]
    for symbol, size in sizes.items():
        arguments += ["--shape", f"{symbol}={size}"]
    done = subprocess.run(arguments, capture_output=True, text=True, errors="replace", check=False, env=environment())
    if done.returncode != 0:
        raise _error(done.stderr.strip(), done.returncode)
    return done.stdout


def _error(text: str, ended: int) -> Error:
    """The error of a command that wrote "error CODE NAME: MESSAGE" and a line "  note: ..." for each note."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith("error TES-")), None)
    found = re.match(r"error (TES-\d+) ([a-z-]+): (.*)", lines[first]) if first is not None else None
    if first is None or found is None:
        return RunError(f"tessera explain ended with {ended}: {text}")
    notes = [line.removeprefix("  note: ") for line in lines[first + 1 :]]
    return make_error(found[1], found[2], "", found[3], notes)
