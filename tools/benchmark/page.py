#!/usr/bin/env python3
"""docs/performance.md from docs/performance.json, and that from the benchmarks' own files.

    page.py                          writes the page
    page.py --take SECTION=FILE ...  takes the rows of a section from FILE first, and the machine and date with --machine, --date
    page.py --merge FILE             takes the sections that `tools/gate --update FILE` has written
    page.py --check                  writes nothing; fails if the page is not what its data give

SECTION is a key of the data. FILE is what the section's command writes: `tools/bench --json`, `gpu_models.py --json`,
`bench_models.py --json`, `serve_load.py --json`, or the lines of `python/benchmarks/torch_models.py`.
"""
import argparse, datetime, json, math, os, sys, textwrap

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmark.report import geometric_mean

DOCS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "docs")
HEAD = """<!-- generated: python3 tools/benchmark/page.py -->
# Performance

`python3 tools/benchmark/page.py` renders `performance.json` to this page, and `--take SECTION=FILE` puts new measurements there.
"Over X" is Tessera's time divided by X's; below 1 Tessera is faster. Contenders of a table run in turn in one process or on one machine,
GPU calls between events with a cold L2 (`tools/benchmark/clock.py`). Absolute times hold for the machine named; ratios carry further.
"""


def kernels(data):
    """[case, MB, Tessera us, {peer: us}] of what tools/bench writes; a copy is a peer of memory-bound cases only."""
    return [[c["case"], round(c["bytes"] / 1e6), round(c["times"]["tessera"]["median_us"], 1),
             {p: round(t["median_us"], 1) for p, t in c["times"].items() if p != "tessera" and not (p == "copy" and c["flops"])}] for c in data["cases"] if "tessera" in c["times"]]


def sweep(data):
    """[family, points, mean over TorchInductor, worst, its case] of what tools/bench --sweep writes."""
    families = {}
    for c in data["cases"]:
        if "compile" in c["times"] and "tessera" in c["times"]:
            families.setdefault(c["family"], []).append((c["times"]["tessera"]["median_us"] / c["times"]["compile"]["median_us"], c["case"]))
    return [[f, len(g), round(geometric_mean(x[0] for x in g), 3), round(max(g)[0], 2), max(g)[1]] for f, g in sorted(families.items())]


def models(data):
    """[model, shape, Tessera us, {peer: us}] of what gpu_models.py and bench_models.py write."""
    return [[r["model"], r.get("shape") or f"{r['batch']}" + (f"×{r['seq']}" if r["seq"] else ""), round(r["tessera_us"]), {k[:-3]: round(v) for k, v in r.items() if k.endswith("_us") and k != "tessera_us"}]
            for r in data if "tessera_us" in r]


def torch_models(rows):
    return [[r["model"], str(r["batch"]), round(r["tessera_us"]), {"compile": round(r["inductor_us"])}] for r in rows if "ratio" in r]


def servers(rows):
    """[server, backend, {what: figure}] of what serve_load.py writes."""
    return [[r["server"], r["backend"], {k: r[k] for k in ("requests", "per_second", "p50_ms", "p99_ms", "max_ms", "errors", "lost", "reloads", "kills", "minutes", "clients")}] for r in rows]


# "calls" (name, shapes, us, peers) comes from tools/gate alone.
READERS = {"servers": servers, "kernels": kernels, "families": kernels, "sweep": sweep, "models": models, "torch": torch_models}
NAMES = {"copy": "copy", "eager": "eager", "compile": "TorchInductor", "graphs": "TorchInductor", "cuda_graph": "eager in a CUDA graph", "onnxruntime": "ONNX Runtime"}


def write_data(path, data):
    """Writes data as docs/performance.json has them: one row a line."""
    rows = lambda s: "[\n" + ",\n".join("    " + json.dumps(r, ensure_ascii=False) for r in s["rows"]) + "\n  ]"
    entry = lambda s: "{\n" + "".join(f'  "{k}": {json.dumps(v, ensure_ascii=False)},\n' for k, v in s.items() if k != "rows") + f'  "rows": {rows(s)}\n}}'
    with open(path, "w", encoding="utf-8") as f: f.write("{\n" + ",\n".join(f'"{k}": {entry(s)}' for k, s in data.items()) + "\n}\n")


def ratio(us, other):
    return f"{us / other:.2f}" if other else "–"


def table(head, rows):
    return "\n".join("| " + " | ".join(r) + " |" for r in [head, ["---"] + ["---:"] * (len(head) - 1), *rows])


def peers_of(rows):
    return list(dict.fromkeys(p for r in rows for p in r[3]))


def mean_line(rows, peers):
    """Geometric means over each peer, and the worst case."""
    out = []
    for p in peers:
        both = [(r[2] / r[3][p], r) for r in rows if r[3].get(p)]
        worst = max(both, key=lambda b: b[0])
        out.append(f"{geometric_mean(b[0] for b in both):.2f} over {NAMES[p]} (worst {worst[0]:.2f}, {worst[1][0]}{'' if '.' in worst[1][0] else ' ' + worst[1][1]})")
    return "geometric mean " + "; ".join(out) + "."


