"""Command line of tools/bench."""
import argparse, json, os, sys, tempfile, time
from . import convolutions, products, report, run, suite, sweep, tune
from .case import CaseError, parse
from .machine import Machine, cores, import_onnxruntime, import_torch
from .tessera import TesseraError
from .warm import Warmer

PEERS = ("copy", "eager", "compile", "max-autotune", "onnxruntime", "library")
MODES = {"compile": "", "max-autotune": "max-autotune-no-cudagraphs"}
EPILOG = """One run times everybody in turn: Tessera, a copy of the same bytes, PyTorch and, on a CPU, ONNX Runtime. Ratios are Tessera's time over the peer's.
Every case is checked against float64, in memory that held other bytes, and run twice: the bits must be the same. Exit code 1: something was wrong.

  tools/bench                                   the suite, on the GPU if there is one
  tools/bench --device cpu --threads 2 --filter softmax,norm --markdown table.md
  tools/bench --cases more.json --json out.json further cases; tools/benchmark/case.py says how they are written
  tools/bench --sweep --points 100 --seed 7     random sizes and types of every family
  tools/bench --products --points 200 --seed 7  random products with prologues and epilogues, also with libraries' products alone
  tools/bench --convolutions                    convolutions of models, also with libraries' convolutions alone
  tools/bench --sweep --peers copy --tune 5     and whether tuning would find faster schedules
"""


def arguments(argv):
    p = argparse.ArgumentParser(prog="tools/bench", description="Memory-bound computations: Tessera against its peers.", epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    p.add_argument("--threads", type=int, default=0, help="of everybody, on a CPU (default: all cores)")
    p.add_argument("--peers", help=f"of {','.join(PEERS)} (default: copy,eager,compile and, on a CPU, onnxruntime; a sweep's: copy,compile; of --products and --convolutions: compile,library)")
    p.add_argument("--filter", default="", help="only cases whose name has one of these texts (commas between)")
    p.add_argument("--cases", action="append", default=[], metavar="FILE", help="a JSON list of further cases")
    p.add_argument("--no-suite", action="store_true", help="only the cases of --cases")
    p.add_argument("--sweep", action="store_true", help="random points in place of the suite")
    p.add_argument("--products", action="store_true", help="random products of matrices in place of the suite")
    p.add_argument("--convolutions", action="store_true", help="convolutions with channels last in place of the suite")
    p.add_argument("--points", type=int, default=100)
    p.add_argument("--seed", type=int, default=0, help="of the sweep's points")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=None, help="for each contender of a case, in all rounds (default: 0.1 on a GPU, 1 on a CPU)")
    p.add_argument("--jobs", type=int, default=max(1, cores() - 2), help="processes that run torch.compile beforehand; 0: none")
    p.add_argument("--budget", type=float, default=1e9, help="seconds after which no further case begins")
    p.add_argument("--tune", type=float, metavar="SECONDS", help="also tune each case for at most so long, with the command next to the library, and report how far the cost model's schedules are from the fastest")
    p.add_argument("--no-check", action="store_true", help="only time")
    p.add_argument("--no-time", action="store_true", help="only check")
    p.add_argument("--list", action="store_true", help="name the cases and end")
    p.add_argument("--write", metavar="FOLDER", help="write the cases as ONNX models into this folder and end (a corpus for tessera tune --corpus)")
    p.add_argument("--library", help="libtessera.so (default: of build/, or of the bundle)")
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--markdown", metavar="FILE")
    return p.parse_args(argv)


def choose_cases(a, device):
    wanted = [t for t in a.filter.split(",") if t]
    keep = lambda name: not wanted or any(t in name for t in wanted)
    cases = []
    if a.products: cases += products.points(a.points, a.seed, device, keep)
    elif a.convolutions: cases += convolutions.points(keep)
    elif a.sweep: cases += sweep.points(a.points, a.seed, device, keep)
    elif not a.no_suite: cases += [c for c in (suite.gpu() if device == "cuda" else suite.cpu()) if keep(c.name)]
    for path in a.cases:
        try: entries = json.load(open(path))
        except (OSError, ValueError) as e: raise CaseError(f"{path}: {e}") from e
        cases += [c for c in map(parse, entries) if keep(c.name)]
    return cases


