#!/usr/bin/env python3
"""Run the graphs in models/ with Tessera and ONNX Runtime and compare, at several batches and lengths with one compiled model.

    run_models.py TESSERA MODELS_DIRECTORY WORK_DIRECTORY [NAME...]     # names without .onnx; default: all

f32 outputs must agree within 1e-4, f16 ones within 5e-3 of ONNX Runtime's f32 result (norm of the difference over the norm). No
operator may run by its reference, only one variant may be compiled, and the report must say what the runs executed. Prints one line a model, then 'N passed, N failed'.
"""
import argparse, json, os, subprocess, sys, time
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "report"))
from executed import differences
import numpy as np
import onnx, onnxruntime as ort
from onnx import helper

TEXT = [(1, 1), (1, 7), (3, 16), (2, 128), (1, 129)]
LONGEST = {"bert": (1, 512), "gpt2": (1, 1024), "llama": (1, 256)}
IMAGES = [1, 2, 3]

def inputs_for(model, case, rng):
    feeds = {}
    for i in model.graph.input:
        dims = i.type.tensor_type.shape.dim
        if i.name == "pixels": feeds[i.name] = rng.standard_normal((case, 3, 224, 224), np.float32)
        elif i.name == "input_ids": feeds[i.name] = rng.integers(0, 30000, case, np.int64)
        else:
            mask = np.ones(case, np.int64)
            if case[1] > 4: mask[0, -(case[1] // 3):] = 0          # padding at the end of the first sentence
            feeds[i.name] = mask
    return feeds

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("tessera"); p.add_argument("models"); p.add_argument("work"); p.add_argument("names", nargs="*")
    p.add_argument("--threads", type=int, default=2); p.add_argument("--device", default="cpu"); p.add_argument("--quick", action="store_true", help="two cases a model")
    p.add_argument("--drop", action="store_true", help="delete each model's weights afterwards")
    a = p.parse_args()
    os.makedirs(a.work, exist_ok=True)
    names = a.names or sorted(f[:-5] for f in os.listdir(a.models) if f.endswith(".onnx"))
    passed = failed = 0
    for name in names:
        start = time.time()
        source = os.path.join(a.models, name + ".onnx")
        path = os.path.join(a.work, name + ".onnx")
        family = name.split(".")[0]
        half = name.endswith("f16")
        reference = os.path.join(a.work, name.replace("f16", "f32") + ".onnx")
        for target in {path, reference}:
            if not os.path.exists(target): open(target, "wb").write(open(os.path.join(a.models, os.path.basename(target)), "rb").read())
            weights = target[:-5] + ".weights"
            if not os.path.exists(weights): subprocess.run([sys.executable, os.path.join(a.models, "fill_weights.py"), target], check=True, stdout=subprocess.DEVNULL)
        model = onnx.load(source, load_external_data=False)
        cases = (IMAGES if model.graph.input[0].name == "pixels" else TEXT + [LONGEST[family]])
        if a.quick: cases = cases[1:3]
        options = ort.SessionOptions(); options.intra_op_num_threads = a.threads
        session = ort.InferenceSession(reference, options, providers=["CPUExecutionProvider"])
        rng = np.random.default_rng(7)
        command = [a.tessera, "run", path, "--threads", str(a.threads), "--device", a.device, "--poison", "--profile", "--json", os.path.join(a.work, name + ".json")]
        rtol = 5e-3 if half else 1e-4
        for k, case in enumerate(cases):
            d = os.path.join(a.work, f"{name}.case{k}")
            os.makedirs(d + "/inputs", exist_ok=True); os.makedirs(d + "/expected", exist_ok=True)
            feeds = inputs_for(model, case, rng)
            declared = {i.name: helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type) for i in model.graph.input}
            for n, v in feeds.items():
                v = v.astype(declared[n])
                np.save(f"{d}/inputs/{n}.npy", v)
                if v.dtype == np.float16: feeds[n] = v.astype(np.float32)   # the reference sees the same values
            for n, v in zip([o.name for o in model.graph.output], session.run(None, feeds)): np.save(f"{d}/expected/{n}.npy", v)
            command += ["--case", d]
        del session
        r = subprocess.run(command + ["--norm-tolerance", str(rtol)], capture_output=True, text=True)
        problems = []
        report = {}
        if r.returncode not in (0, 1): problems.append((r.stdout + r.stderr).strip()[-2000:])
        else:
            report = json.load(open(os.path.join(a.work, name + ".json")))
            worst = max(o["norm_ratio"] for c in report["cases"] for o in c["outputs"])
            if r.returncode or not worst <= rtol: problems.append(f"differs: {worst:.2e}\n" + r.stdout[-1500:])
            if report["host_steps"]: problems.append(f"{report['host_steps']} operators ran by reference")
            if report["variants"] != 1: problems.append(f"{report['variants']} variants compiled")
            if a.device == "cpu":
                out = os.path.join(a.work, name + ".report.json")
                subprocess.run([a.tessera, "explain", path, "--threads", str(a.threads), "--device", a.device, "-o", out], check=True, capture_output=True)
                for case in report["cases"]: problems += differences(json.load(open(out)), report, case)
        line = f"{name:26s} {len(cases)} cases"
        if report: line += f"  worst {worst:.1e}  {report['kernels']} kernels  {report['library_calls']} library calls"
        print(("FAIL " if problems else "ok   ") + line + f"  {time.time() - start:.0f} s", flush=True)
        for x in problems: print("     " + x)
        failed += bool(problems); passed += not problems
        for k in range(len(cases)): subprocess.run(["rm", "-rf", os.path.join(a.work, f"{name}.case{k}")])
        if a.drop:
            for target in {path, reference}:
                for f in (target, target[:-5] + ".weights"):
                    if os.path.exists(f): os.remove(f)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)

if __name__ == "__main__": main()