def lines(section):
    rows, kind = section["rows"], section["kind"]
    if kind == "sweep":
        points, worst = sum(r[1] for r in rows), max(rows, key=lambda r: r[3])
        mean = math.exp(sum(r[1] * math.log(r[2]) for r in rows) / points)
        return [f"{points} random points: geometric mean {mean:.2f} over TorchInductor (worst {worst[3]:.2f}, {worst[4]}).", "",
                "Mean by family: " + ", ".join(f"{r[0]} {r[2]:.2f}" for r in rows) + "."]
    if kind == "servers":
        names, both = {"triton": "Triton", "ray": "Ray Serve", "tessera": "Tessera", "onnxruntime": "ONNX Runtime"}, {(r[0], r[1]): r[2] for r in rows}
        body = [[names[s], names[b], str(f["requests"]), str(f["errors"]), str(f["lost"])] + [f"{f[k]:g}" for k in ("per_second", "p50_ms", "p99_ms", "max_ms")]
                + [ratio(f["p99_ms"], both[s, "onnxruntime"]["p99_ms"]) if b == "tessera" and (s, "onnxruntime") in both else "–"] for s, b, f in rows]
        f = rows[0][2]
        return [f"{f['clients']} clients for {f['minutes']:g} minutes; meanwhile {f['reloads']} reloads of the model and {f['kills']} killed instances, whose requests are lost.", "",
                table(["server", "backend", "requests", "errors", "lost", "a second", "p50 ms", "p99 ms", "worst ms", "p99 over ONNX Runtime"], [[r[0]] + r[1:] for r in body])]
    peers = peers_of(rows)
    if kind == "kernels":
        bound = [r for r in rows if "copy" in r[3]]
        return ["Memory-bound cases: " + mean_line(bound, peers), "", table(["case", "MB", "Tessera µs"] + [f"over {NAMES[p]}" for p in peers], [[r[0], str(r[1]), f"{r[2]:g}"] + [ratio(r[2], r[3].get(p)) for p in peers] for r in rows])]
    if kind == "families":
        families = {}
        for r in rows: families.setdefault(r[0].split(".")[-3 if r[0].startswith("seed.") else 0], []).append(r)
        main = "compile" if "compile" in peers else peers[0]
        means = ", ".join(f"{f} {geometric_mean(r[2] / r[3][main] for r in g if r[3].get(main)):.2f}" for f, g in sorted(families.items()) if any(r[3].get(main) for r in g))
        return [f"{len(rows)} cases: " + mean_line(rows, peers), "", f"Over {NAMES[main]}, mean by family: {means}."]
    if kind == "calls":
        return [f"{len(rows)} measurements: " + mean_line(rows, peers), "",
                table(["computation", "shapes", "µs"] + [f"over {NAMES[p]}" for p in peers], [[r[0], r[1], f"{r[2]:g}"] + [ratio(r[2], r[3].get(p)) for p in peers] for r in rows])]
    if kind == "torch":
        names = list(dict.fromkeys(r[0] for r in rows))
        return [f"{len(rows)} measurements: " + mean_line(rows, peers), "", "Over TorchInductor at batch " + " and ".join(dict.fromkeys(r[1] for r in rows)) + ": "
                + "; ".join(n + " " + " ".join(ratio(r[2], r[3]["compile"]) for r in rows if r[0] == n) for n in names) + "."]
    # Models: one line each, the shapes side by side.
    names = list(dict.fromkeys(r[0] for r in rows))
    count = max(sum(r[0] == n for r in rows) for n in names)
    head = ["model"] + (["shape", "µs"] + [f"over {NAMES[p]}" for p in peers]) * count
    body = [[n] + [c for r in rows if r[0] == n for c in [r[1], f"{r[2]:g}"] + [ratio(r[2], r[3].get(p)) for p in peers]] for n in names]
    return [f"{len(rows)} measurements: " + mean_line(rows, peers), "", table(head, body)]


def page(data):
    out = [HEAD]
    for key, s in data.items():
        text = [f"`{key}`: {s['machine']}; {s['date']}. `{s['command']}`", "", *lines(s), ""]
        out += [f"## {s['title']}", "", *(textwrap.fill(t, 150) if t[:1] != "|" else t for t in text)]
    return "\n".join(out)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--take", action="append", default=[], metavar="SECTION=FILE")
    p.add_argument("--merge", action="append", default=[], metavar="FILE")
    p.add_argument("--machine", help="card and versions of what is taken")
    p.add_argument("--date", default=datetime.date.today().isoformat(), help="when that was measured")
    p.add_argument("--check", action="store_true")
    p.add_argument("--docs", default=DOCS, help="the folder of both files")
    a = p.parse_args()
    source, target = os.path.join(a.docs, "performance.json"), os.path.join(a.docs, "performance.md")
    with open(source, encoding="utf-8") as f: data = json.load(f)
    for taken in a.take:
        key, _, path = taken.partition("=")
        if key not in data: sys.exit(f"error: no section '{key}'; there are {', '.join(data)}")
        if not a.machine: sys.exit("error: --take needs --machine: card, driver and versions of what was measured")
        with open(path, encoding="utf-8") as f: text = f.read()
        rows = [json.loads(line) for line in text.splitlines()] if path.endswith(".jsonl") else json.loads(text)
        data[key].update(rows=READERS[data[key]["kind"]](rows), machine=a.machine, date=a.date)
    for path in a.merge:
        with open(path, encoding="utf-8") as f: data.update(json.load(f))
    if a.take or a.merge: write_data(source, data)
    text = page(data)
    if a.check:
        with open(target, encoding="utf-8") as f: shown = f.read()
        if shown != text: sys.exit("error: docs/performance.md is not what docs/performance.json gives: run python3 tools/benchmark/page.py")
        return
    with open(target, "w", encoding="utf-8") as f: f.write(text)


if __name__ == "__main__": main()