def choose_peers(a, device, torch, onnxruntime):
    """Those that are requested and present, and why the others are not."""
    usual = ["compile", "library"] if a.products or a.convolutions else ["copy", "compile"] if a.sweep else ["copy", "eager", "compile"] + (["onnxruntime"] if device == "cpu" else [])
    asked = a.peers.split(",") if a.peers is not None else usual
    peers, missing = [], []
    for p in filter(None, asked):
        if p not in PEERS: raise CaseError(f"there is no peer {p}; there are {', '.join(PEERS)}")
        if p in ("eager", "compile", "max-autotune") and not torch: missing.append(f"{report.LABELS[p]} is left out: PyTorch is not there")
        elif p == "library" and device != "cuda": missing.append("libraries alone are left out: on a CPU no product has another route")
        elif p == "onnxruntime" and device != "cpu": missing.append("ONNX Runtime is left out: it is a peer on a CPU only")
        elif p == "onnxruntime" and not onnxruntime: missing.append("ONNX Runtime is left out: it is not there")
        else: peers.append(p)
    return peers, missing


def main(argv=None):
    a = arguments(argv)
    began = time.time()
    os.environ.setdefault("TESSERA_CUDNN_WAIT", "1")  # attention by the route that stays, from the first call on
    torch, _ = import_torch()
    onnxruntime, _ = import_onnxruntime()
    device = a.device if a.device != "auto" else "cuda" if torch and torch.cuda.is_available() else "cpu"
    try:
        cases = choose_cases(a, device)
        peers, notes = choose_peers(a, device, torch, onnxruntime)
        if a.list:
            print("\n".join(c.name for c in cases))
            return 0
        if a.write:
            os.makedirs(a.write, exist_ok=True)
            for c in cases: c.save(os.path.join(a.write, c.name + ".onnx"))
            print(f"{len(cases)} models are in {a.write}")
            return 0
        machine = Machine(device, a.threads or cores(), a.library, torch, onnxruntime)
    except (CaseError, TesseraError, RuntimeError, OSError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    if not cases:
        print("error: no case has that name", file=sys.stderr)
        return 2
    seconds = a.seconds if a.seconds is not None else 0.1 if device == "cuda" else 1.0
    if not torch and not a.no_check: notes.append("results are compared between two runs only: what is right is computed with PyTorch, which is not there")
    for n in notes: print("note: " + n)

    compiled = [MODES[p] for p in peers if p in MODES] if not a.no_time else []
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as folder:
        try: tuner = tune.Tuner(machine.library.path, device, machine.threads, folder) if a.tune else None
        except TesseraError as e:
            print(f"error: {e}", file=sys.stderr)
            return 2
        warmer = None
        if compiled and a.jobs > 0 and len(cases) > 1:
            cache = os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(folder, "inductor"))
            warmer = Warmer(cases, device, compiled, min(a.jobs, len(cases)), cache, machine.threads)
        wrong = {}
        if not a.no_check:
            for case in cases:
                if time.time() - began > a.budget: break
                if why := run.check(machine, case, folder): wrong[case.name] = why
                machine.clean()
                if case.name in wrong: print(f"WRONG {case.name}: {wrong[case.name]}", flush=True)
            print(f"checked after {time.time() - began:.0f} s: {len(wrong)} wrong", flush=True)
        if warmer:
            for problem in warmer.wait(max(1.0, a.budget - (time.time() - began))): notes.append(f"compiling beforehand: {problem}")
            print(f"compiled beforehand after {time.time() - began:.0f} s", flush=True)
        rows = []
        for case in cases if not a.no_time else []:
            if time.time() - began > a.budget:
                notes.append(f"out of time: {len(cases) - len(rows)} of {len(cases)} cases were not timed")
                break
            row = run.measure(machine, case, folder, peers, a.rounds, seconds)
            if case.name in wrong: row["wrong"] = wrong[case.name]
            if tuner: row["tuning"] = tuner(os.path.join(folder, case.name + ".onnx"), a.tune)
            rows.append(row)
            print(report.line(row, peers) + tune.text(row), flush=True)
        if a.no_time: rows = [{"case": c.name, "family": c.family, "bytes": getattr(c, "bytes", 0), "flops": c.flops, "times": {}, **({"wrong": wrong[c.name]} if c.name in wrong else {})} for c in cases]

    main_peer = next((p for p in ("compile", "eager", "onnxruntime", "copy") if p in peers), None)
    if (a.products or a.convolutions) and main_peer: notes += products.summary(rows, main_peer, report)
    notes += report.sweep_summary(rows, main_peer) if a.sweep and main_peer else []
    notes += report.means(rows, peers) + tune.summary(rows)
    print("\n" + "\n".join(notes) + f"\n{time.time() - began:.0f} s")
    if a.json: report.write_json(a.json, rows, machine.describe(), notes)
    if a.markdown:
        with open(a.markdown, "w") as f: f.write(report.markdown(rows, peers, machine.describe(), notes))
    failed = [r for r in rows if r.get("wrong") or "tessera" in r.get("failed", {})]
    return 1 if failed or wrong else 0
