"""The suites of tools/gate: which sections of docs/performance.json each measures, and how.

Suites of the host, and the kernels, are other programs of this folder and of tools/scripts, run on all cases and then again on those that look worse. The other suites of a
GPU are subjects of python/benchmarks/subjects.py: processes that are made ready many at a time, for all these suites together, and measured one at a time.
"""
import glob, json, os, signal, subprocess, sys, time
from dataclasses import dataclass, field
from . import page

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # of the tree, or of the bundle
BENCHMARKS = os.path.join(ROOT, "python", "benchmarks")


@dataclass(frozen=True)
class Section:
    title: str
    kind: str  # as page.READERS has them


@dataclass(frozen=True)
class Suite:
    device: str
    sections: tuple
    modules: tuple = ()  # of Python that must be there


SECTIONS = {
    "gpu-kernels": Section("Kernels", "kernels"),
    "gpu-models": Section("Models from ONNX, f16", "models"),
    "gpu-graphs": Section("Models from ONNX at batch 1, f16", "models"),
    "torch-models": Section('torch.compile(backend="tessera"), f16', "torch"),
    "torch-models-f32": Section('torch.compile(backend="tessera"), f32', "torch"),
    "gpu-attention": Section("Attention through torch.compile", "calls"),
    "gpu-products": Section("Products through torch.compile", "calls"),
    "gpu-training": Section("Forward and backward pass through torch.compile, bf16 autocast", "torch"),
    "host-models": Section("Models from ONNX, f32, host", "models"),
    "host-kernels": Section("Kernels, f32, host", "families"),
}
MODELS = ("torch", "triton", "transformers", "timm", "torchvision", "onnx")
SUITES = {  # the order in which they are measured
    "kernels": Suite("cuda", ("gpu-kernels",), ("torch", "triton", "onnx")),
    "attention": Suite("cuda", ("gpu-attention",), ("torch", "triton")),
    "products": Suite("cuda", ("gpu-products",), ("torch", "triton")),
    "training": Suite("cuda", ("gpu-training",), MODELS),
    "models": Suite("cuda", ("gpu-models", "gpu-graphs", "torch-models", "torch-models-f32"), MODELS),
    "host": Suite("cpu", ("host-models", "host-kernels"), ("torch", "onnx", "onnxruntime")),
}


def key_of(row):
    """The key of a row of docs/performance.json: name and shape."""
    return row[0], row[1] if isinstance(row[1], str) else ""


def first(*patterns):
    """The first file there is, below ROOT."""
    return next((p for pattern in patterns for p in sorted(glob.glob(os.path.join(ROOT, pattern)))), None)


def package():
    """The folder that PYTHONPATH needs for the Python package: of the build folder or of the bundle."""
    found = first("build/python/tessera/_native*.so", "python/tessera/_native*.so")
    return os.path.dirname(os.path.dirname(found)) if found else None


def command():
    return first("build/bin/tessera", "bin/tessera")


def scripts():
    return os.path.dirname(first("tools/scripts/gpu_models.py", "scripts/gpu_models.py"))


def machine():
    """The devices and packages of this machine. Another process finds them: this one must not touch the GPU, since it forks those that do."""
    code = """if True:
        import importlib.util, json, platform
        out = {"gpu": None, "versions": {}, "modules": [m for m in %r if importlib.util.find_spec(m)], "cpu": platform.machine()}
        if "torch" in out["modules"]:
            import torch
            out["versions"]["PyTorch"] = torch.__version__
            if torch.cuda.is_available():
                out["gpu"] = torch.cuda.get_device_name()
                out["versions"] |= {"CUDA": torch.version.cuda, "cuDNN": torch.backends.cudnn.version()}
        for module, name in (("triton", "Triton"), ("onnxruntime", "ONNX Runtime")):
            if module in out["modules"]: out["versions"][name] = __import__(module).__version__
        print("\\n" + json.dumps(out))""" % (sorted({m for s in SUITES.values() for m in s.modules}),)
    r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if r.returncode: sys.exit(f"error: {r.stderr.strip().splitlines()[-1]}")
    return json.loads(r.stdout.strip().splitlines()[-1])


