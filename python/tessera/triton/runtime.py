"""Names of triton.runtime that packages use: the driver's queries, the autotuner's and the compiler's classes."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

from . import _jit
from ._autotune import Autotuner, Config, Heuristics
from ._errors import CompilationError
from ._jit import CompiledKernel, JITFunction
from ._jit import Launcher as KernelInterface
from ._jit import Parameter as KernelParam


class OutOfResources(CompilationError):
    """A kernel that needs more than a device has."""


class Target:
    """The device that kernels are compiled for. backend: "cuda"; arch: 90 of compute capability 9.0; warp_size: 32."""

    def __init__(self, backend: str, arch: int, warp_size: int) -> None:
        self.backend, self.arch, self.warp_size = backend, arch, warp_size


def _torch() -> Any:
    return sys.modules.get("torch")


class Utils:
    """Queries of devices."""

    @staticmethod
    def get_device_properties(device: Any = 0) -> dict[str, Any]:
        """Properties of a GPU, from PyTorch where it is in use; of the stand-in those of an H100."""
        torch = _torch()
        if torch is not None and not _jit._stand_in and torch.cuda.is_available():
            p = torch.cuda.get_device_properties(device)
            return {"multiprocessor_count": p.multi_processor_count, "max_shared_mem": getattr(p, "shared_memory_per_block_optin", 232448), "warpSize": 32, "max_num_regs": 65536}
        return {"multiprocessor_count": 132, "max_shared_mem": 232448, "warpSize": 32, "max_num_regs": 65536, "sm_clock_rate": 1755000, "mem_clock_rate": 2619000, "mem_bus_width": 5120}


class Driver:
    """The active driver."""

    utils = Utils()

    def get_current_target(self) -> Target:
        """The target: of PyTorch's current GPU, or of the stand-in."""
        torch = _torch()
        if torch is not None and not _jit._stand_in and torch.cuda.is_available():
            major, minor = torch.cuda.get_device_capability()
            return Target("cuda", 10 * major + minor, 32)
        return Target("cuda", 90, 32)

    def get_current_device(self) -> int:
        """The number of the current GPU."""
        torch = _torch()
        return int(torch.cuda.current_device()) if torch is not None and not _jit._stand_in and torch.cuda.is_available() else 0

    def get_current_stream(self, device: Any = None) -> int:
        """The current stream of a GPU."""
        return _jit.stream_of("cpu" if _jit._stand_in else "cuda", {})

    def get_active_torch_device(self) -> Any:
        """The device of PyTorch that kernels run on."""
        torch = _torch()
        return torch.device("cuda" if torch.cuda.is_available() else "cpu") if torch is not None else None

    def get_device_interface(self) -> Any:
        """torch.cuda."""
        torch = _torch()
        return torch.cuda if torch is not None else None

    def get_benchmarker(self) -> Any:
        """The function that measures times."""
        from .testing import do_bench

        return do_bench

    def get_empty_cache_for_benchmark(self) -> Any:
        """Nothing: measurements need no memory."""
        return None

    def clear_cache(self, cache: Any) -> None:
        """Nothing."""


class _Drivers:
    active = Driver()
    default = active

    def set_active(self, driver: Any) -> None:
        """Nothing: there is one driver."""

    def set_active_to_cpu(self) -> None:
        """Nothing: the device of a launch is that of its arrays."""

    def set_active_to_gpu(self) -> None:
        """Nothing: the device of a launch is that of its arrays."""


driver = _Drivers()


def set_allocator(allocator: Any) -> None:
    """Nothing: kernels allocate no memory of the device at run time."""


class TensorWrapper:
    """An array whose elements are read as another dtype of the same width."""

    def __init__(self, base: Any, dtype: Any) -> None:
        self.base, self.dtype = base, dtype
        self.shape, self.device = base.shape, getattr(base, "device", None)

    def data_ptr(self) -> int:
        """The address of the first element."""
        from ._arguments import address

        return address(self.base)


def reinterpret(tensor: Any, dtype: Any) -> TensorWrapper:
    """An array with its elements read as another dtype."""
    return TensorWrapper(getattr(tensor, "base", tensor) if isinstance(tensor, TensorWrapper) else tensor, dtype)


jit = SimpleNamespace(JITFunction=JITFunction, KernelInterface=KernelInterface, KernelParam=KernelParam, TensorWrapper=TensorWrapper, reinterpret=reinterpret, get_cuda_stream=lambda device=None: 0)
autotuner = SimpleNamespace(Autotuner=Autotuner, Config=Config, Heuristics=Heuristics, OutOfResources=OutOfResources)
errors = SimpleNamespace(OutOfResources=OutOfResources, PTXASError=OutOfResources)
compiler = SimpleNamespace(CompiledKernel=CompiledKernel, CompilationError=CompilationError, GPUTarget=Target, OutOfResources=OutOfResources, triton_key=lambda: __name__)
backends = SimpleNamespace(backends={}, compiler=compiler)
cache = SimpleNamespace(get_cache_manager=None)

__all__ = ["Autotuner", "Config", "Driver", "Heuristics", "JITFunction", "KernelInterface", "OutOfResources", "TensorWrapper", "autotuner", "driver", "errors", "jit", "reinterpret", "set_allocator"]
