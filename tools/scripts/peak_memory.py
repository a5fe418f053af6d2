#!/usr/bin/env python3
"""Peak memory (resident pages, mapped weights included) of one `tessera run` of each model, beside what it may be.

    peak_memory.py TESSERA MODELS_DIRECTORY WORK_DIRECTORY [NAME...] [--threads 2] [--batch 1] [--seq 128] [--markdown FILE] [--drop]

May be: the weights' file plus 1.2 times the planned arena plus 150 MB. Weights come from fill_weights.py. Exit code 1 when one is over.
"""
import argparse, glob, json, os, subprocess, sys
import onnx

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("tessera"); p.add_argument("models"); p.add_argument("work"); p.add_argument("names", nargs="*")
    p.add_argument("--threads", type=int, default=2); p.add_argument("--batch", type=int, default=1); p.add_argument("--seq", type=int, default=128)
    p.add_argument("--markdown"); p.add_argument("--drop", action="store_true")
    a = p.parse_args()
    os.makedirs(a.work, exist_ok=True)
    names = a.names or sorted(os.path.basename(f)[:-5] for f in glob.glob(os.path.join(a.models, "*.onnx")))
    lines, over = [], 0
    for name in names:
        path = os.path.join(a.work, name + ".onnx")
        if not os.path.exists(path): open(path, "wb").write(open(os.path.join(a.models, name + ".onnx"), "rb").read())
        weights = path[:-5] + ".weights"
        if not os.path.exists(weights): subprocess.run([sys.executable, os.path.join(a.models, "fill_weights.py"), path], check=True, stdout=subprocess.DEVNULL)
        shapes = []
        for i in onnx.load(path, load_external_data=False).graph.input:
            shapes += ["--shape", f"{i.name}={a.batch}x3x224x224" if i.name == "pixels" else f"{i.name}={a.batch}x{a.seq}"]
        out = os.path.join(a.work, name + ".run.json")
        child = subprocess.Popen([a.tessera, "run", path, *shapes, "--device", "cpu", "--threads", str(a.threads), "--json", out], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        errors = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        if status: sys.exit(f"{name}: {errors}")
        arena = json.load(open(out))["cases"][0]["run"]["arena_bytes"]
        size, peak = os.path.getsize(weights), usage.ru_maxrss * 1024
        limit = size + 1.2 * arena + 150e6
        over += peak > limit
        lines.append(f"| {name} | {size / 1e6:.1f} | {arena / 1e6:.1f} | {peak / 1e6:.0f} | {limit / 1e6:.0f} |")
        print(f"{name:28s} weights {size / 1e6:7.1f} MB  arena {arena / 1e6:5.1f} MB  peak {peak / 1e6:6.0f} MB  may be {limit / 1e6:6.0f} MB{'' if peak <= limit else '  OVER'}", flush=True)
        if a.drop:
            for f in (path, weights): os.remove(f)
    if a.markdown:
        with open(a.markdown, "w") as f: f.write("| model | weights MB | arena MB | peak MB | may be MB |\n|---|---|---|---|---|\n" + "\n".join(lines) + "\n")
    sys.exit(1 if over else 0)

if __name__ == "__main__": main()
