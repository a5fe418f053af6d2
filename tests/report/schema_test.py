#!/usr/bin/env python3
"""Reports of whole models satisfy the published schema, and their parts agree with each other.

    schema_test.py TESSERA MODELS_FOLDER SCHEMA [BACKEND_TESTS_FOLDER]

Of the backend tests every fifteenth is taken, on both devices; what explain refuses by an error is left out.
"""
import glob, json, math, os, re, subprocess, sys, tempfile

import jsonschema
import onnx
from onnx import TensorProto, helper

DEVICES = [["--device", "cpu"], ["--device", "cuda", "--arch", "sm_90a", "--target", "h200"]]


def report(tessera, model, device, folder):
    out = os.path.join(folder, "report.json")
    done = subprocess.run([tessera, "explain", model, *device, "--format", "json", "-o", out], stderr=subprocess.PIPE, text=True, errors="replace")
    if done.returncode in (2, 3, 4): return None  # values decide its structure, or it is not supported
    if done.returncode: raise RuntimeError(f"{model}: explain ended with {done.returncode}: {done.stderr}")
    return json.load(open(out))


def call_us(step):
    """The time that a call spends in a step: bodies of control flow count as often as they run."""
    us = step["price"]["us"] or 0
    if "bodies" in step: return step["price"]["terms_us"].get("iterations", 0)
    return us * (step["runs"] or 0) if "inside" in step else us


def rendered(tessera, path, j):
    """Yields where the text and the page of the report say something else than the report."""
    text = subprocess.run([tessera, "explain", path], stdout=subprocess.PIPE, text=True, check=True).stdout
    total, listed = re.search(r"predicted (\S+ \S+)", text).group(1), re.search(r"most expensive steps, of (.*)", text)
    if listed and listed.group(1) != total: yield f"the steps of the text sum up to {listed.group(1)}, its total is {total}"
    page_path = path + ".html"
    subprocess.run([tessera, "explain", path, "-o", page_path], check=True)
    page = json.loads(re.search(r'<script[^>]*id="report"[^>]*>(.*?)</script>', open(page_path).read(), re.DOTALL).group(1))
    if abs(sum(s["call_us"] or 0 for s in page["steps"]) - j["totals"]["predicted_us"]) > 1e-6 * j["totals"]["predicted_us"]: yield "the steps of the page do not sum up to its total"
    edges = page["edges"] + page["pairs"]
    for group in page["missed"]:
        if any(edges[i]["fused"] or edges[i]["code"] != edges[group[0]]["code"] for i in group): yield "a group of missed fusions of the page is none"
    savings = re.search(r"a change would save: (\S+)", text).group(1)
    fixable = [g for g in page["missed"] if edges[g[0]].get("counterfactual", {}).get("change", "none") != "none"]
    if (savings == "none") != (not fixable): yield f"the text says that changes save {savings}, the page has {len(fixable)}"


