#!/usr/bin/env python3
"""Share of a memcpy's bandwidth that memory-bound kernels reach, as a table.

    bench_micro.py TESSERA WORK_DIRECTORY [--threads 2] [--rounds 3] [--rows 2048 8192 65536] [--columns 1024] [--markdown FILE]

The models are those of micro_models.py. `tessera bench` times kernel and copy, of as many bytes, one after the other in one process; of
the rounds, which go over all kernels in turn, the best median of each counts, so that what else the machine does matters less.
"""
import argparse, json, os, subprocess, sys

KERNELS = [("layer_norm", "layer norm"), ("gelu", "GELU (erf)"), ("silu", "SiLU"), ("softmax", "softmax")]

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("tessera"); p.add_argument("work"); p.add_argument("--threads", type=int, default=2); p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=1); p.add_argument("--rows", type=int, nargs="+", default=[2048, 8192, 65536])
    p.add_argument("--columns", type=int, default=1024); p.add_argument("--markdown")
    a = p.parse_args()
    here = os.path.dirname(os.path.abspath(__file__))
    subprocess.run([sys.executable, os.path.join(here, "micro_models.py"), a.work, f"0x{a.columns}"], check=True)
    best, out = {}, os.path.join(a.work, "bench.json")
    for _ in range(a.rounds):
        for rows in a.rows:
            for kernel, _ in KERNELS:
                r = subprocess.run([a.tessera, "bench", os.path.join(a.work, kernel + ".onnx"), "--shape", f"rows={rows}", "--device", "cpu", "--threads", str(a.threads),
                                    "--seconds", str(a.seconds), "--no-cold", "--json", out], capture_output=True, text=True)
                if r.returncode: sys.exit(f"{kernel}: {r.stdout}{r.stderr}")
                j = json.load(open(out))
                b = best.setdefault((kernel, rows), [float("inf"), float("inf"), 0])
                best[kernel, rows] = [min(b[0], j["median_ms"]), min(b[1], j["memory_floor_ms"]), j["bytes_moved"]]
    copy = {rows: min(best[k, rows][1] for k, _ in KERNELS) for rows in a.rows} # the copy is the same for all
    table = "| kernel | " + " | ".join(f"{best['softmax', r][2] / 1e6:.3g} MB" for r in a.rows) + " |\n|---|" + "---|" * len(a.rows) + "\n"
    for kernel, name in KERNELS: table += f"| {name} | " + " | ".join(f"{copy[r] / best[kernel, r][0]:.2f}" for r in a.rows) + " |\n"
    print(table, end="")
    for rows in a.rows: print(f"rows {rows}: copy {copy[rows]:.3f} ms; " + ", ".join(f"{k} {best[k, rows][0]:.3f} ms" for k, _ in KERNELS))
    if a.markdown: open(a.markdown, "w").write(table)

if __name__ == "__main__": main()
