"""@triton.autotune and @triton.heuristics."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from .._errors import OutOfMemoryError
from .._log import log
from ._errors import CompileTimeAssertionFailure, Refusal, UnsupportedKernelError
from ._jit import JITFunction, Launcher


LEFT_OUT = (CompileTimeAssertionFailure, UnsupportedKernelError, OutOfMemoryError)  # errors of a configuration that is not measured


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
    """A kernel with something in front of its launches. fn: the kernel, or another wrapper; kernel: the kernel; base_fn: its function."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        kernel = fn
        while not isinstance(kernel, JITFunction) and hasattr(kernel, "fn"):
            kernel = kernel.fn
        if not isinstance(kernel, JITFunction):
            raise TypeError(f"expected a function with @triton.jit, found {fn!r}")
        self.kernel, self.base_fn = kernel, kernel.fn
        self.arg_names: list[str] = kernel.arg_names
        functools.update_wrapper(self, kernel.fn)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.kernel(*args, **keywords)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "fn":
            raise AttributeError(name)
        return getattr(self.fn, name)

    def named(self, args: Sequence[Any], keywords: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name."""
        return {**dict(zip(self.arg_names, args)), **keywords}


class Heuristics(Wrapper):
    """Constants that are computed from the other arguments."""

    def __init__(self, fn: Any, arg_names: Sequence[str], values: dict[str, Callable[[dict[str, Any]], Any]]) -> None:
        super().__init__(fn)
        self.values = values

    def run(self, *args: Any, **keywords: Any) -> Any:
        """Launches with the constants."""
        for name, of in self.values.items():
            keywords[name] = of(self.named(args, keywords))
        return self.fn.run(*args, **keywords)


class Autotuner(Wrapper):
    """Chooses one of several configurations for each key, by time. The parameters are those of autotune(); subclasses may replace hooks and run()."""

    def __init__(self, fn: Any, arg_names: Sequence[str], configs: Sequence[Config], key: Sequence[str], reset_to_zero: Any = None, restore_value: Any = None, pre_hook: Any = None, post_hook: Any = None, prune_configs_by: Any = None, warmup: Any = None, rep: Any = None, use_cuda_graph: Any = False, do_bench: Any = None, cache_results: Any = False) -> None:
        super().__init__(fn)
        self.configs = list(configs) or [Config({})]
        self.keys = list(key)
        self.cache: dict[Any, Config] = {}
        self.best_config = self.configs[0]
        self.reset_to_zero: list[str] = list(reset_to_zero or [])
        self.restore_value: list[str] = list(restore_value or [])
        self.restore_copies: dict[str, Any] = {}
        self.user_defined_pre_hook, self.user_defined_post_hook = pre_hook is not None, post_hook is not None
        self.pre_hook, self.post_hook = pre_hook or self._prepare, post_hook or self._restore
        prune = prune_configs_by or {}
        self.early_config_prune, self.perf_model = prune.get("early_config_prune"), prune.get("perf_model")
        self.configs_top_k = prune.get("top_k", 1.0)
        self._do_bench = do_bench
        self.nargs: dict[str, Any] | None = None
        self.bench_time = 0.0

    def _prepare(self, arguments: dict[str, Any], reset_only: bool = False) -> None:
        """Before a measured launch: zeros, and copies of what is restored."""
        for n in self.reset_to_zero:
            if arguments.get(n) is not None:
                arguments[n][...] = 0
        if not reset_only:
            self.restore_copies = {n: _copy(arguments[n]) for n in self.restore_value if arguments.get(n) is not None}

    def _restore(self, arguments: dict[str, Any], exception: Any) -> None:
        """After a measured launch."""
        for n, value in self.restore_copies.items():
            arguments[n][...] = value
        self.restore_copies = {}

    def run(self, *args: Any, **keywords: Any) -> Any:
        """Launches with the configuration of the arguments' key; measures all where the key is new."""
        self.nargs = dict(zip(self.arg_names, args))
        named = {k: v for k, v in {**self.nargs, **keywords}.items() if k in self.arg_names}
        config = self.configs[0]
        if len(self.configs) > 1:
            key = self._key(named)
            if key not in self.cache:
                candidates = self.prune_configs(keywords)
                measured = not keywords.get("warmup") and len(candidates) > 1
                self.cache[key] = self._fastest(candidates, args, keywords) if measured else self._first(candidates, args, keywords)
                if measured:
                    self.pre_hook({**self.nargs, **keywords}, reset_only=True)
            config = self.cache[key]
        self.best_config = config
        result = self._run_with(config, args, keywords)
        self.nargs = None
        return result

    def _key(self, named: dict[str, Any]) -> tuple[Any, ...]:
        return (*(named[k] for k in self.keys if k in named), *(str(v.dtype) for v in named.values() if hasattr(v, "dtype")))

    def _run_with(self, config: Config, args: Sequence[Any], keywords: dict[str, Any]) -> Any:
        options = config.all_kwargs()
        if config.pre_hook is not None:
            config.pre_hook({**self.named(args, keywords), **options})
        return self.fn.run(*args, **{**keywords, **options})

    def prune_configs(self, keywords: dict[str, Any]) -> list[Config]:
        """The configurations that prune_configs_by leaves."""
        configs, named = self.configs, self.nargs or {}
        if self.early_config_prune is not None:
            configs = list(self.early_config_prune(configs, named, **keywords))
            if not configs:
                raise Refusal("early_config_prune leaves no configuration").at(self.kernel.source.place(None), [])
        top_k, model = self.configs_top_k, self.perf_model
        if model is not None and top_k:
            count = int(len(self.configs) * top_k) if isinstance(top_k, float) and top_k <= 1.0 else int(top_k)
            if len(configs) > count:
                configs = sorted(configs, key=lambda c: model(**{**named, **keywords, **c.all_kwargs()}))[:count]
        return configs

    def _bench(self, *args: Any, config: Config, **keywords: Any) -> Any:
        """The time of a configuration: median, and quantiles 0.2 and 0.8, in milliseconds."""
        from .testing import do_bench

        def once() -> None:
            arguments = {**self.named(args, keywords), **config.all_kwargs()}
            self.pre_hook(arguments)
            try:
                self._run_with(config, args, keywords)
            except Exception as e:
                self.post_hook(arguments, exception=e)
                raise
            self.post_hook(arguments, exception=None)

        measure = self._do_bench or functools.partial(do_bench, warmup=1, rep=5)
        try:
            return measure(once, quantiles=(0.5, 0.2, 0.8))
        except LEFT_OUT as e:
            log.info("%s leaves out %s: %s", self.base_fn.__name__, config, e)
            return [float("inf")] * 3

    def _first(self, configs: list[Config], args: Sequence[Any], keywords: dict[str, Any]) -> Config:
        """The first configuration that compiles."""
        for config in configs[:-1]:
            try:
                self.fn.run(*args, **{**keywords, **config.all_kwargs(), "warmup": True})
                return config
            except LEFT_OUT as e:
                log.info("%s leaves out %s: %s", self.base_fn.__name__, config, e)
        return configs[-1]

    def _fastest(self, configs: list[Config], args: Sequence[Any], keywords: dict[str, Any]) -> Config:
        """Measures configurations."""
        times = {id(c): self._bench(*args, config=c, **keywords) for c in configs}
        first = {k: t[0] if isinstance(t, (list, tuple)) else t for k, t in times.items()}
        best = min(configs, key=lambda c: first[id(c)])
        if first[id(best)] == float("inf"):
            raise Refusal(f"none of {len(configs)} configurations compiles", "the log 'tessera' has the reason of each").at(self.kernel.source.place(None), [])
        return best


def _copy(array: Any) -> Any:
    return array.clone() if hasattr(array, "clone") else array.copy()


def autotune(configs: Sequence[Config], key: Sequence[str], prune_configs_by: Any = None, reset_to_zero: Any = None, restore_value: Any = None, pre_hook: Any = None, post_hook: Any = None, warmup: Any = None, rep: Any = None, use_cuda_graph: Any = False, do_bench: Any = None, cache_results: Any = False) -> Any:
    """Decorates a kernel that is launched with the fastest of several configurations, for each value of the arguments in `key`.

    reset_to_zero: arguments that are filled with 0 before each measured launch; restore_value: arguments that are as before after the
    measurement; prune_configs_by: {"early_config_prune": f(configs, arguments), "perf_model": f(**arguments), "top_k": n}.
    """
    return lambda fn: Autotuner(fn, fn.arg_names, configs, key, reset_to_zero, restore_value, pre_hook, post_hook, prune_configs_by, warmup, rep, use_cuda_graph, do_bench, cache_results)


def heuristics(values: dict[str, Callable[[dict[str, Any]], Any]]) -> Any:
    """Decorates a kernel with constants that functions compute from the arguments by name."""
    return lambda fn: Heuristics(fn, fn.arg_names, values)
