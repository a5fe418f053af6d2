"""@triton.jit: kernels, their specialisations, and their launches."""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from . import _arguments as arguments
from . import _launch
from ._errors import Refusal
from ._execute import executing
from ._programs import SMALL_GRID, Grid
from ._quick import Quick, picker, supports
from ._source import Source
from ._specialise import Compiled, Constant, Descriptor, Group, Kind, compile_text
from ._values import constexpr, unwrapped

# Keywords of launches that are options of the compiler; the value is what a kernel has without them, None for none.
OPTIONS: dict[str, Any] = {
    "num_warps": 4, "num_stages": 0, "num_ctas": 1, "maxnreg": None, "launch_pdl": False, "enable_fp_fusion": True, "launch_cooperative_grid": False,
    "debug": False, "sanitize_overflow": False, "warp_size": 32, "waves_per_eu": None, "matrix_instr_nonkdim": None, "kpack": None, "ir_override": None,
    "allow_fp8e4nv": True, "extern_libs": None, "cluster_dims": None, "minRegAutoWS": None, "maxRegAutoWS": None, "arch": None, "stream": None, "pre_hook": None,
}  # fmt: skip


class CompiledKernel:
    """A kernel for kinds of arguments: kernel[grid](*arguments) launches it again. asm: its texts by name ("tile");
    name; kinds: of the arguments by name.
    """

    def __init__(self, compiled: Compiled, kinds: dict[str, Kind], function: JITFunction, options: dict[str, Any]) -> None:
        self._compiled, self.kinds, self._function, self._options = compiled, kinds, function, options
        self._native: dict[str, Any] = {}
        self.asm = {"tile": compiled.text}
        self.name = compiled.name
        self.n_regs, self.n_spills = 0, 0
        self.num_warps, self.num_stages = options["num_warps"], options["num_stages"]

    def on(self, device: str) -> Any:
        """The native kernel for a device, compiled at its first use."""
        if device not in self._native:
            self._native[device] = _launch.load(self._compiled.text, device)
        return self._native[device]

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """A launch with the same constants: of all arguments of the signature, or of those that are not constants."""
        return functools.partial(self._again, grid_of(grid, {}))

    def _again(self, sizes: tuple[int, int, int], *args: Any) -> None:
        names = list(self.kinds)
        if len(args) < len(names):
            names = [n for n in names if n not in self._function.source.constants]
        constants = {n: k.value for n, k in self.kinds.items() if isinstance(k, Constant)}
        given = dict(zip(names, args))
        values = {n: given.get(n, constants.get(n)) for n in self.kinds}
        self._function.specialise(values, sizes, self._options).launch(values, sizes)  # another grid may need other code

    def launch(self, values: dict[str, Any], sizes: tuple[int, int, int]) -> None:
        """Runs the programs of a grid with arguments by name."""
        flat = [x for name, value in values.items() for x in arguments.flattened(value, self.kinds[name])]
        device = launch_device(arguments.arrays_in(values.values()))
        _launch.launch(self.on(device), sizes, tuple(flat), stream_of(device, self._options))


