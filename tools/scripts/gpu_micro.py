#!/usr/bin/env python3
"""Memory-bound computations on a GPU: Tessera beside PyTorch eager, torch.compile and a copy of the same bytes, in one run.

    gpu_micro.py TESSERA WORK_DIRECTORY [--cases TEXT] [--peers eager,compile] [--seconds 0.5] [--json FILE] [--markdown FILE]

Times are medians in microseconds of single calls between events, the L2 cache overwritten before each call. The peers run in this process
(without PyTorch they are left out), Tessera in one of its own per case, on data that lies on the GPU. Ratios are Tessera / peer.
"""
import argparse, json, os, subprocess, sys, time
import numpy as np
import onnx
from onnx import TensorProto as T, helper, numpy_helper

ONNX = {"f32": T.FLOAT, "bf16": T.BFLOAT16, "f16": T.FLOAT16}
SIZE = {"f32": 4, "bf16": 2, "f16": 2}

class Case:
    """Nodes of an ONNX graph over inputs of given shapes, the bytes it must move, and the same computation in PyTorch."""
    def __init__(self, name, dtype, inputs, outputs, nodes, torch_fn, moved, constants=()):
        self.name, self.dtype, self.inputs, self.outputs, self.nodes, self.torch_fn, self.moved, self.constants = name, dtype, inputs, outputs, nodes, torch_fn, moved, constants
    def save(self, folder):
        t = ONNX[self.dtype]
        info = lambda n, s: helper.make_tensor_value_info(n, t, s)
        graph = helper.make_graph(self.nodes, "case", [info(n, s) for n, s in self.inputs], [info(n, s) for n, s in self.outputs], list(self.constants))
        path = os.path.join(folder, self.name + ".onnx")
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11), path)
        return path

def scalar(name, v, dtype):
    return onnx.helper.make_tensor(name, ONNX[dtype], [], [v])

