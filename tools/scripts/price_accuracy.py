#!/usr/bin/env python3
"""Compare the report's prices with measurements: predicted times with `tessera bench --profile`, bytes with ncu.

    price_accuracy.py TESSERA OUT.json [MODEL.onnx[:DIM=SIZE,...] ...] [--suite] [--bytes] [--device cuda|cpu] [--seconds 1]
    price_accuracy.py --table OUT.json...          # docs/price-accuracy.md, on standard output

--suite adds the memory-bound cases of tools/bench. --bytes profiles each kernel once with ncu (a GPU, and permission to read its counters).
A step is right where the predicted time is within 25 % of the measured one, or both are within 0.5 us of each other, the resolution of events;
a kernel's bytes where they are within 3 %, or within 16 KiB, which code, parameters and whole sectors take. What ncu counts: what memory gave, and
what kernels gave the level-2 cache to write.
"""
import argparse, csv, io, json, os, re, statistics, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
METRICS = ["dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_write.sum", "lts__t_sectors_srcunit_tex_op_red.sum", "gpu__time_duration.sum"]


def shapes_of(model):
    path, _, sizes = model.partition(":")
    return path, [x for s in sizes.split(",") if s for x in ("--shape", s)]


def call(*command):
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode: raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")
    return done.stdout


def model_rows(a, name, path, shapes, folder):
    """One row for each step of a model."""
    common = [path, "--device", a.device, *shapes]
    report_file, bench_file = os.path.join(folder, "report.json"), os.path.join(folder, "bench.json")
    call(a.tessera, "bench", *common, "--profile", "--no-cold", "--seconds", str(a.seconds), "--json", bench_file)
    call(a.tessera, "explain", *common, "--format", "json", "-o", report_file)
    timed = call(a.tessera, "bench", *common, "--no-cold", "--seconds", str(a.seconds), "--json", bench_file + ".call") and json.load(open(bench_file + ".call"))
    report, bench = json.load(open(report_file)), json.load(open(bench_file))
    measured = {s["name"]: s for s in bench["steps"]}
    counted = ncu_bytes(a, common) if a.bytes else {}
    for s in report["steps"]:
        m = measured.get(s["id"])
        if m is None or s["price"]["us"] is None: continue
        row = {"model": name, "step": s["id"], "kind": s["kind"], "class": s["class"], "schedule": s.get("schedule", {}).get("kind", s.get("library_call", "")),
               "bytes": s["bytes"]["at_sizes"], "flops": s["flops"]["at_sizes"], "predicted_us": s["price"]["alone_us"], "bound": s["price"]["bound"], "terms": s["price"]["terms_us"], "measured_us": m["ms"] * 1e3,
               "operands": [r["type"] for r in s["reads"]], "result": [r["type"] for r in s["writes"]], "shapes": [o["shape"] for o in s.get("operands", [])], "sizes": report["sizes"]}
        symbol = s.get("schedule", {}).get("symbol")
        if symbol in counted and s["kind"] in ("kernel", "separate"): row["counted"] = counted[symbol]
        yield row
    a.calls.append({"gpu": gpu_name(), "model": name, "predicted_us": report["totals"]["predicted_us"], "measured_us": timed["median_ms"] * 1e3, "device": bench["device"]})


