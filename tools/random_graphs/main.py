#!/usr/bin/env python3
"""Random small graphs through torch.compile(backend="tessera"), forward and backward, compared with eager PyTorch.

    python3 tools/random_graphs/main.py --device cuda --count 5000 --jobs 14

A graph fails that ends the process, raises where eager does not, or has more than twice eager's error against float64;
one of casts fails that has other bits than eager, with strict rounding.
Each failure is printed with its family and seed, which `--family F --seed N --count 1` repeats. Exit code 1 if one fails.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).resolve().parent)]
LOST = 3  # exit status of a worker whose GPU is not usable any more
MODES = ("plain", "capture", "stream", "threads", "full")


def flat(value: Any) -> list[Any]:
    return [x for v in value for x in flat(v)] if isinstance(value, (list, tuple)) else [value]


class Check:
    """Runs graphs in this process. mode: how a warm graph is called once more (MODES)."""

    def __init__(self, device: str, mode: str):
        global torch, families
        import torch

        import families

        sys.path.append(str(ROOT / "build" / "python"))
        import tessera.backend  # noqa: F401

        logging.getLogger("tessera").setLevel(logging.ERROR)
        logging.getLogger("torch").setLevel(logging.CRITICAL)
        self.device, self.mode = device, mode
        torch._dynamo.config.automatic_dynamic_shapes = False
        torch.backends.cudnn.allow_tf32 = False  # cuDNN's choices of it are not ours
        if mode == "full":  # 600 MB are left on the card
            free, _ = torch.cuda.mem_get_info()
            self.held = torch.empty(max(0, free - (600 << 20)), dtype=torch.uint8, device="cuda")

    def results(self, f: Any, inputs: list[Any], backward: bool, dtype: Any = None) -> list[Any]:
        """Results and gradients, detached; of inputs in another type where `dtype` names one."""
        given = []
        for t in inputs:
            x = t.detach()
            if x.is_floating_point():
                x = (x.to(dtype) if dtype else x).requires_grad_(backward)
            given.append(x)
        with torch.set_grad_enabled(backward):
            out = [o for o in flat(f(*given)) if isinstance(o, torch.Tensor)]
            grads: list[Any] = []
            loss = [o for o in out if o.requires_grad]
            if backward and loss:
                seeds = [torch.linspace(-1, 1, o.numel(), device=o.device, dtype=torch.float64).reshape(o.shape).to(o.dtype) for o in loss]
                grads = list(torch.autograd.grad(loss, [x for x in given if x.requires_grad], seeds, allow_unused=True))
        return [o.detach() for o in out] + [g for g in grads if g is not None]

    def captured(self, f: Any, inputs: list[Any]) -> list[Any]:
        fixed = [t.detach().clone(memory_format=torch.preserve_format) for t in inputs]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(side):
            for _ in range(3):
                f(*fixed)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            out = [o for o in flat(f(*fixed)) if isinstance(o, torch.Tensor)]
        for t, x in zip(fixed, inputs, strict=True):
            t.copy_(x.detach())
        for _ in range(2):
            graph.replay()
        torch.cuda.synchronize()
        return [o.clone() for o in out]

    def called(self, f: Any, g: Any) -> list[list[Any]]:
        """Results of the calls that the mode makes."""
        first = self.results(f, g.inputs, g.backward)
        if self.mode == "capture":
            return [first, self.captured(f, g.inputs)]
        if self.mode == "stream":
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                second = self.results(f, g.inputs, g.backward)
            side.synchronize()
            return [first, second]
        if self.mode == "threads":
            found: list[Any] = []

            def call() -> None:
                try:
                    with torch.cuda.stream(torch.cuda.Stream()):
                        found.append(self.results(f, g.inputs, g.backward))
                        torch.cuda.current_stream().synchronize()
                except Exception as e:
                    found.append(e)

            if self.device == "cuda":
                torch.cuda.synchronize()
            threads = [threading.Thread(target=call) for _ in range(6)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            for e in found:
                if isinstance(e, Exception):
                    raise e
            return [first, *found]
        return [first]

    def usable(self) -> bool:
        try:
            torch.cuda.synchronize()
        except Exception:
            return False
        return True

    def run(self, family: str, seed: int) -> str:
        """Empty, or what is wrong. "refused" where eager raises; "lost" where that cost the process its GPU."""
        g = families.draw(family, seed, self.device)
        options = {"strict_rounding": True} if g.bits else {}
        try:
            want = self.results(g.function, g.inputs, g.backward)
            exact = self.in_parts(g) if g.bits else self.results(g.function, g.inputs, g.backward, torch.float64)
            if self.device == "cuda":
                torch.cuda.synchronize()
        except Exception:
            want = None
            if self.device == "cuda" and not self.usable():  # eager lost the context: the next graph needs a process of its own
                return "lost"
        torch._dynamo.reset()
        try:
            calls = self.called(torch.compile(g.function, backend="tessera", dynamic=g.dynamic, options=options), g)
            if self.device == "cuda":
                torch.cuda.synchronize()
        except Exception as e:
            refused = want is None or self.not_ours(g)
            return "refused" if refused else f"{g.name}: {type(e).__name__}: {' '.join(str(e).split())[:300]}"
        if want is None:
            return "refused"
        for got in calls:
            if len(got) > len(want) or (len(got) < len(want) and self.mode != "capture"):
                return f"{g.name}: {len(got)} results for {len(want)}"
            for i, (x, y, z) in enumerate(zip(got, want, exact, strict=False)):
                if x.shape != y.shape or x.dtype != y.dtype:
                    return f"{g.name}: result {i} is {x.dtype} {tuple(x.shape)}, not {y.dtype} {tuple(y.shape)}"
                if wrong := self.other_bits(x, y, z) if g.bits else self.departs(x, y, z):
                    return "refused" if not g.bits and self.not_ours(g, got) else f"{g.name}: result {i}: {wrong}"
        return ""

    def not_ours(self, g: Any, got: list[Any] | None = None) -> bool:
        """Whether PyTorch cannot trace the graph, whatever compiles it, or traces what has the results `got` by itself."""
        torch._dynamo.reset()
        try:
            traced = self.results(torch.compile(g.function, backend="aot_eager", dynamic=g.dynamic), g.inputs, g.backward)
        except Exception:
            return True
        return got is not None and not any(self.departs(x, y, y.double()) for x, y in zip(got, traced, strict=True))

    def in_parts(self, g: Any) -> list[Any]:
        """Results of three elements at a time: where eager's loop over vectors and the one over their rest differ, no bits are right."""
        parts = [self.results(g.function, [x[i : i + 3] for x in g.inputs], False) for i in range(0, g.inputs[0].shape[0], 3)]
        return [torch.cat(p) for p in zip(*parts, strict=True)]

    def other_bits(self, x: Any, y: Any, z: Any) -> str:
        def bits(t: Any) -> Any:  # of any NaN the same
            return t.double().view(torch.int64).masked_fill(t.double().isnan(), -1) if t.is_floating_point() else t

        a, b, c = bits(x.cpu()), bits(y.cpu()), bits(z.cpu())
        other = (a != b) & (b == c)
        if not bool(other.any()):
            return ""
        i = int(other.nonzero()[0])
        return f"element {i} is {x[i].item()}, not {y[i].item()}, and {int(other.sum())} of {other.numel()} differ"

    def departs(self, x: Any, y: Any, z: Any) -> str:
        if not y.is_floating_point():
            # An index may name another element of nearly the same value.
            share = (x != y).double().mean().item() if x.numel() else 0.0
            return f"{share:.0%} of the integers differ" if share > 0.05 else ""
        x, e = x.double(), y.double()
        odd = ~torch.isfinite(e) | ~torch.isfinite(z)
        if bool((~torch.isfinite(x) & ~odd).any()):
            return "NaN or infinity where eager has numbers"
        x, e, z = (t.masked_fill(odd, 0) for t in (x, e, z))
        scale = z.norm().item()
        ours, eager = (x - z).norm().item(), (e - z).norm().item()
        # Roundings of the values on the way remain where eager happens to be exact, or the true result is 0. In float64
        # eager's result is the reference, which has as many roundings as ours.
        times = 8 if y.dtype == torch.float64 else 1
        floor = times * torch.finfo(y.dtype).eps * (8 * scale + y.numel() ** 0.5)
        return f"error {ours / max(scale, 1e-30):.2g}, eager {eager / max(scale, 1e-30):.2g}" if ours > 2 * eager + floor else ""


