"""The package's logger, "tessera"."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any


class _Named(logging.LoggerAdapter):  # type: ignore[type-arg]
    """Messages that name the package: where nobody configures logging, a message is printed without its logger's name."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[str, MutableMapping[str, Any]]:
        return f"Tessera: {msg}", kwargs


log = _Named(logging.getLogger("tessera"), {})
