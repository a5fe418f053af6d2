"""The C++ run-time library that the extension needs.

A process has one libstdc++: the system's where there is one, since other extensions need theirs to be as new as it is. The
wheel carries its own for systems without one.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

_OWN = Path(__file__).parent / "lib" / "runtime"


def _provide(name: str) -> None:
    try:
        ctypes.CDLL(name)
    except OSError:
        if (own := _OWN / name).exists():
            ctypes.CDLL(str(own), mode=ctypes.RTLD_GLOBAL)


for _name in ("libgcc_s.so.1", "libstdc++.so.6"):
    _provide(_name)
