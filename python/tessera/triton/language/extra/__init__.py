"""triton.language.extra: libdevice, and what belongs to GPUs."""

from __future__ import annotations

from . import cuda, libdevice

__all__ = ["cuda", "libdevice"]
