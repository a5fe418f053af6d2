"""The C++ run-time library that the extension and the program need.

A process has one libstdc++: the system's where there is one, since other extensions need theirs to be as new as it is. The
wheel carries its own for systems without one.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_OWN = Path(__file__).parent / "lib" / "runtime"


def _provide(name: str) -> bool:
    """Loads the system's library, else ours: true for ours."""
    try:
        ctypes.CDLL(name)
        return False
    except OSError:
        if (own := _OWN / name).exists():
            ctypes.CDLL(str(own), mode=ctypes.RTLD_GLOBAL)
            return True
        raise


_ours = [_provide(name) for name in ("libgcc_s.so.1", "libstdc++.so.6")]


def environment() -> dict[str, str]:
    """The variables with which the program `tessera` finds the same libraries."""
    variables = dict(os.environ)
    if any(_ours):
        variables["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, (str(_OWN), variables.get("LD_LIBRARY_PATH"))))
    return variables
