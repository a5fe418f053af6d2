"""Errors of Tessera as Python exceptions."""

from __future__ import annotations

from collections.abc import Sequence


class Error(Exception):
    """An error of Tessera. The base class of all errors of this package.

    code: stable, such as "TES-3008"; name: the same as a word, such as "bad-input"; location: the file and node, or
    empty; message: what is wrong; notes: causes, and what to do; output: name of the first result of the node at fault,
    exactly as the model has it, or empty.
    """

    code: str = "TES-4999"
    name: str = "internal"

    def __init__(self, message: str = "", *, code: str | None = None, name: str | None = None, location: str = "", notes: Sequence[str] = (), output: str = "") -> None:
        if code is not None:
            self.code = code
        if name is not None:
            self.name = name
        self.location = location
        self.message = message
        self.notes = tuple(notes)
        self.output = output
        super().__init__(self._text())

    def _text(self) -> str:
        where = f"{self.location}: " if self.location else ""
        notes = "".join(f"\n  note: {note}" for note in self.notes)
        return f"{where}{self.message} [{self.code} {self.name}]{notes}"

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return _again, (type(self), self.message, self.code, self.name, self.location, self.notes, self.output)


def _again(kind: type[Error], message: str, code: str, name: str, location: str, notes: Sequence[str], output: str = "") -> Error:
    return kind(message, code=code, name=name, location=location, notes=notes, output=output)


class InputError(Error, ValueError):
    """An input whose shape, sizes or memory do not fit the model."""

    code = "TES-3008"
    name = "bad-input"


class InputTypeError(Error, TypeError):
    """An input of the wrong kind or dtype, a missing one, or one that the model does not have."""

    code = "TES-3008"
    name = "bad-input"


class UsageError(Error, ValueError):
    """An argument that no call can have, such as a device that does not exist."""

    code = "TES-1001"
    name = "usage"


class UnsupportedError(Error, NotImplementedError):
    """A valid model that needs what Tessera does not have."""

    code = "TES-2003"
    name = "unsupported-feature"


class ModelError(Error, ValueError):
    """A model, or a file of it, that is damaged or contradicts itself."""

    code = "TES-3002"
    name = "malformed-model"


class FileError(Error, OSError):
    """A file that cannot be opened, read or written."""

    code = "TES-3001"
    name = "file-error"


class OutOfMemoryError(Error, MemoryError):
    """No memory on the host or the GPU."""

    code = "TES-4001"
    name = "out-of-memory"


class RunError(Error, RuntimeError):
    """A device, a library or the compiler failed."""

    code = "TES-4999"
    name = "internal"


_KINDS: dict[str, type[Error]] = {
    "usage": UsageError,
    "unknown-input": InputTypeError,
    "missing-input": InputTypeError,
    "bad-input": InputError,
    "guard-failed": InputError,
    "earlier-call": InputError,
    "unsupported-op": UnsupportedError,
    "unsupported-type": UnsupportedError,
    "unsupported-feature": UnsupportedError,
    "file-error": FileError,
    "out-of-memory": OutOfMemoryError,
    "device-error": RunError,
    "codegen-error": RunError,
    "cancelled": RunError,
    "internal": RunError,
}


def make_error(code: str, name: str, location: str, message: str, notes: Sequence[str], output: str = "") -> Error:
    """The exception for an error of the library."""
    return _KINDS.get(name, ModelError)(message, code=code, name=name, location=location, notes=notes, output=output)
