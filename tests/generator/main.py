#!/usr/bin/env python3
"""Draws valid ONNX models and runs each at several sizes by Tessera's compiled code, its references, its GPU kernels on the emulator,
and ONNX Runtime. What does not agree is reduced and kept.

    main.py [--seed N] [--count N] [--jobs N] [--keep DIR]     models of the seeds N, N+1, ...
    main.py --family casts [--seed N] ...                      chains of conversions, compared to the bit (casts.py)
    main.py --compile sm_80,sm_90a [--seed N] ...              models of families too, in four types, compiled for GPUs only
    main.py --replay FILE...                                   kept cases (.case), or all of a folder

Exit code 1 where anything failed. A kept failure is DIR/SEED.case, reduced, and DIR/SEED/, the same in the layout of ONNX's backend
tests, which `tessera test DIR` runs on any device.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

MOST_BYTES = 8 << 30  # of memory that a process may take
SLOWEST = 10  # kernels whose compile times are printed
ROOT = Path(__file__).resolve().parents[2]


def options() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=0, help="the first one")
    p.add_argument("--count", type=int, default=500, help="of models")
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    p.add_argument("--family", choices=("casts",), help="models of this family alone")
    p.add_argument("--keep", type=Path, help="folder for failures, reduced")
    p.add_argument("--replay", type=Path, nargs="+", help="kept cases, or folders of them")
    p.add_argument("--runs", default="cpu,reference,emulator", help="which of these to compare with ONNX Runtime")
    p.add_argument("--compile", metavar="ARCH,...", help="compile for these GPUs, which takes none, and compare nothing: any error but a refusal of a type fails")
    p.add_argument("--runner", type=Path, default=ROOT / "build" / "bin" / "generator_runner", help="the program that runs models")
    p.add_argument("--seconds", type=float, default=60, help="that one run of a model may take")
    p.add_argument("--reduce", type=float, default=60, help="seconds that reducing a failure may take; 0: not at all")
    p.add_argument("--show", action="store_true", help="print each model, do not run it")
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    a.runs = tuple((a.compile or a.runs).split(","))
    if percent := os.environ.get("TESSERA_TEST_SEEDS"):  # tools/check sets it for its quick and middle tiers
        a.count = max(1, a.count * int(percent) // 100)
    return a


def worker(a: argparse.Namespace) -> None:
    """Seeds on standard input; a line of JSON each on standard output."""
    import resource
    import warnings

    import records
    from draw import Source, count_nodes
    from runner import Runner

    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))  # of the programs that run models, too
    warnings.simplefilter("ignore")
    source, runner = Source(records.read(a.runner)), Runner(a.runner, a.seconds)
    try:
        for line in sys.stdin:
            seed = int(line)
            start = time.monotonic()
            case, dtype = draw(a, source, seed)
            row: dict[str, Any] = {"seed": seed, "draw_s": time.monotonic() - start}
            if case is not None:
                row |= {"nodes": count_nodes(case.model.graph), "ops": op_types(case.model.graph), "opset": case.model.opset_import[0].version}
                row |= judge(a, case, runner, seed, dtype)
            row["s"] = time.monotonic() - start
            print(json.dumps(row), flush=True)
    finally:
        runner.close()


def draw(a: argparse.Namespace, source: Any, seed: int) -> tuple[Any, str]:
    """The case of a seed, and the type that its values of f32 take ("": f32)."""
    import numpy
    from casts import draw_casts
    from draw import draw_case
    from families import draw_family

    if a.family == "casts":
        return draw_casts(seed), ""
    if not a.compile:
        return draw_case(source, seed), ""
    rng = numpy.random.default_rng([41, seed])
    case = draw_family(source, seed) if rng.random() < 0.5 else None
    return case or draw_case(source, seed), str(rng.choice(["", "f16", "bf16", "f64"], p=[0.4, 0.2, 0.2, 0.2]))


def op_types(graph: Any) -> list[str]:
    out = []
    for node in graph.node:
        out.append(node.op_type if not node.domain else f"{node.domain}.{node.op_type}")
        for attribute in node.attribute:
            out += op_types(attribute.g)
    return out


def judge(a: argparse.Namespace, case: Any, runner: Any, seed: int, dtype: str) -> dict[str, Any]:
    import onnx
    import oracle
    from check import check, check_compiles
    from reduce import reduce_apart
    from retype import retyped
    from runner import Runner

    def verdict(c: Any, r: Any, runs: tuple[str, ...]) -> Any:
        times.clear()
        if not a.compile:
            return check(c, r, runs)
        return check_compiles(retyped(c, dtype) if dtype else c, r, runs, bool(dtype), times)

    times: list[tuple[float, str, str]] = []

    try:
        failure = verdict(case, runner, a.runs)
    except Exception as error:  # noqa: BLE001  ONNX Runtime took each node and refuses the model
        return {"refused": str(error)[:300]}
    if failure is None:
        return {"slowest": sorted(times)[-SLOWEST:]}
    small = case
    if a.reduce:
        apart = Runner(a.runner, a.seconds)
        small = reduce_apart(case, lambda c: failure.same(verdict(c, apart, (failure.run,))), a.reduce)
        apart.close()
    out = {"run": failure.run, "kind": failure.kind, "detail": failure.detail, "ops_left": op_types(small.model.graph)}
    if small is not case:
        again = verdict(small, runner, a.runs)
        out["detail"] = (again or failure).detail
    if a.keep:
        a.keep.mkdir(parents=True, exist_ok=True)
        (a.keep / f"{seed}.case").write_text(f"# seed {seed}: {failure.run}, {failure.kind}\n" + small.text())
        if not a.family:
            small.save_backend_test(a.keep / str(seed), oracle.run(small.model, small.calls))
        if dtype:
            onnx.save(retyped(small, dtype).model, a.keep / str(seed) / f"{dtype}.onnx")
    return out


class Job:
    """A process that does seed after seed; `seed`: the one that it does now."""

    def __init__(self, a: argparse.Namespace) -> None:
        command = [sys.executable, __file__, "--worker", "--runner", str(a.runner), "--runs", ",".join(a.runs), "--seconds", str(a.seconds), "--reduce", str(a.reduce)]
        if a.compile:
            command += ["--compile", a.compile]
        if a.family:
            command += ["--family", a.family]
        if a.keep:
            command += ["--keep", str(a.keep)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.seed: int | None = None

    def give(self, seed: int) -> None:
        assert self.process.stdin
        self.seed = seed
        self.process.stdin.write(f"{seed}\n")
        self.process.stdin.flush()

    def close(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def run_seeds(a: argparse.Namespace) -> int:
    import selectors

    seeds = iter(range(a.seed, a.seed + a.count))
    rows: list[dict[str, Any]] = []
    start = time.monotonic()
    with selectors.DefaultSelector() as selector:

        def begin(job: Job) -> None:
            seed = next(seeds, None)
            if seed is None:
                job.close()
                return
            job.give(seed)
            selector.register(job.process.stdout, selectors.EVENT_READ, job)

        for _ in range(min(a.jobs, a.count)):
            begin(Job(a))
        while selector.get_map():
            for key, _ in selector.select():
                job: Job = key.data
                selector.unregister(job.process.stdout)
                line = job.process.stdout.readline()
                if line:
                    row = json.loads(line)
                else:  # the process itself died: a crash of ONNX Runtime
                    row = {"seed": job.seed, "refused": f"it ended the process, exit code {job.process.wait()}"}
                    job = Job(a)
                rows.append(row)
                show(a, row, rows, start)
                begin(job)
    return close(a, rows, start)


def show(a: argparse.Namespace, row: dict[str, Any], rows: list[dict[str, Any]], start: float) -> None:
    if "kind" in row:
        left = f" ({', '.join(row['ops_left'])})" if len(row.get("ops_left", [""] * 9)) < 9 else ""
        print(f"seed {row['seed']}: {row['run']}: {row['kind']}{left}: {row['detail'][:800]}", flush=True)
    elif "refused" in row:
        print(f"seed {row['seed']}: ONNX Runtime has no result: {row['refused']}", flush=True)
    if len(rows) % 100 == 0:
        seconds = time.monotonic() - start
        print(f"{len(rows)} of {a.count} models, {sum('kind' in r for r in rows)} failed, {seconds:.0f} s", flush=True)


def open_failures() -> dict[int, str]:
    """Seeds whose failures are not mended yet, with what fails (open.txt)."""
    lines = (Path(__file__).parent / "open.txt").read_text().splitlines()
    return {int(seed): what for seed, _, what in (line.partition(" ") for line in lines if not line.startswith("#"))}


def close(a: argparse.Namespace, rows: list[dict[str, Any]], start: float) -> int:
    known = {} if a.family else open_failures()
    expected = [r for r in rows if "kind" in r and r["seed"] in known]
    for r in expected:
        print(f"seed {r['seed']} fails as before: {known[r['seed']]}")
    failed = [r for r in rows if "kind" in r and r["seed"] not in known]
    refused = [r for r in rows if "refused" in r or "nodes" not in r and "kind" not in r]
    nodes = [r["nodes"] for r in rows if "nodes" in r]
    ops = Counter(o for r in rows for o in r.get("ops", []))
    for (run, kind), count in Counter((r["run"], r["kind"]) for r in failed).most_common():
        print(f"  {count} x {run}: {kind}")
    slowest = sorted(((*k, r["seed"]) for r in rows for k in r.get("slowest", [])), reverse=True)[:SLOWEST]
    for ms, run, kernel, seed in slowest:
        print(f"  {ms / 1000:.2f} s to compile {kernel} of seed {seed} for {run}")
    print(f"{len(rows)} models of {sum(nodes)} nodes, at most {max(nodes, default=0)}, {len(ops)} operators, in {time.monotonic() - start:.0f} s "
          f"({sum(r.get('draw_s', 0) for r in rows):.0f} s of drawing): {len(rows) - len(failed) - len(expected) - len(refused)} agree, {len(failed)} failed, {len(expected)} fail as before, {len(refused)} not drawn")  # fmt: skip
    if len(refused) > 0.2 * len(rows):
        print("too few were drawn")
        return 1
    return 1 if failed else 0


def replay(a: argparse.Namespace) -> int:
    from case import Case
    from check import check
    from runner import Runner

    files = [f for p in a.replay for f in (sorted(p.glob("*.case")) if p.is_dir() else [p])]
    runner, failed = Runner(a.runner, a.seconds), 0
    for file in files:
        failure = check(Case.parse(file.read_text()), runner, a.runs)
        if failure:
            failed += 1
            print(f"{file.name}: {failure.run}: {failure.kind}: {failure.detail}")
    runner.close()
    print(f"{len(files)} cases, {failed} failed")
    return 1 if failed or not files else 0


def show_models(a: argparse.Namespace) -> int:
    import onnx.printer
    import records
    from draw import Source

    source = Source(records.read(a.runner))
    for seed in range(a.seed, a.seed + a.count):
        case, _ = draw(a, source, seed)
        if case:
            print(f"seed {seed}\n{onnx.printer.to_text(case.model)}\n")
            for k, feeds in enumerate(case.calls):
                print(f"call {k}:", {name: array.shape for name, array in feeds.items()})
    return 0


if __name__ == "__main__":
    arguments = options()
    if arguments.worker:
        worker(arguments)
    else:
        sys.exit(replay(arguments) if arguments.replay else show_models(arguments) if arguments.show else run_seeds(arguments))