def check(j):
    """Yields what does not agree."""
    steps, operators = {s["id"]: s for s in j["steps"]}, {o["id"]: o for o in j["operators"]}
    if len(steps) != len(j["steps"]): yield "two steps have one id"
    if len(operators) != len(j["operators"]): yield "two operators have one id"
    if len({e["id"] for e in j["edges"]}) != len(j["edges"]): yield "two edges have one id"
    for o in j["operators"]:
        for s in o["steps"]:
            if o["id"] not in steps[s]["operators"]: yield f"{o['id']} names {s}, which does not have it"
    for s in j["steps"]:
        for o in s["operators"]:
            if o not in operators: yield f"{s['id']} has an operator {o} that is not there"
        for which in ("bytes", "bytes_unfused"):
            if s[which]["at_sizes"] is None and not s["kind"] in ("host", "read") and "inside" not in s and not j["breaks"]: yield f"{s['id']}: {which} are not known"
        if s["bytes"]["at_sizes"] is not None and s["bytes"]["at_sizes"] != s["bytes_read"]["at_sizes"] + s["bytes_written"]["at_sizes"]: yield f"{s['id']}: bytes are not what is read and written"
        if s["kind"] in ("kernel", "library", "attention", "separate") and s["price"]["us"] is None and not j["breaks"]: yield f"{s['id']} has no price"
        us = s["price"]["us"]
        if us is not None and us < max(s["price"]["terms_us"].values(), default=0) * 0.999: yield f"{s['id']}: less than one of its terms"
    for e in j["edges"]:
        for end in ("producer", "consumer"):
            if e[end] not in operators: yield f"edge {e['id']}: {e[end]} is not there"
        if not e["fused"] and e["price_us"] is None and not j["breaks"]: yield f"edge {e['id']} has no price"
        if e["fused"] != (int(e["code"][4:]) < 30): yield f"edge {e['id']}: {e['code']} and fused {e['fused']}"
    for layer in j["layers"]:
        classes = [[steps[s]["class"] for s in instance] for instance in layer["instances"]]
        if len(classes) != layer["times"] or any(c != classes[0] for c in classes): yield f"{layer['id']} does not repeat"
    t = j["totals"]
    kinds = [s["kind"] for s in j["steps"]]
    if t["kernels"] != kinds.count("kernel") + kinds.count("separate"): yield "kernels"
    if t["library_calls"] != kinds.count("library") + kinds.count("attention"): yield "library calls"
    if t["launches"] != sum(s["launches"] for s in j["steps"]): yield "launches"
    if t["edges_fused"] != sum(e["fused"] for e in j["edges"]): yield "edges"
    if sum(c["count"] for c in j["codes"]) != len(j["edges"]) + len(j["pairs"]): yield "codes"
    if t["predicted_us"] > t["predicted_unfused_us"] * 1.001: yield "unfused is predicted to be faster"
    if t["predicted_us"] is not None and not math.isclose(t["predicted_us"], sum(map(call_us, j["steps"])), rel_tol=1e-6, abs_tol=1e-6): yield f"the steps take {sum(map(call_us, j['steps']))} us, their total is {t['predicted_us']}"
    top = [s for s in j["steps"] if "inside" not in s and s["kind"] != "copy"]
    if t["bytes"]["at_sizes"] is not None and t["bytes"]["at_sizes"] != sum(s["bytes"]["at_sizes"] for s in top): yield "bytes"
    # Temporaries that live at the same time lie apart, unless one takes over the other's memory.
    placed = [b for b in j["memory"]["buffers"] if "offset" in b and b["bytes"]]
    for i, a in enumerate(placed):
        if a["offset"] + a["bytes"] > j["memory"]["arena_bytes"]: yield f"{a['name']} lies outside of the arena"
        for b in placed[:i]:
            overlap = a["offset"] < b["offset"] + b["bytes"] and b["offset"] < a["offset"] + a["bytes"]
            if overlap and a["first_step"] < b["last_step"] and b["first_step"] < a["last_step"]: yield f"{a['name']} and {b['name']} overlap"


def write_product(path):
    """gelu(x @ w): a contraction that is predicted to take less time than a library's call and a kernel."""
    shapes = {"x": [12288, 768], "w": [768, 3072], "y": [12288, 3072]}
    infos = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT16, s) for n, s in shapes.items()}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Gelu", ["p"], ["y"])]
    graph = helper.make_graph(nodes, "product", [infos["x"], infos["w"]], [infos["y"]])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)


def check_routes(j):
    """Yields what is wrong with the prices of a product's two routes."""
    routes = {r["kind"]: r for s in j["steps"] for r in s.get("routes", [])}
    if set(routes) != {"library", "loops"}: yield f"routes {set(routes)}"
    elif not routes["loops"]["taken"] or routes["library"]["taken"]: yield "the contraction is not taken"
    elif not routes["loops"]["us"] < routes["library"]["us"] or "longer" not in routes["library"]["why_not"]: yield f"{routes}"


def main():
    tessera, models, schema = sys.argv[1:4]
    validator = jsonschema.Draft202012Validator(json.load(open(schema)))
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for model in sorted(glob.glob(os.path.join(models, "*.onnx"))):
            for device in DEVICES:
                j = report(tessera, model, device, folder)
                again = report(tessera, model, device, folder)
                wrong = [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in validator.iter_errors(j)] + list(check(j))
                if [s["id"] for s in j["steps"]] != [s["id"] for s in again["steps"]] or [e["id"] for e in j["edges"]] != [e["id"] for e in again["edges"]]: wrong.append("ids differ in a second run")
                wrong += rendered(tessera, os.path.join(folder, "report.json"), again)
                print(f"{os.path.basename(model)} {device[1]}: {len(j['steps'])} steps, {len(j['edges'])} edges, {'ok' if not wrong else 'WRONG'}")
                for w in wrong[:10]: print("   ", w)
                failed += bool(wrong)
        path = os.path.join(folder, "product.onnx")
        write_product(path)
        for w in check_routes(report(tessera, path, DEVICES[1], folder)):
            print("product:", w)
            failed += 1
        compared = 0
        for model in sorted(glob.glob(os.path.join(sys.argv[4], "**", "model.onnx"), recursive=True))[::15] if len(sys.argv) > 4 else []:
            for device in DEVICES:
                j = report(tessera, model, device, folder)
                if j is None: continue
                compared += 1
                wrong = [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in validator.iter_errors(j)] + list(check(j))
                if wrong: print(os.path.dirname(model), device[1], "WRONG", *wrong[:5], sep="\n    ")
                failed += bool(wrong)
        print(f"{compared} reports of backend tests")
        failed += len(sys.argv) > 4 and compared < 100
    sys.exit(failed > 0)


if __name__ == "__main__": main()