def gpu_name():
    try: return call("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()[0]
    except (OSError, RuntimeError, IndexError): return ""  # of a host


def ncu_bytes(a, common):
    """Counters of each kernel's launch in one call, by the kernel's name; those of libraries have names of their own and are left out."""
    out = call("ncu", "--csv", "--page", "raw", "--metrics", ",".join(METRICS), "--target-processes", "all", a.tessera, "run", *common)
    table = list(csv.DictReader(io.StringIO(out[out.index('"ID"'):])))
    found = {}
    for row in table[1:]:  # the first one has units
        number = lambda m: float(row[m].replace(",", "")) if row.get(m) else 0.0
        scale = lambda m: {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}.get(table[0].get(m, "byte"), 1)
        dram = [number(m) * scale(m) for m in METRICS[:2]]
        sectors = [32 * number(m) for m in METRICS[2:5]]
        found[row["Kernel Name"].split("(")[0]] = {"dram_read": dram[0], "dram_written": dram[1], "read": sectors[0], "written": sectors[1] + sectors[2]}
    return found


def suite(folder):
    sys.path.insert(0, os.path.join(ROOT, "tools"))
    from benchmark import suite as cases
    for case in cases.gpu():
        path = os.path.join(folder, re.sub(r"[^a-z0-9_.]", "_", case.name) + ".onnx")
        case.save(path)
        yield case.name, path


def table(files):
    rows, calls = [], []
    for f in files:
        j = json.load(open(f))
        rows += j["steps"]
        calls += j["calls"]
    right = lambda r: abs(r["predicted_us"] / r["measured_us"] - 1) <= 0.25 or abs(r["predicted_us"] - r["measured_us"]) <= 0.5
    print("<!-- generated: tools/scripts/price_accuracy.py --table models.json suite.json > docs/price-accuracy.md -->")
    print("# How far prices are from measurements\n")
    print("The report's prices ([compare.md](compare.md)) next to those of `tessera bench --profile` and the bytes that `ncu` counts, written by "
          "`tools/scripts/price_accuracy.py MODELS --suite --bytes`. A step counts as right within 25 % of the measured time or within 0.5 us, code and "
          "parameters take up to 16 KiB of what is counted for a kernel. A call is a replayed graph of all steps.\n")
    print(f"{len(rows)} steps of {len({r['model'] for r in rows})} models on {calls[0].get('gpu') or calls[0]['device']}.\n")
    print("| steps | number | predicted / measured, median | right | bytes within 3 % | or within 16 KiB |\n|---|---|---|---|---|---|")
    groups = {}
    for r in rows:
        groups.setdefault(r["kind"] if r["kind"] != "library" else r["schedule"] if r["schedule"] in ("matmul", "convolution", "pooling") else "library", []).append(r)
    for name, group in [*sorted(groups.items()), ("all", rows)]:
        counted = [r for r in group if "counted" in r and r["kind"] in ("kernel", "separate")]
        strict = [abs(r["bytes"] - c) <= 0.03 * c for r in counted for c in [r["counted"]["dram_read"] + r["counted"]["written"]]]
        near = [abs(r["bytes"] - c) <= max(0.03 * c, 16384) for r in counted for c in [r["counted"]["dram_read"] + r["counted"]["written"]]]
        print(f"| {name} | {len(group)} | {statistics.median(r['predicted_us'] / r['measured_us'] for r in group):.2f} | {sum(map(right, group))} | {f'{sum(strict)} of {len(strict)}' if near else ''} | {sum(near) if near else ''} |")
    print("\n| model | predicted call | measured call | ratio |\n|---|---|---|---|")
    sizes = {r["model"]: " ".join(f"{k}={v}" for k, v in r["sizes"].items()) for r in rows}
    for c in calls: print(f"| {' '.join([c['model'], sizes.get(c['model'], '')]).strip()} | {c['predicted_us']:.1f} us | {c['measured_us']:.1f} us | {c['predicted_us'] / c['measured_us']:.2f} |")


def main():
    if "--table" in sys.argv: return table(sys.argv[2:])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("tessera"); p.add_argument("out"); p.add_argument("models", nargs="*")
    p.add_argument("--suite", action="store_true"); p.add_argument("--bytes", action="store_true")
    p.add_argument("--device", default="cuda"); p.add_argument("--seconds", type=float, default=1)
    a = p.parse_args()
    a.calls, rows = [], []
    with tempfile.TemporaryDirectory() as folder:
        work = [(os.path.basename(path), path, shapes) for path, shapes in map(shapes_of, a.models)]
        if a.suite: work += [(name, path, []) for name, path in suite(folder)]
        for name, path, shapes in work:
            try: rows += model_rows(a, name, path, shapes, folder)
            except Exception as e: print(f"{name}: {e}", file=sys.stderr)  # the others go on
            json.dump({"steps": rows, "calls": a.calls}, open(a.out, "w"))
            print(f"{name}: {len(rows)} steps", flush=True)


if __name__ == "__main__": main()