def cases():
    n = helper.make_node
    out = []
    def F(): import torch.nn.functional as F; return F
    M, N = 8192, 4096
    out.append(Case(f"tail_bias_gelu_mask.{M}x{N}.bf16", "bf16", [("z", [M, N]), ("b", [N]), ("m", [M, N])], [("y", [M, N])],
        [n("Add", ["z", "b"], ["s"]), n("Gelu", ["s"], ["g"]), n("Mul", ["g", "m"], ["y"])],
        lambda z, b, m: F().gelu(z + b) * m, 2 * (3 * M * N + N)))
    for rows, cols in ((8192, 1024), (8192, 4096), (2048, 32768), (65536, 256), (16, 1048576)):
        for dt in ("f32", "bf16"):
            out.append(Case(f"softmax.{rows}x{cols}.{dt}", dt, [("x", [rows, cols])], [("y", [rows, cols])], [n("Softmax", ["x"], ["y"], axis=-1)],
                lambda x: F().softmax(x, -1), 2 * SIZE[dt] * rows * cols))
    for rows, cols in ((8192, 1024), (8192, 4096), (16384, 8192)):
        def add_ln(x, r, g, b, cols=cols):
            y = x + r
            return F().layer_norm(y, (cols,), g, b), y
        out.append(Case(f"add_layernorm.{rows}x{cols}.bf16", "bf16", [("x", [rows, cols]), ("r", [rows, cols]), ("g", [cols]), ("b", [cols])],
            [("y", [rows, cols]), ("z", [rows, cols])], [n("Add", ["x", "r"], ["z"]), n("LayerNormalization", ["z", "g", "b"], ["y"], axis=-1)],
            add_ln, 2 * (4 * rows * cols + 2 * cols)))
        out.append(Case(f"rmsnorm.{rows}x{cols}.bf16", "bf16", [("x", [rows, cols]), ("g", [cols])], [("y", [rows, cols])],
            [n("RMSNormalization", ["x", "g"], ["y"], axis=-1)], lambda x, g, cols=cols: F().rms_norm(x, (cols,), g), 2 * (2 * rows * cols + cols)))
    out.append(Case("swiglu.16384x11008.bf16", "bf16", [("g", [16384, 11008]), ("u", [16384, 11008])], [("y", [16384, 11008])],
        [n("Sigmoid", ["g"], ["s"]), n("Mul", ["g", "s"], ["h"]), n("Mul", ["h", "u"], ["y"])], lambda g, u: F().silu(g) * u, 2 * 3 * 16384 * 11008))
    out.append(Case("sum_all.67108864.f32", "f32", [("x", [67108864])], [("y", [])],
        [n("Mul", ["x", "x"], ["q"]), n("ReduceSum", ["q"], ["y"], keepdims=0)], lambda x: (x * x).sum(), 4 * 67108864))
    out.append(Case("colsum.65536x1024.f32", "f32", [("x", [65536, 1024])], [("y", [1024])],
        [n("Tanh", ["x"], ["t"]), n("ReduceSum", ["t", "axes"], ["y"], keepdims=0)], lambda x: __import__("torch").tanh(x).sum(0), 4 * 65536 * 1024,
        [numpy_helper.from_array(np.array([0], np.int64), "axes")]))
    out.append(Case("transpose_add.8192x8192.f32", "f32", [("x", [8192, 8192]), ("y", [8192, 8192])], [("o", [8192, 8192])],
        [n("Transpose", ["y"], ["t"], perm=[1, 0]), n("Mul", ["t", "two"], ["d"]), n("Add", ["x", "d"], ["o"])], lambda x, y: x + y.t() * 2, 4 * 3 * 8192 * 8192,
        [scalar("two", 2.0, "f32")]))
    def rope(x, c, s):
        import torch
        a, b = x.chunk(2, -1)
        return x * c + torch.cat((-b, a), -1) * s
    out.append(Case("rope.8x32x2048x128.bf16", "bf16", [("x", [8, 32, 2048, 128]), ("c", [2048, 128]), ("s", [2048, 128])], [("y", [8, 32, 2048, 128])],
        [n("Split", ["x"], ["a", "b"], axis=-1, num_outputs=2), n("Neg", ["b"], ["nb"]), n("Concat", ["nb", "a"], ["r"], axis=-1),
         n("Mul", ["x", "c"], ["p"]), n("Mul", ["r", "s"], ["q"]), n("Add", ["p", "q"], ["y"])], rope, 2 * (2 * 8 * 32 * 2048 * 128 + 2 * 2048 * 128)))
    return out

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("tessera"); p.add_argument("work"); p.add_argument("--cases", default=""); p.add_argument("--peers", default="eager,compile")
    p.add_argument("--seconds", type=float, default=0.5); p.add_argument("--json"); p.add_argument("--markdown"); p.add_argument("--budget", type=float, default=540, help="seconds for all")
    a = p.parse_args()
    os.makedirs(a.work, exist_ok=True)
    try:
        import torch
        from triton.testing import do_bench
    except ImportError:
        torch = None
    peers = [m for m in a.peers.split(",") if m] if torch else []
    rows, began = [], time.time()
    for case in cases():
        if a.cases and not any(c in case.name for c in a.cases.split(",")): continue
        if time.time() - began > a.budget: print("out of time", flush=True); break
        row = {"case": case.name, "bytes": case.moved}
        if torch:
            dt = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[case.dtype]
            args = [torch.randn(*s, device="cuda", dtype=torch.float32).to(dt) for _, s in case.inputs]
            med = lambda f: (f(), torch.cuda.synchronize(), do_bench(f, warmup=25, rep=100, return_mode="median") * 1e3)[2]
            src = torch.empty(case.moved // 2, dtype=torch.uint8, device="cuda"); dst = torch.empty_like(src)
            row["copy_us"] = med(lambda: dst.copy_(src))
            del src, dst
            for m in peers:
                torch._dynamo.reset()
                f = case.torch_fn if m == "eager" else torch.compile(case.torch_fn, dynamic=False)
                row[m + "_us"] = med(lambda: f(*args))
            del args; torch.cuda.empty_cache()
        out = os.path.join(a.work, case.name + ".json")
        r = subprocess.run([a.tessera, "bench", case.save(a.work), "--device", "cuda", "--no-cold", "--seconds", str(a.seconds), "--json", out], capture_output=True, text=True)
        if r.returncode: row["error"] = (r.stdout + r.stderr).strip()[-500:]
        else: row["tessera_us"] = json.load(open(out))["median_ms"] * 1e3
        rows.append(row)
        text = f"{case.name:38s}"
        for k in ("tessera", "copy", *peers):
            if k + "_us" in row: text += f"  {k} {row[k + '_us']:8.1f}"
        if "tessera_us" in row:
            for k in ("copy", *peers):
                if k + "_us" in row: text += f"  /{k} {row['tessera_us'] / row[k + '_us']:.2f}"
        print(text + ("  ERROR " + row["error"] if "error" in row else ""), flush=True)
    if a.json: json.dump(rows, open(a.json, "w"), indent=1)
    if a.markdown:
        with open(a.markdown, "w") as f:
            names = ["copy", *peers]
            f.write("| case | MB | Tessera µs | " + " | ".join(f"{k} µs" for k in names) + " | " + " | ".join(f"over {k}" for k in names) + " |\n|" + "---|" * (3 + 2 * len(names)) + "\n")
            for r in rows:
                if "tessera_us" not in r: continue
                f.write(f"| {r['case']} | {r['bytes'] / 1e6:.0f} | {r['tessera_us']:.1f} | " + " | ".join(f"{r.get(k + '_us', float('nan')):.1f}" for k in names) + " | "
                        + " | ".join(f"{r['tessera_us'] / r.get(k + '_us', float('nan')):.2f}" for k in names) + " |\n")
    if any("error" in r for r in rows): sys.exit(1)

if __name__ == "__main__": main()