def work(arguments: argparse.Namespace, first: int, step: int) -> int:
    """A worker: one line of JSON for each graph that begins or ends."""
    check = Check(arguments.device, arguments.mode)
    for seed in range(first, arguments.seed + arguments.count, step):
        family = arguments.family or list(families.FAMILIES)[seed % len(families.FAMILIES)]
        print(json.dumps({"begin": seed, "family": family}), flush=True)
        wrong = check.run(family, seed)
        print(json.dumps({"end": seed, "family": family, "wrong": wrong}), flush=True)
        if wrong == "lost" or check.device == "cuda" and not check.usable():
            return LOST
    return 0


def watch(command: list[str], first: int, step: int, until: float, rows: list[dict[str, Any]], last: int) -> None:
    """Runs a worker, and another one behind the graph that ended it."""
    while first < last and time.monotonic() < until:
        p = subprocess.Popen([*command, "--worker", f"{first}/{step}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        errors: list[str] = []
        reader = threading.Thread(target=lambda: errors.extend(p.stderr))  # type: ignore[arg-type]
        reader.start()
        timer = threading.Timer(max(1.0, until - time.monotonic()), p.kill)
        timer.start()
        running: dict[str, Any] | None = None
        assert p.stdout
        for line in p.stdout:
            row = json.loads(line) if line.startswith('{"') else {}
            if "begin" in row:
                running = row
            elif "end" in row:
                running = None
                rows.append(row)
                first = row["end"] + step
        p.wait()
        timer.cancel()
        reader.join()
        if running is None and p.returncode == LOST:
            continue
        if running is None:
            if p.returncode != 0 and time.monotonic() < until:
                rows.append({"end": -1, "family": "", "wrong": f"a worker ended with {p.returncode}: {''.join(errors)[-400:]}"})
            return
        if time.monotonic() < until:
            rows.append({"end": running["begin"], "family": running["family"], "wrong": f"the process ended with {p.returncode}: {' '.join(''.join(errors).split())[-400:]}"})
        first = running["begin"] + step


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--count", type=int, default=600)
    p.add_argument("--family", help="one family alone; without it they take turns")
    p.add_argument("--mode", default="plain", choices=MODES, help="what else a warm graph is called under")
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    p.add_argument("--seconds", type=float, default=3600, help="end after so many, whatever is left")
    p.add_argument("--worker", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.worker:
        first, step = a.worker.split("/")
        return work(a, int(first), int(step))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    command = [sys.executable, str(Path(__file__).resolve()), "--device", a.device, "--seed", str(a.seed), "--count", str(a.count), "--mode", a.mode]
    command += ["--family", a.family] if a.family else []
    rows: list[dict[str, Any]] = []
    until = time.monotonic() + a.seconds
    workers = [threading.Thread(target=watch, args=(command, a.seed + i, a.jobs, until, rows, a.seed + a.count)) for i in range(a.jobs)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    failed = [r for r in rows if r["wrong"] not in ("", "refused", "lost")]
    for r in sorted(failed, key=lambda r: (r["family"], r["end"])):
        print(f"{r['family']} seed {r['end']}: {r['wrong']}")
    print(f"{len(rows)} graphs of {a.count}, {sum(r['wrong'] in ('refused', 'lost') for r in rows)} refused by eager, {len(failed)} failed ({a.device}, {a.mode})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
