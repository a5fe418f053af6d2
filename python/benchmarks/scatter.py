#!/usr/bin/env python3
"""Sums at indices that repeat, on a GPU: Tessera beside eager PyTorch and TorchInductor, in one run.

    PYTHONPATH=build/python python3 python/benchmarks/scatter.py [--count 40] [--seed N]

Random tables, widths, dtypes and distributions of indices (uniform, Zipf, all equal, sorted) through the gradient of an
embedding, index_add, index_put with accumulation, scatter_add and scatter_reduce. Prints times of a call on the GPU in
microseconds, Tessera's over the better peer's, errors against float64, and the geometric mean.
"""

import argparse
import logging
import math
import random
import statistics

import torch

import tessera.backend  # noqa: F401

logging.getLogger("tessera").setLevel(logging.ERROR)
KINDS = ("embedding", "index_add", "index_put", "scatter_add", "scatter_each", "amax")


def indices(how: str, rows: int, count: int, g: torch.Generator) -> torch.Tensor:
    if how == "equal":
        return torch.zeros(count, dtype=torch.long, device="cuda")
    if how == "zipf":
        weights = 1.0 / torch.arange(1, rows + 1, dtype=torch.float64)
        return torch.multinomial(weights, count, replacement=True, generator=g).cuda()
    ids = torch.randint(0, rows, (count,), generator=g)
    return (ids.sort().values if how == "sorted" else ids).cuda()


def function(kind: str, rows: int):
    """The function to measure, of a source [n, width] and indices [n] ([n, width] for "scatter_each")."""
    if kind == "embedding":
        return lambda x, i: torch.ops.aten.embedding_dense_backward(x, i, rows, -1, False)
    if kind == "index_add":
        return lambda x, i: x.new_zeros(rows, x.shape[1]).index_add(0, i, x)
    if kind == "index_put":
        return lambda x, i: x.new_zeros(rows, x.shape[1]).index_put((i,), x, accumulate=True)
    if kind == "scatter_add":
        return lambda x, i: x.new_zeros(rows, x.shape[1]).scatter_add(0, i[:, None].expand(x.shape), x)
    if kind == "scatter_each":
        return lambda x, i: x.new_zeros(rows, x.shape[1]).scatter_add(0, i, x)
    return lambda x, i: x.new_full((rows, x.shape[1]), -math.inf).scatter_reduce(0, i[:, None].expand(x.shape), x, "amax")


def microseconds(f, *args) -> float:
    """The time of a call on the GPU: the median over rounds of calls that follow each other."""
    for _ in range(3):
        f(*args)
    times = []
    for _ in range(7):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        for _ in range(10):
            f(*args)
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 100)
    return statistics.median(times)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--count", type=int, default=40)
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    ratios = []
    print(f"{'kind':12} {'table':>14} {'indices':>15} {'dtype':>8} {'eager':>8} {'inductor':>8} {'tessera':>8} ratio  error (eager)")
    fixed = [("embedding", 2, 768, 8192, "equal"), ("scatter_add", 8192, 768, 8192, "uniform"), ("embedding", 30522, 768, 8192, "zipf"), ("embedding", 512, 768, 8192, "sorted")]
    r = random.Random(a.seed)
    for n in range(a.count):
        if n < len(fixed):
            (kind, rows, width, count, how), dtype = fixed[n], torch.float32
        else:
            kind, how = r.choice(KINDS), r.choice(("uniform", "zipf", "equal", "sorted"))
            rows, width = int(2 ** r.uniform(1, 16)), r.choice((1, 3, 16, 64, 100, 256, 768, 1000, 1024, 4096))
            count = min(int(2 ** r.uniform(8, 18)), (1 << 25) // width)
            dtype = r.choice((torch.float32, torch.float32, torch.float16, torch.bfloat16))
        g = torch.Generator().manual_seed(a.seed * 1000 + n)
        x = torch.randn(count, width, generator=g).to(dtype).cuda()
        ids = indices(how, rows, count, g)
        if kind == "scatter_each":
            ids = torch.stack([ids.roll(k) for k in range(width)], 1)
        f = function(kind, rows)
        exact, eager = f(x.double(), ids), f(x, ids)
        torch._dynamo.reset()
        with torch.no_grad():
            inductor, ours = torch.compile(f, backend="inductor", dynamic=False), torch.compile(f, backend="tessera", dynamic=False)
            got = ours(x, ids)
            finite = torch.isfinite(exact)
            error = [((t.double() - exact)[finite].norm() / exact[finite].norm()).item() for t in (got, eager)]
            times = [microseconds(t, x, ids) for t in (f, inductor, ours)]
        ratios.append(times[2] / min(times[:2]))
        print(f"{kind:12} {f'{rows}x{width}':>14} {f'{count} {how}':>15} {str(dtype)[6:]:>8} {times[0]:8.1f} {times[1]:8.1f} {times[2]:8.1f} {ratios[-1]:5.2f}  {error[0]:.1e} ({error[1]:.1e})", flush=True)
    print(f"geometric mean {math.exp(statistics.fmean(map(math.log, ratios))):.3f}, above 1.05: {sum(x > 1.05 for x in ratios)} of {len(ratios)}, worst {max(ratios):.2f}")


if __name__ == "__main__":
    main()
