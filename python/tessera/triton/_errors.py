"""Errors of kernels in Triton's language: each names file, line and column of the user's source, and what to do."""

from __future__ import annotations

from .._errors import Error, ModelError, UnsupportedError


class CompilationError(ModelError):
    """A kernel that Triton's rules refuse. location: "file:line:column"; notes: what to do instead."""

    code = "TES-3002"
    name = "malformed-model"


class CompileTimeAssertionFailure(CompilationError):
    """A false tl.static_assert, or assert of constants: an autotuner leaves out the configuration."""


class UnsupportedKernelError(UnsupportedError):
    """A kernel that Triton takes and that Tessera cannot compile yet. location: "file:line:column"; notes: what to do instead."""


class Refusal(Exception):
    """An error of a construct before its place is known: the executor adds it. kind: of the error that users see."""

    def __init__(self, message: str, advice: str = "", kind: type[Error] = CompilationError) -> None:
        super().__init__(message)
        self.message, self.advice, self.kind = message, advice, kind

    def at(self, location: str, frames: list[str]) -> Error:
        """The error that users see. frames: places of the calls that lead there, the innermost first."""
        notes = ([self.advice] if self.advice else []) + [f"called at {frame}" for frame in frames]
        return self.kind(self.message, location=location, notes=notes)


# Constructs of Triton that the tile IR cannot express, and what a user may write instead: the one list of them.
LACKING: dict[str, tuple[str, str]] = {
    "while": ("a 'while' loop that does not count up to a bound", "write it as 'for i in range(start, stop, step)'"),
    "atomic result": ("the value that an atomic operation returns", "use the operation without its result, or split the kernel in two launches"),
    "atomic kind": ("this atomic operation", "use atomic_add, or atomic_max and atomic_min of integers, without their results"),
    "dot_scaled": ("dot_scaled", "scale the operands after loading them, and use tl.dot"),
    "bitcast": ("a bitcast of this width", "bitcast between types of 16 bits or more"),
    "two parameters": ("a pointer that is one of two parameters, where the condition is a tile, a loop changes it, or their dtypes differ", "load from both under masks, and select between the values"),
    "pointer value": ("a pointer that is loaded from memory or made from an integer", "pass each tensor as a parameter of its own"),
    "pointer type": ("a pointer cast to another element type", "pass a view of the tensor with that dtype, such as tensor.view(torch.uint8)"),
    "inline_asm_elementwise": ("inline assembly other than arithmetic on 32-bit registers with pack=1", "write the operation with functions of tl"),
    "rounding": ("this rounding mode", "use the default, round to nearest even"),
    "return in loop": ("a return inside a loop", "keep the result in a variable, and use a mask for the iterations behind it"),
    "special register": ("a special register of a GPU", "use tl.program_id and tl.num_programs"),
    "64-bit index": ("an argmax along several axes", "reduce one axis at a time"),
}


def lacking(what: str) -> Refusal:
    """The refusal of a construct of the list."""
    message, advice = LACKING[what]
    return Refusal(f"Tessera does not compile {message} yet", advice, UnsupportedKernelError)
