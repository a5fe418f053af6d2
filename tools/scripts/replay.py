"""Builds the plan and every kernel of many models at two commits and prints what changed.

    build/venv/bin/python3 tools/replay BASE [--models PATTERN] [--quick]

BASE is a commit; the other side is this tree, as it is built in build/. Compared are the steps of the plan with their operators, values, schedules and
launches (their numbers, warps, shared memory), the edges' verdicts, and of each kernel the nest, the tile text, the LLVM IR and the PTX, on a CPU and for
sm_90a. Models: models/, the benchmark suite's cases, backend tests and models drawn at random; what a commit refuses is compared as the refusal.

The last line is "N of M kernels changed". Exit code 1 where any did, or a plan.
"""
import argparse, concurrent.futures, fnmatch, glob, json, os, re, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEVICES = {"cpu": ["--device", "cpu", "--target", "avx512"], "sm_90a": ["--device", "cuda", "--arch", "sm_90a", "--target", "h200"]}
TEXTS = ("nest", "tile", "llvm", "ptx")
# Fields of a step that are no part of what runs: prices, times of the compile, and names, which stand in `symbol`, too.
IGNORED = {"price", "from_cache", "compile_ms", "planned_us", "planned_bound", "why", "tuned", "class", "routes", "id", "symbol", "runs", "inside", "bodies", *TEXTS}
SYMBOL = re.compile(r"tsr_[0-9a-f]{32}|tessera_\w+_[0-9a-f]{12}")  # what a kernel computes and the hash of its text
BACKEND_TESTS, RANDOM = 200, 100


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("base", help="the commit to compare with")
    p.add_argument("--models", default="*", help="names of models, with * and ?")
    p.add_argument("--quick", action="store_true", help="a tenth of the models")
    p.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    return p.parse_args()


def built(commit):
    """The command of a commit, built in a worktree below build/replay, which stays for the next run."""
    sha = subprocess.run(["git", "rev-parse", "--short=12", commit + "^{commit}"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    tree = os.path.join(ROOT, "build", "replay", sha)
    if not os.path.exists(tree):
        subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, sha], cwd=ROOT, check=True)
        os.mkdir(os.path.join(tree, "build"))
        for shared in ("venv", "ccache"): os.symlink(os.path.realpath(os.path.join(ROOT, "build", shared)), os.path.join(tree, "build", shared))
    subprocess.run(["tools/build", "release", "tessera"], cwd=tree, check=True, stdout=subprocess.DEVNULL)
    return os.path.join(tree, "build", "bin", "tessera")


def drawn(folder, count):
    """Models of the generator's seeds 0, 1, ..."""
    sys.path.insert(0, os.path.join(ROOT, "tests", "generator"))
    runner = os.path.join(ROOT, "build", "bin", "generator_runner")
    if not os.path.exists(runner): sys.exit("error: build/bin/generator_runner is not built: tools/build release generator_runner")
    import onnx, records, pathlib, warnings
    from draw import Source, draw_case
    warnings.simplefilter("ignore")
    source = Source(records.read(pathlib.Path(runner)))
    for seed in range(count):
        case = draw_case(source, seed)
        if case is None: continue
        path = os.path.join(folder, f"random.{seed}.onnx")
        onnx.save(case.model, path)
        yield path


def suite_cases(folder):
    sys.path.insert(0, os.path.join(ROOT, "tools"))
    from benchmark import suite
    for case in [*suite.gpu(), *suite.cpu()]:
        path = os.path.join(folder, f"suite.{case.name}.onnx")
        if os.path.exists(path): continue
        case.save(path)
        yield path


