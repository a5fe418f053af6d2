"""Printing of kernels, while they are compiled."""

from __future__ import annotations

from typing import Any

from .._log import log

_warned: set[str] = set()


def static_print(*values: Any, sep: str = " ", end: str = "\n", **keywords: Any) -> None:
    """tl.static_print: prints at compile time."""
    print(*values, sep=sep, end=end)


def device_print(*values: Any) -> None:
    """tl.device_print: programs print nothing; the log says so once."""
    text = repr(values[0]) if values else ""
    if text not in _warned:
        _warned.add(text)
        log.warning("device_print(%s): kernels compiled by Tessera print nothing; store the values to a tensor instead", text)