def lacks(suite, found):
    """Why a suite cannot run here, or nothing."""
    if suite.device == "cuda" and not found["gpu"]: return "PyTorch finds no GPU"
    if missing := [m for m in suite.modules if m not in found["modules"]]: return f"Python has no {', '.join(missing)}"
    if suite.device == "cuda" and not package(): return f"no Python package of Tessera under {ROOT}: build tessera_python, or unpack a bundle"
    if suite.device == "cpu" and not command(): return f"no command tessera under {ROOT}: tools/build release"
    return None


def cpu_name():
    try:
        with open("/proc/cpuinfo") as f: return next(line.split(":", 1)[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration): return "CPU"


def describe(found, device, threads):
    """{"short", "text"}: for a title, and for the line below it."""
    versions = ", ".join(f"{k} {v}" for k, v in found["versions"].items())
    if device == "cpu": return {"short": cpu_name(), "text": f"{len(os.sched_getaffinity(0))} cores of {cpu_name()}, {threads} threads, {versions}"}
    return {"short": found["gpu"].removeprefix("NVIDIA "), "text": f"one {found['gpu']}, {versions}"}


@dataclass
class Context:
    device: str
    work: str
    end: float  # time.time() at which all is to be over
    jobs: int
    threads: int
    judge: object
    megabytes: dict = field(default_factory=dict)  # key -> MB that a case moves
    problems: list = field(default_factory=list)  # (suite, what went wrong as a whole)

    def left(self):
        return self.end - time.time()

    def file(self, name):
        return os.path.join(self.work, name)


def environment(context):
    """The environment of programs that are started: the packages' folders, and caches without plans or kernels of an earlier build."""
    paths = filter(None, (os.path.dirname(os.path.dirname(os.path.abspath(__file__))), package(), os.environ.get("PYTHONPATH")))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TESSERA_CACHE_DIR": context.file("cache"), "TORCHINDUCTOR_CACHE_DIR": context.file("inductor")}


def run_program(context, argv, seconds):
    """The ended process with its output; None where it does not end in time: then nothing that it started goes on, either."""
    child = subprocess.Popen([sys.executable, *argv], env=environment(context), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try: out, errors = child.communicate(timeout=max(seconds, 1))
    except BaseException as e:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        if isinstance(e, subprocess.TimeoutExpired): return None
        raise
    return subprocess.CompletedProcess(argv, child.returncode, out, errors)


# ---- programs: each a function of the context and of the keys that are to be measured again, or None. Returns (rows, what went wrong or None)
def bench(context, section, keys, seconds):
    out = context.file("bench.json")
    if os.path.exists(out): os.remove(out)
    peers = "copy,compile" if context.device == "cuda" else "copy,eager,compile,onnxruntime"
    # On a host 0.5 s a contender; what looks worse is measured longer.
    options = ["--device", context.device, "--peers", peers, "--json", out, "--no-check", "--budget", str(max(seconds - 15, 5))]
    if context.device == "cpu": options += ["--threads", str(context.threads), "--seconds", "0.5" if keys is None else "1", "--jobs", str(context.threads)]
    if keys is not None: options += ["--filter", ",".join(k[0] for k in keys)]
    r = run_program(context, [os.path.join(ROOT, "tools", "bench"), *options], seconds)
    if r is None or not os.path.exists(out): return [], "out of time" if r is None else (r.stderr.strip() or r.stdout.strip()).splitlines()[-1]
    with open(out) as f: data = json.load(f)
    context.megabytes.update({(c["case"], ""): round(c["bytes"] / 1e6) for c in data["cases"]})
    measured = [(key_of(row), {"tessera": row[2], **row[3]}) for row in page.kernels(data)]
    failed = {(c["case"], ""): c.get("failed", {}) for c in data["cases"]}
    return [{"section": section, "key": k, "us": us, "failed": failed.pop(k)} for k, us in measured] + \
           [{"section": section, "key": k, "us": {}, "failed": why} for k, why in failed.items() if why], None


def bench_models(context, section, keys, seconds):
    sys.path.append(scripts())
    import bench_models as program
    out, names = context.file("models.json"), program.DEFAULT
    if keys is not None: names = [n for n in names if any(n.startswith(k[0] + ".") for k in keys)]
    rows, end = [], time.time() + seconds
    for name in names:  # one at a time, so that what there was time for counts
        if time.time() > end: return rows, "out of time"
        argv = [program.__file__, command(), os.path.join(ROOT, "models"), context.file("models"), name, "--threads", str(context.threads), "--rounds", "3", "--seconds", "1", "--json", out]
        r = run_program(context, argv, end - time.time())
        if r is None: return rows, "out of time"
        if r.returncode:
            model, why = name.split(".")[0], (r.stderr.strip() or r.stdout.strip())[-300:]
            known = [k for k in context.judge.recorded.get(section, {}) if k[0] == model] or [(model, "")]
            rows += [{"section": section, "key": k, "us": {}, "failed": {"tessera": why}} for k in known]
        else:
            with open(out) as f: data = json.load(f)
            rows += [{"section": section, "key": model_key(row), "us": {"tessera": row["tessera_us"], "onnxruntime": row["onnxruntime_us"]}, "failed": {}} for row in data]
    return rows, None


def model_key(row):
    """bert.dynamo.f32, 1x128 -> bert, 1×128"""
    return row["model"].split(".")[0], row["shape"].replace("x", "×")


# suite -> (section, program, share of the time that is left)
PROGRAMS = {"kernels": (("gpu-kernels", bench, 0.3),), "host": (("host-models", bench_models, 0.45), ("host-kernels", bench, 0.85))}


def run_programs(context, name):
    for section, program, share in PROGRAMS[name]:
        end = time.time() + share * context.left()
        keys = None
        while keys is None or keys:  # the judge ends it: no row is measured more than a few times
            rows, problem = program(context, section, keys, end - time.time() if keys is None else context.left())
            if problem and (keys is None or not rows):
                context.problems.append((name, f"{section}: {problem}"))
            if not rows: break
            keys = context.judge.take(rows)
            print(f"{section}: {len(rows)} rows, {len(keys)} of them again, {context.left():.0f} s left", flush=True)
            if keys and context.left() < 20: break


# ---- subjects
def subjects(context, names):
    """(name, what makes it) of all these suites, mixed, so that the large ones do not lie on the GPU at the same time."""
    import subjects as s
    chunks = lambda cases, n: [cases[i::n] for i in range(n)]
    of = {
        "attention": lambda: [(f"attention {i}", lambda c=c: s.Computations(c)) for i, c in enumerate(chunks(s.attention_cases(), 2))],
        "products": lambda: [(f"products {i}", lambda c=c: s.Computations(c)) for i, c in enumerate(chunks(s.product_cases(), 2))],
        "training": lambda: [(f"training {spec}", lambda spec=spec: s.Training(spec)) for spec in s.TRAINED],
        "models": lambda: [(f"onnx {n}", lambda n=n: s.OnnxModel(n, ROOT, scripts(), context.work)) for n in onnx_models()] + [(f"{spec} {dtype}", lambda spec=spec, dtype=dtype: s.TorchModel(spec, dtype)) for dtype, specs in s.TORCH_MODELS.items() for spec in specs],
    }
    lists = [of[n]() for n in names]
    # Those of the long lists are spread between those of the short ones.
    placed = [((i + 0.5) / len(entries), at, entry) for at, entries in enumerate(lists) for i, entry in enumerate(entries)]
    return [entry for _, _, entry in sorted(placed, key=lambda p: p[:2])]


def onnx_models():
    sys.path.append(scripts())
    import gpu_models
    return list(gpu_models.SHAPES)


def run_subjects(context, names):
    os.environ.update(environment(context))
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(max(1, len(os.sched_getaffinity(0)) // context.jobs)))
    for path in (BENCHMARKS, package()):
        if path not in sys.path: sys.path.insert(0, path)
    import torch._dynamo  # once, before the processes part; not what starts processes itself, as Inductor does
    if {"models", "training"} & set(names): import timm, torchvision, transformers
    from turns import waves
    for subject, measure in waves(subjects(context, names), context.jobs, context.end - 30):
        keys, why = None, measure if isinstance(measure, str) else None
        while not why and (keys is None or keys):
            state, rows = measure(keys, min(90, context.left()))
            if state != "measured": why = rows
            else: keys = context.judge.take(rows)
        if why: context.problems.append((subject, why))
        print(f"{subject}: {why or 'measured'}, {context.left():.0f} s left", flush=True)


def run(context, names):
    for name in names:
        if name in PROGRAMS: run_programs(context, name)
    if others := [n for n in names if n not in PROGRAMS]: run_subjects(context, others)