class Launcher:
    """kernel[grid]: what runs by kernel[grid](...)."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return functools.partial(self.run, grid=grid, warmup=False)

    def run(self, *args: Any, grid: Any, warmup: bool, **keywords: Any) -> Any:
        raise NotImplementedError

    def warmup(self, *args: Any, grid: Any, **keywords: Any) -> Any:
        """Compiles for arguments without a launch."""
        return self.run(*args, grid=grid, warmup=True, **keywords)


class JITFunction(Launcher):
    """A function with @triton.jit: launched by kernel[grid](...), or called by another such function.

    source: its syntax tree; arg_names: of its parameters; fn: the function.
    """

    def __init__(self, fn: Callable[..., Any], do_not_specialize: Sequence[Any] = (), do_not_specialize_on_alignment: Sequence[Any] = ()) -> None:
        self.fn = fn
        functools.update_wrapper(self, fn)
        self.__globals__ = fn.__globals__
        self.source = Source(fn)
        self.signature = self.source.signature
        self.arg_names = list(self.signature.parameters)
        self.constexprs = [self.arg_names.index(n) for n in self.source.constants]
        self.src = re.sub(r"\A.*?^(?=def )", "", self.source.text, flags=re.M | re.S)
        self._unspecialised = {self._name(n) for n in do_not_specialize}
        self._unaligned = {self._name(n) for n in do_not_specialize_on_alignment}
        self._kernels: dict[Any, CompiledKernel] = {}
        self._launches: dict[Any, tuple[CompiledKernel, Callable[..., tuple[Any, ...]], Any, str]] = {}
        self._quick = Quick(self.signature, self.source.constants, self._unspecialised, self._unaligned) if supports(self.signature) else None
        self.params = [Parameter(i, p, n in self.source.constants, n in self._unspecialised) for i, (n, p) in enumerate(self.signature.parameters.items())]

    def _name(self, parameter: Any) -> str:
        return self.arg_names[parameter] if isinstance(parameter, int) else str(parameter)

    def __repr__(self) -> str:
        return f"JITFunction({self.fn.__module__}:{self.fn.__qualname__})"

    @property
    def cache_key(self) -> str:
        """A hash of the source."""
        return hashlib.sha256(self.src.encode()).hexdigest()

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """In a kernel: the function is inlined. Elsewhere an error."""
        executor = executing()
        if executor is None:
            raise Refusal(f"{self.fn.__name__} is a kernel", f"launch it with {self.fn.__name__}[grid](...)").at(self.source.place(None), [])
        return executor.call(self.source, list(args), keywords)

    def bind(self, args: Sequence[Any], keywords: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arguments by name, and options. Raises an error with the kernel's place for what the signature refuses."""
        options = {k: v for k, v in keywords.items() if k not in self.signature.parameters}
        given = {k: v for k, v in keywords.items() if k in self.signature.parameters}
        unknown = [k for k in options if k not in OPTIONS]
        try:
            if unknown:
                raise TypeError(f"got an unexpected keyword argument '{unknown[0]}'")
            bound = self.signature.bind(*args, **given)
        except TypeError as e:
            raise Refusal(f"{self.fn.__name__}(): {e}", f"its parameters are {', '.join(self.arg_names)}").at(self.source.place(None), []) from None
        bound.apply_defaults()
        return dict(bound.arguments), {**OPTIONS, **options}

    def _kind(self, name: str, value: Any) -> Kind:
        if name in self.source.constants:
            return Constant(tuple(map(unwrapped, value)) if isinstance(value, list) else unwrapped(value))
        kind = arguments.kind_of(value, name not in self._unspecialised, name not in self._unaligned)
        return arguments.annotated(value, kind, self.signature.parameters[name].annotation)

    def specialise(self, values: dict[str, Any], grid: tuple[int, int, int], options: dict[str, Any]) -> CompiledKernel:
        """The kernel for arguments and a grid, compiled at its first use."""
        try:
            kinds = {name: self._kind(name, value) for name, value in values.items()}
        except Refusal as refusal:
            raise refusal.at(self.source.place(None), []) from None
        ones = (grid[0] == 1, grid[1] == 1, grid[2] == 1)
        small_grid = max(grid) <= SMALL_GRID
        key = (tuple(kinds.values()), ones, small_grid, options["num_warps"], options["num_stages"])
        kernel = self._kernels.get(key)
        if kernel is None:
            compiled = compile_text(self.source, kinds, Grid(ones, small_grid), options)
            kernel = self._kernels[key] = CompiledKernel(compiled, kinds, self, options)
        return kernel

    def run(self, *args: Any, grid: Any, warmup: bool, **keywords: Any) -> CompiledKernel:
        """Launches programs: one for each point of the grid. Returns the compiled kernel."""
        if self._quick is None or warmup:
            return self._run(args, keywords, grid, warmup)
        try:
            values, options = self._quick.bind(*args, **keywords)
            tokens, passed = self._quick.key(values)
            if callable(grid):
                grid = grid({**dict(zip(self.arg_names, values)), **OPTIONS, **options})
            x, y, z = sizes = (*grid, 1, 1)[:3] if type(grid) is tuple and 0 < len(grid) < 4 else grid_of(grid, {})
            known = self._launches.get((tokens, x == 1, y == 1, z == 1, max(sizes) <= SMALL_GRID, *options.items()))
        except (KeyError, TypeError):  # a class without a reader, or arguments that the signature refuses
            return self._run(args, keywords, grid, warmup)
        if known is None:
            kernel = self._run(args, keywords, grid, warmup)
            self._remember(kernel, (tokens, x == 1, y == 1, z == 1, max(sizes) <= SMALL_GRID, *options.items()), values)
            return kernel
        kernel, pick, native, device = known
        _launch.launch(native, sizes, pick(passed), stream_of(device, options))
        return kernel

    def _remember(self, kernel: CompiledKernel, key: tuple[Any, ...], values: tuple[Any, ...]) -> None:
        """Keeps what later launches with a key need."""
        if any(isinstance(k, (Group, Descriptor)) for k in kernel.kinds.values()):
            return
        device = launch_device(arguments.arrays_in(values))
        pick = picker([i for i, k in enumerate(kernel.kinds.values()) if not isinstance(k, Constant)])
        self._launches[key] = kernel, pick, kernel.on(device), device

    def _run(self, args: Sequence[Any], keywords: dict[str, Any], grid: Any, warmup: bool) -> CompiledKernel:
        """A launch with arguments of any kind."""
        values, options = self.bind(args, keywords)
        sizes = grid_of(grid, {**values, **options})
        kernel = self.specialise(values, sizes, options)
        if not warmup and math.prod(sizes) > 0:
            kernel.launch(values, sizes)
        return kernel


