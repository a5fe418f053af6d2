"""Lets `import triton` find this package."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import types
from typing import Any

from .._errors import UsageError

# Modules of Triton, and the module or object of this package that stands for each.
MODULES = {
    "triton": "", "triton.language": "language", "triton.language.core": "language.core", "triton.language.math": "language.math",
    "triton.language.standard": "language.standard", "triton.language.random": "language.random", "triton.language.extra": "language.extra",
    "triton.language.extra.libdevice": "language.extra.libdevice", "triton.language.extra.cuda": "language.extra.cuda",
    "triton.language.extra.cuda.libdevice": "language.extra.libdevice", "triton.language.libdevice": "language.extra.libdevice", "triton.testing": "testing", "triton.runtime": "runtime",
    "triton.runtime.jit": "runtime.jit", "triton.runtime.autotuner": "runtime.autotuner", "triton.runtime.driver": "runtime.driver",
    "triton.runtime.errors": "runtime.errors", "triton.runtime.cache": "runtime.cache", "triton.tools": "tools",
    "triton.tools.tensor_descriptor": "tools.tensor_descriptor", "triton.compiler": "runtime.compiler", "triton.compiler.errors": "runtime.errors", "triton.compiler.compiler": "runtime.compiler",
    "triton.backends": "runtime.backends", "triton.backends.compiler": "runtime.compiler",
}  # fmt: skip


def install(device: str = "cuda") -> None:
    """Makes `import triton`, and the modules of it that kernels and packages use, this package. Triton must not be imported yet.

    device: "cuda" leaves PyTorch as it is; with "cpu", tensors that name CUDA lie in the host's memory, and torch.cuda answers as with
    one GPU; "auto" is "cpu" where PyTorch finds no GPU. Raises ImportError where another Triton is imported already.
    """
    if device not in ("cuda", "cpu", "auto"):
        raise UsageError(f"there is no device '{device}': write 'cuda', 'cpu' or 'auto'")

    existing = sys.modules.get("triton")
    if existing is not None and not getattr(existing, "_tessera", False):
        raise ImportError("triton is imported already; call tessera.triton.install() before it")
    for name in (n for n in MODULES.values() if n.startswith("language.extra")):
        importlib.import_module(f"{__package__}.{name}")
    for name, path in MODULES.items():
        module = _alias(name, path)
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)
    if device == "cpu" or (device == "auto" and not _finds_gpu()):
        from ._stand_in import stand_in

        stand_in()


def _finds_gpu() -> bool:
    """True if PyTorch finds a GPU; False also without PyTorch."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def _alias(name: str, path: str) -> types.ModuleType:
    """A module of Triton's name with the contents of ours."""
    target: Any = sys.modules[__package__]
    for part in path.split(".") if path else ():
        target = getattr(target, part)
    module = types.ModuleType(name, getattr(target, "__doc__", None))
    if not isinstance(target, types.ModuleType):
        members = {n: getattr(target, n) for n in dir(target) if not n.startswith("__")}
    else:
        members = {n: v for n, v in vars(target).items() if not n.startswith("__") or n == "__version__" or n == "__all__"}
        if "__getattr__" in vars(target):
            members["__getattr__"] = vars(target)["__getattr__"]
    vars(module).update(members)
    module.__dict__["_tessera"] = True
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    module.__path__ = []
    return module
