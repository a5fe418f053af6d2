"""triton.testing: measuring and comparing."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any


def _synchronize() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def do_bench(fn: Callable[[], Any], warmup: float = 25, rep: float = 100, grad_to_none: Any = None, quantiles: Sequence[float] | None = None, return_mode: str = "mean") -> Any:
    """The time of a function in milliseconds: a statistic ("mean", "median", "min", "max", "all") of calls for about rep ms, after warmup ms."""
    fn()
    _synchronize()
    start = time.perf_counter()
    fn()
    _synchronize()
    one = max((time.perf_counter() - start) * 1e3, 1e-4)
    for _ in range(min(int(warmup / one), 10_000)):
        fn()
    times = []
    for _ in range(max(1, min(int(rep / one), 10_000))):
        for t in grad_to_none or ():
            t.grad = None
        _synchronize()
        start = time.perf_counter()
        fn()
        _synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    if quantiles is not None:
        ordered = sorted(times)
        found = [ordered[min(len(ordered) - 1, int(q * len(ordered)))] for q in quantiles]
        return found[0] if len(found) == 1 else found
    if return_mode == "all":
        return times
    folds: dict[str, Callable[[list[float]], float]] = {"mean": statistics.mean, "median": statistics.median, "min": min, "max": max}
    return folds[return_mode](times)


do_bench_cudagraph = do_bench


def assert_close(x: Any, y: Any, atol: float | None = None, rtol: float | None = None, err_msg: str = "") -> None:
    """Raises an AssertionError where two arrays differ by more than atol + rtol * |y|."""
    import numpy

    a, b = (numpy.asarray(v.detach().cpu().float() if hasattr(v, "detach") else v) for v in (x, y))
    numpy.testing.assert_allclose(a, b, atol=1e-2 if atol is None else atol, rtol=0.0 if rtol is None else rtol, err_msg=err_msg)


class Benchmark:
    """The cases of perf_report: a line for each of line_vals, over x_vals of the arguments x_names."""

    def __init__(self, x_names: list[str], x_vals: list[Any], line_arg: str, line_vals: list[Any], line_names: list[str], plot_name: str, args: dict[str, Any], xlabel: str = "", ylabel: str = "", x_log: bool = False, y_log: bool = False, styles: Any = None) -> None:
        self.x_names, self.x_vals, self.line_arg, self.line_vals, self.line_names = x_names, x_vals, line_arg, line_vals, line_names
        self.plot_name, self.args, self.xlabel, self.ylabel = plot_name, args, xlabel, ylabel


class Mark:
    """A function with the benchmarks of perf_report."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Any) -> None:
        self.fn, self.benchmarks = fn, benchmarks

    def run(self, show_plots: bool = False, print_data: bool = True, save_path: str = "", return_df: bool = False, **keywords: Any) -> Any:
        """Measures, and prints a table. Returns its rows, or a list of them for several benchmarks."""
        several = isinstance(self.benchmarks, (list, tuple))
        tables = [self._table(b, print_data, keywords) for b in (self.benchmarks if several else [self.benchmarks])]
        return (tables if several else tables[0]) if return_df else None

    def _table(self, b: Benchmark, print_data: bool, keywords: dict[str, Any]) -> list[list[Any]]:
        rows = []
        for x in b.x_vals:
            xs = list(x) if isinstance(x, (tuple, list)) else [x] * len(b.x_names)
            row = list(xs)
            for line in b.line_vals:
                y = self.fn(**dict(zip(b.x_names, xs)), **{b.line_arg: line}, **b.args, **keywords)
                row.append(y[0] if isinstance(y, (tuple, list)) else y)
            rows.append(row)
        if print_data:
            print(f"{b.plot_name}:")
            for cells in [[*b.x_names, *b.line_names], *rows]:
                print("  ".join(f"{c:>14.6g}" if isinstance(c, float) else f"{c!s:>14}" for c in cells))
        return rows


def perf_report(benchmarks: Any) -> Callable[[Callable[..., Any]], Mark]:
    """Decorates a function that measures one case, with the cases."""
    return lambda fn: Mark(fn, benchmarks)


__all__ = ["Benchmark", "Mark", "assert_close", "do_bench", "do_bench_cudagraph", "perf_report"]
