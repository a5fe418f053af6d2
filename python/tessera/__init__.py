"""Tessera compiles models into few fused kernels and runs them, on CPUs and on NVIDIA's GPUs.

    model = tessera.load("model.onnx")   # ONNX, or an archive of torch.export (.pt2)
    y = model(x)                         # NumPy arrays, PyTorch tensors, anything with __dlpack__
    print(model.explain())               # what was fused, what was not and why

In PyTorch: torch.compile(module, backend="tessera"). tessera.explain(module, *args) says what became of a call, tessera.stats()
what was counted since the process started.
"""

from typing import TYPE_CHECKING, Any

from . import _libraries  # noqa: F401  before the extension
from ._errors import Error, FileError, InputError, InputTypeError, ModelError, OutOfMemoryError, RunError, UnsupportedError, UsageError
from ._native import Tensor, load_operators
from ._options import stats
from ._session import Model, TensorInfo, load

__all__ = [
    "Error", "FileError", "InputError", "InputTypeError", "Model", "ModelError", "OutOfMemoryError", "RunError", "Tensor", "TensorInfo",
    "UnsupportedError", "UsageError", "explain", "load", "load_operators", "stats",
]  # fmt: skip

if TYPE_CHECKING:
    from ._explain import explain


def __getattr__(name: str) -> Any:
    if name == "explain":  # needs PyTorch, which the rest does not
        from ._explain import explain

        return explain
    if name == "__version__":
        from importlib.metadata import version

        return version("tessera")
    raise AttributeError(f"module 'tessera' has no attribute {name!r}")
