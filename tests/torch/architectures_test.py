"""Twenty-five architectures through torch.compile(backend="tessera"): results as eager's, static and for any batch and length.

    python tests/torch/architectures_test.py [NAME ...]
"""

from __future__ import annotations

import sys
import time
import traceback

import support
import torch
from architectures import ARCHITECTURES, build, inputs

SHAPES = ((2, 24), (3, 17), (5, 13))  # batch, tokens of a text


def check(name: str) -> str:
    """One architecture; returns what the table says of it. Raises AssertionError for another result than eager's."""
    module, example, _ = build(name)
    notes = []
    with torch.no_grad():
        want = module(*example)
        with support.Counted() as c:
            begin = time.perf_counter()
            got = support.compiled(module)(*example)
            seconds = time.perf_counter() - begin
        support.assert_close(got, want, rtol=1e-3, atol=1e-4)
        notes.append(f"static {c.graphs} graphs {c.compiles} programs {c.operators_left} operators left {c.copies} copies {seconds:.1f} s")
        assert c.fallback_calls == 0, f"{c.fallback_calls} calls fell back to PyTorch"
        with support.Counted() as c:
            model = support.compiled(module, dynamic=True)
            for n, (batch, tokens) in enumerate(SHAPES):
                x = inputs(name, batch)
                if ARCHITECTURES[name].takes == "tokens":
                    x = (x[0][:, :tokens].clone(),)
                for dim in ARCHITECTURES[name].static:
                    torch._dynamo.mark_static(x[0], dim)
                before = (c.graphs, c.compiles)
                support.assert_close(model(*x), module(*x), rtol=1e-3, atol=1e-4)
                # Dynamo may specialise to a size and request another graph, which is not ours to count.
                assert n == 0 or c.graphs > before[0] or c.compiles == before[1], f"compiled again for batch {batch}, tokens {tokens}"
        assert c.fallback_calls == 0, f"{c.fallback_calls} calls fell back to PyTorch"
        assert c.variants == c.compiles, f"{c.variants} variants of {c.compiles} programs: compiled again for a shape"
        notes.append(f"dynamic {c.graphs} graphs {c.compiles} programs {c.operators_left} operators left")
    return "; ".join(notes)


def main() -> int:
    failed = []
    index, count = support.shard()
    names = sys.argv[1:] or list(ARCHITECTURES)[index::count]
    for name in names:
        try:
            print(f"{name:16} {check(name)}", flush=True)
        except Exception as e:
            failed.append(name)
            print(f"{name:16} FAILED {type(e).__name__}: {' '.join(str(e).split())[:300]}", flush=True)
            if len(names) == 1:
                traceback.print_exc()
    print(f"{len(names) - len(failed)} of {len(names)} architectures equal eager")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
