"""Triton's language on Tessera: kernels written for Triton become tile IR, without a dialect of their own.

    import tessera.triton as triton
    import tessera.triton.language as tl

    @triton.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = at < n
        tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)

    add[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)

Arguments are arrays of NumPy, tensors of PyTorch, whatever has __dlpack__, numbers, and constants. `tessera.triton.install()` lets
`import triton` find this package; `python -m tessera.triton SCRIPT` runs a script so.
"""

from __future__ import annotations

from . import language, runtime, testing, tools
from ._autotune import Config, autotune, heuristics
from ._errors import CompilationError, CompileTimeAssertionFailure, UnsupportedKernelError
from ._install import install
from ._jit import JITFunction, jit
from ._values import constexpr
from .runtime import set_allocator

__version__ = "3.9.0"  # of the language


def cdiv(x: int, y: int) -> int:
    """x / y, rounded up."""
    return (x + y - 1) // y


def next_power_of_2(n: int) -> int:
    """The least power of two from n on."""
    return 1 << max(n - 1, 0).bit_length() if n > 0 else 0


constexpr_function = language.core.constexpr_function
reinterpret = runtime.reinterpret
OutOfResources = runtime.OutOfResources
KernelInterface = runtime.KernelInterface
TritonError = CompilationError

__all__ = [
    "CompilationError", "CompileTimeAssertionFailure", "Config", "JITFunction", "KernelInterface", "OutOfResources", "TritonError", "UnsupportedKernelError", "autotune", "cdiv", "constexpr",
    "constexpr_function", "heuristics", "install", "jit", "language", "next_power_of_2", "reinterpret", "runtime", "set_allocator", "testing", "tools",
]  # fmt: skip
