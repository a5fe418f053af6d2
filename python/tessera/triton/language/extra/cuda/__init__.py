"""triton.language.extra.cuda: launches that depend on each other are ordered by their stream; registers of a GPU are refused."""

from __future__ import annotations

from typing import Any

from ...._errors import lacking
from .. import libdevice


def gdc_wait() -> None:
    """Nothing: a launch begins when those before it on its stream have ended."""


def gdc_launch_dependents() -> None:
    """Nothing: a launch begins when those before it on its stream have ended."""


def _register(*arguments: Any) -> Any:
    """Refused: a register of one kind of device."""
    raise lacking("special register")


smid = globaltimer = num_threads = num_warps = _register

__all__ = ["gdc_launch_dependents", "gdc_wait", "globaltimer", "libdevice", "num_threads", "num_warps", "smid"]