def models(a, folder):
    few = 10 if a.quick else 1
    all_models = sorted(glob.glob(os.path.join(ROOT, "models", "*.onnx"))) + list(suite_cases(folder))
    tests = sorted(glob.glob(os.path.join(ROOT, "build", "backend-tests", "**", "model.onnx"), recursive=True))
    all_models += tests[:: max(1, len(tests) // BACKEND_TESTS)] + list(drawn(folder, RANDOM // few))
    return [m for m in all_models[::few] if fnmatch.fnmatch(name_of(m), a.models)]


def name_of(path):
    return os.path.basename(os.path.dirname(path)) if os.path.basename(path) == "model.onnx" else os.path.basename(path).removesuffix(".onnx")


def report(tessera, model, device):
    """The report with all texts, or the first line of the refusal."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "r.json")
        texts = "llvm" if device == "cpu" else "ptx"
        done = subprocess.run([tessera, "explain", model, *DEVICES[device], "--no-cache", "--tiles", "--ir", texts, "--format", "json", "-o", out],
                              stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, errors="replace", env={**os.environ, "TESSERA_CACHE_DIR": folder})
        if done.returncode: return next((l for l in done.stderr.splitlines() if l.startswith("error")), f"exit code {done.returncode}")
        return json.load(open(out))


def plain(value, renamed):
    """Without what does not run; names of steps by their order."""
    if isinstance(value, dict): return {k: plain(v, renamed) for k, v in value.items() if k not in IGNORED}
    if isinstance(value, list): return [plain(v, renamed) for v in value]
    if isinstance(value, str): return renamed.get(value, value)
    return value


def without_new_keys(before, after, new_keys):
    """`after` without the keys that `before` lacks in the same place, which are added to `new_keys`: reports learn to print more."""
    if isinstance(before, dict) and isinstance(after, dict):
        new_keys.update(after.keys() - before.keys())
        return {k: without_new_keys(before[k], v, new_keys) for k, v in after.items() if k in before}
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [without_new_keys(b, a, new_keys) for b, a in zip(before, after)]
    return after


def parts(r):
    """{what: {name: value}} of a report."""
    if isinstance(r, str): return {"refusals": {"": r}}
    steps = {s["id"]: f"step {i}" for i, s in enumerate(r["steps"])}
    out = {"plan": {}, "kernels": {}}
    for i, s in enumerate(r["steps"]):
        out["plan"][f"step {i}"] = plain(s, steps)
        texts = {t: SYMBOL.sub("kernel", s[t]) for t in TEXTS if t in s}
        if texts: out["kernels"][f"step {i}"] = texts
    out["plan"]["edges"] = [[e["id"], e["fused"]] for e in r["edges"]]
    out["plan"]["memory"] = plain(r["memory"], steps)
    return out


def compared(job):
    old, new, model, device = job
    a, b = parts(report(old, model, device)), parts(report(new, model, device))
    changes, new_keys = [], set()
    for what in sorted({*a, *b}):
        before, after = a.get(what, {}), b.get(what, {})
        differing = [n for n in {**before, **after} if before.get(n) != without_new_keys(before.get(n), after.get(n), new_keys)]
        if differing: changes.append((what, len(differing), differing[0], before.get(differing[0]), after.get(differing[0])))
    return model, device, len(b.get("kernels", {})), changes, new_keys


def main():
    a = arguments()
    old, new = built(a.base), os.path.join(ROOT, "build", "bin", "tessera")
    kernels = changed = plans = 0
    new_keys = set()
    with tempfile.TemporaryDirectory() as folder:
        jobs = [(old, new, m, d) for m in models(a, folder) for d in DEVICES]
        with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
            for model, device, count, changes, keys in pool.map(compared, jobs):
                kernels += count
                new_keys |= keys
                for what, n, first, before, after in changes:
                    if what == "kernels": changed += n
                    else: plans += 1
                    print(f"{name_of(model)} {device}: {n} {what} changed, first {first or 'refusal'}" + (f": {before} became {after}" if what == "refusals" else ""), flush=True)
    if new_keys: print(f"not compared, as the base does not print it: {', '.join(sorted(new_keys))}")
    print(f"{len(jobs)} plans, {plans} changed")
    print(f"{changed} of {kernels} kernels changed")
    return 1 if changed or plans else 0
