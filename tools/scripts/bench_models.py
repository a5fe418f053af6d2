#!/usr/bin/env python3
"""Time models with Tessera and ONNX Runtime in one run, in turn, and print a table.

    bench_models.py TESSERA MODELS_DIRECTORY WORK_DIRECTORY [NAME...] [--threads 2] [--rounds 3] [--json FILE] [--markdown FILE]

Each round times ONNX Runtime, then Tessera (`tessera bench`), with the same number of threads and the same inputs' sizes; the median of
each round's median counts. Ratio = Tessera / ONNX Runtime; below 1 is faster. Weights come from fill_weights.py.
"""
import argparse, json, os, statistics, subprocess, sys, time
import numpy as np
import onnx, onnxruntime as ort

DEFAULT = ["bert.dynamo.f32", "llama.dynamo.f32", "vit.dynamo.f32", "resnet50.dynamo.f32", "mobilenet_v3.dynamo.f32", "gpt2.dynamo.f32"]

def feeds_for(model, batch, seq):
    rng = np.random.default_rng(1)
    out = {}
    for i in model.graph.input:
        if i.name == "pixels": out[i.name] = rng.standard_normal((batch, 3, 224, 224), np.float32)
        elif i.name == "input_ids": out[i.name] = rng.integers(0, 30000, (batch, seq), np.int64)
        else: out[i.name] = np.ones((batch, seq), np.int64)
    return out

def time_ort(session, feeds, seconds):
    for _ in range(2): session.run(None, feeds)
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        t = time.perf_counter(); session.run(None, feeds); times.append(time.perf_counter() - t)
    return statistics.median(times) * 1e3

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("tessera"); p.add_argument("models"); p.add_argument("work"); p.add_argument("names", nargs="*")
    p.add_argument("--threads", type=int, default=2); p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=3); p.add_argument("--batch", type=int, default=1); p.add_argument("--seq", type=int, default=128)
    p.add_argument("--json"); p.add_argument("--markdown"); p.add_argument("--drop", action="store_true")
    a = p.parse_args()
    os.makedirs(a.work, exist_ok=True)
    rows = []
    for name in a.names or DEFAULT:
        path = os.path.join(a.work, name + ".onnx")
        if not os.path.exists(path): open(path, "wb").write(open(os.path.join(a.models, name + ".onnx"), "rb").read())
        if not os.path.exists(path[:-5] + ".weights"): subprocess.run([sys.executable, os.path.join(a.models, "fill_weights.py"), path], check=True, stdout=subprocess.DEVNULL)
        model = onnx.load(path, load_external_data=False)
        feeds = feeds_for(model, a.batch, a.seq)
        shapes = [x for n, v in feeds.items() for x in ("--shape", f"{n}=" + "x".join(map(str, v.shape)))]
        options = ort.SessionOptions(); options.intra_op_num_threads = a.threads; options.inter_op_num_threads = 1
        ours, theirs, report = [], [], {}
        for _ in range(a.rounds):
            session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            theirs.append(time_ort(session, feeds, a.seconds))
            del session
            out = os.path.join(a.work, name + ".bench.json")
            r = subprocess.run([a.tessera, "bench", path, *shapes, "--threads", str(a.threads), "--seconds", str(a.seconds), "--json", out], capture_output=True, text=True)
            if r.returncode: sys.exit(f"{name}: {r.stdout}{r.stderr}")
            report = json.load(open(out)); ours.append(report["median_ms"])
        row = (name, f"{a.batch}" if "pixels" in feeds else f"{a.batch}x{a.seq}", statistics.median(ours), statistics.median(theirs), report)
        rows.append(row)
        print(f"{row[0]:28s} {row[1]:8s} tessera {row[2]:8.2f} ms   onnxruntime {row[3]:8.2f} ms   ratio {row[2] / row[3]:.2f}", flush=True)
        if a.drop:
            for f in (path, path[:-5] + ".weights"): os.remove(f)
    if a.json:
        with open(a.json, "w") as f: json.dump([{"model": n, "shape": shape, "tessera_us": o * 1e3, "onnxruntime_us": t * 1e3} for n, shape, o, t, _ in rows], f, indent=1)
    if a.markdown:
        with open(a.markdown, "w") as f:
            f.write("| model | shape | Tessera ms | ONNX Runtime ms | ratio |\n|---|---|---|---|---|\n")
            for n, s, o, t, _ in rows: f.write(f"| {n} | {s} | {o:.2f} | {t:.2f} | {o / t:.2f} |\n")

if __name__ == "__main__": main()