class Parameter:
    """A parameter of a kernel, as Triton shows it."""

    def __init__(self, num: int, parameter: inspect.Parameter, constant: bool, unspecialised: bool) -> None:
        self.num, self.name, self.is_constexpr, self.do_not_specialize = num, parameter.name, constant, unspecialised
        self.default, self.annotation = parameter.default, parameter.annotation
        self.has_default = parameter.default is not inspect.Parameter.empty


def grid_of(grid: Any, meta: dict[str, Any]) -> tuple[int, int, int]:
    """A grid's three sizes: a number, up to three numbers, or a function of the arguments."""
    sizes = grid(meta) if callable(grid) else grid
    sizes = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    if not 1 <= len(sizes) <= 3:
        raise Refusal(f"a grid has one to three axes, not {len(sizes)}").at("", [])
    x, y, z = (*(int(unwrapped(s)) for s in sizes), 1, 1)[:3]
    if min(x, y, z) < 0:
        raise Refusal(f"a grid has sizes from 0 on, not {(x, y, z)}").at("", [])
    return x, y, z


_stand_in = False  # launches on tensors of the CPU, also where they say "cuda"


def launch_device(arrays: list[Any]) -> str:
    """The device of a launch: that of all its arrays."""
    devices = {"cpu" if _stand_in else arguments.device_of(a) for a in arrays}
    if len(devices) > 1:
        raise Refusal("the arrays of a launch lie on the CPU and on a GPU", "move all to one device").at("", [])
    return devices.pop() if devices else "cpu"


def stream_of(device: str, options: dict[str, Any]) -> int:
    """The stream of a launch: PyTorch's current one, where PyTorch is in use."""
    if options.get("stream") is not None:
        return int(options["stream"])
    if device != "cuda":
        return 0
    import sys

    torch = sys.modules.get("torch")
    if torch is None:
        return 0
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return int(raw(torch.cuda.current_device()) if raw else torch.cuda.current_stream().cuda_stream)


def jit(fn: Any = None, *, version: Any = None, repr: Any = None, launch_metadata: Any = None, do_not_specialize: Any = (), do_not_specialize_on_alignment: Any = (), debug: Any = None, noinline: Any = None) -> Any:
    """Decorates a kernel, or a function that kernels call.

    do_not_specialize: names or numbers of parameters whose values are not part of the specialisation;
    do_not_specialize_on_alignment: those whose divisibility by 16 is not. The other options change nothing.
    """

    def decorate(f: Callable[..., Any]) -> JITFunction:
        return f if isinstance(f, JITFunction) else JITFunction(f, do_not_specialize or (), do_not_specialize_on_alignment or ())

    return decorate if fn is None else decorate(fn)


__all__ = ["CompiledKernel", "JITFunction", "Launcher", "constexpr", "jit"]
