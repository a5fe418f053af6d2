"""@triton.autotune and @triton.heuristics."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from . import _arguments as arguments
from . import _launch
from ._errors import Refusal
from ._execute import executing
from ._jit import OPTIONS, JITFunction, Launcher


class Config:
    """Constants of a kernel and options of the compiler that an autotuner tries. pre_hook: called before launches, with the arguments by name."""

    def __init__(self, kwargs: dict[str, Any], num_warps: int = 4, num_stages: int = 3, num_ctas: int = 1, maxnreg: int | None = None, pre_hook: Any = None, ir_override: Any = None, **further: Any) -> None:
        self.kwargs, self.num_warps, self.num_stages, self.num_ctas = dict(kwargs), num_warps, num_stages, num_ctas
        self.maxnreg, self.pre_hook, self.ir_override = maxnreg, pre_hook, ir_override

    def all_kwargs(self) -> dict[str, Any]:
        """The constants and the options that differ from their defaults."""
        options = {"num_warps": self.num_warps, "num_stages": self.num_stages, "num_ctas": self.num_ctas, "maxnreg": self.maxnreg}
        return {**self.kwargs, **{k: v for k, v in options.items() if v is not None}}

    def __str__(self) -> str:
        return ", ".join(f"{k}: {v}" for k, v in self.all_kwargs().items())

    __repr__ = __str__

    def __hash__(self) -> int:
        return hash(str(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and str(self) == str(other) and self.pre_hook is other.pre_hook


class Wrapper(Launcher):
    """A kernel with something in front of its launches. fn: the kernel, or another wrapper."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        base = fn
        while not isinstance(base, JITFunction) and hasattr(base, "fn"):
            base = base.fn
        self.base_fn = base
        self.arg_names: list[str] = base.arg_names
        functools.update_wrapper(self, base.fn if isinstance(base, JITFunction) else base)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if executing() is None:
            raise Refusal(f"{self.base_fn.__name__} is a kernel", f"launch it with {self.base_fn.__name__}[grid](...)").at(self.base_fn.source.place(None), [])
        return self.base_fn(*args, **keywords)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "fn":
            raise AttributeError(name)
        return getattr(self.fn, name)

    def named(self, args: Sequence[Any], keywords: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name."""
        return {**dict(zip(self.arg_names, args)), **keywords}


class Heuristics(Wrapper):
    """Constants that are computed from the other arguments."""

    def __init__(self, fn: Any, values: dict[str, Callable[[dict[str, Any]], Any]]) -> None:
        super().__init__(fn)
        self.values = values

    def run(self, *args: Any, grid: Any, warmup: bool, **keywords: Any) -> Any:
        """Launches with the constants."""
        for name, of in self.values.items():
            keywords[name] = of(self.named(args, keywords))
        return self.fn.run(*args, grid=grid, warmup=warmup, **keywords)


class Autotuner(Wrapper):
    """Chooses one of several configurations for each key, by time."""

    def __init__(self, fn: Any, configs: Sequence[Config], key: Sequence[str], options: dict[str, Any]) -> None:
        super().__init__(fn)
        self.configs = list(configs) or [Config({})]
        self.keys = list(key)
        self.cache: dict[Any, Config] = {}
        self.best_config = self.configs[0]
        self.reset_to_zero: list[str] = list(options.get("reset_to_zero") or [])
        self.restore_value: list[str] = list(options.get("restore_value") or [])
        self.prune: dict[str, Any] = options.get("prune_configs_by") or {}
        self.pre_hook, self.post_hook, self.do_bench = (options.get(n) for n in ("pre_hook", "post_hook", "do_bench"))

    def run(self, *args: Any, grid: Any, warmup: bool, **keywords: Any) -> Any:
        """Launches with the configuration of the arguments' key; measures all where the key is new."""
        named = self.named(args, keywords)
        config = self.configs[0]
        if len(self.configs) > 1:
            key = self._key(named)
            if key not in self.cache:
                candidates = self.prune_configs(named, keywords)
                self.cache[key] = candidates[0] if warmup or len(candidates) == 1 or not _launch.available() else self._fastest(candidates, args, grid, keywords, named)
            config = self.cache[key]
        self.best_config = config
        return self._run_with(config, args, grid, warmup, keywords)

    def _key(self, named: dict[str, Any]) -> tuple[Any, ...]:
        dtypes = [str(v.dtype) for v in named.values() if arguments.is_array(v) and hasattr(v, "dtype")]
        return (*(named.get(k) for k in self.keys), *dtypes)

    def _run_with(self, config: Config, args: Sequence[Any], grid: Any, warmup: bool, keywords: dict[str, Any]) -> Any:
        if config.pre_hook is not None and not warmup:
            config.pre_hook({**self.named(args, keywords), **config.all_kwargs()})
        return self.fn.run(*args, grid=grid, warmup=warmup, **{**keywords, **_known(config.all_kwargs())})

    def prune_configs(self, named: dict[str, Any], keywords: dict[str, Any]) -> list[Config]:
        """The configurations that prune_configs_by leaves."""
        configs = self.configs
        early, model, top_k = self.prune.get("early_config_prune"), self.prune.get("perf_model"), self.prune.get("top_k")
        if early is not None:
            accepts = inspect.signature(early).parameters
            configs = list(early(configs, named, **(keywords if len(accepts) > 2 else {})))
            if not configs:
                raise Refusal("early_config_prune leaves no configuration").at(self.base_fn.source.place(None), [])
        if model is not None and top_k:
            count = int(len(self.configs) * top_k) if isinstance(top_k, float) and top_k <= 1.0 else int(top_k)
            configs = sorted(configs, key=lambda c: model(**{**named, **c.all_kwargs()}))[:count] if len(configs) > count else configs
        return configs

    def _fastest(self, configs: list[Config], args: Sequence[Any], grid: Any, keywords: dict[str, Any], named: dict[str, Any]) -> Config:
        """Measures configurations; the arrays of restore_value are as before afterwards, those of reset_to_zero are 0 before each launch."""
        from .testing import do_bench

        saved = {n: named[n].clone() if hasattr(named[n], "clone") else named[n].copy() for n in self.restore_value if named.get(n) is not None}

        def once(config: Config) -> None:
            for n in self.reset_to_zero:
                if named.get(n) is not None:
                    named[n][...] = 0
            for n, value in saved.items():
                named[n][...] = value
            self._run_with(config, args, grid, False, keywords)

        times = {config: do_bench(lambda config=config: once(config), warmup=1, rep=5) for config in configs}  # type: ignore[misc]
        for n in self.reset_to_zero:
            if named.get(n) is not None:
                named[n][...] = 0
        for n, value in saved.items():
            named[n][...] = value
        return min(configs, key=lambda c: times[c])


def _known(options: dict[str, Any]) -> dict[str, Any]:
    """Options without those of other devices that have no value."""
    return {k: v for k, v in options.items() if v is not None or k not in OPTIONS}


def autotune(configs: Sequence[Config], key: Sequence[str], prune_configs_by: Any = None, reset_to_zero: Any = None, restore_value: Any = None, pre_hook: Any = None, post_hook: Any = None, warmup: Any = None, rep: Any = None, use_cuda_graph: Any = False, do_bench: Any = None, cache_results: Any = False) -> Any:
    """Decorates a kernel that is launched with the fastest of several configurations, for each value of the arguments in `key`.

    reset_to_zero: arguments that are filled with 0 before each measured launch; restore_value: arguments that are as before after the
    measurement; prune_configs_by: {"early_config_prune": f(configs, arguments), "perf_model": f(**arguments), "top_k": n}.
    """
    options = {"prune_configs_by": prune_configs_by, "reset_to_zero": reset_to_zero, "restore_value": restore_value, "pre_hook": pre_hook, "post_hook": post_hook, "do_bench": do_bench}
    return lambda fn: Autotuner(fn, configs, key, options)


def heuristics(values: dict[str, Callable[[dict[str, Any]], Any]]) -> Any:
    """Decorates a kernel with constants that functions compute from the arguments by name."""
    return lambda fn: Heuristics(fn, values)
