#!/usr/bin/env python3
"""tools/bench on small cases: it runs what it is given, says what it cannot do, and draws the same points for the same seed. What times it reads is not looked at.

    run_bench.py LIBTESSERA SOURCE_DIRECTORY
"""
import json, os, subprocess, sys, tempfile

CASES = [
    {"family": "softmax", "rows": 3, "columns": 17, "dtype": "f32"},
    {"family": "group_norm_silu", "rows": 16, "columns": 12, "dtype": "f32"},
    {"family": "mixed_types", "rows": 5, "columns": 7, "dtype": "f16"},
    {"family": "any", "rows": 4, "columns": 9},
    {"name": "by_hand", "inputs": {"x": {"shape": [6, 8]}, "half": {"shape": [], "data": 0.5}},
     "nodes": [["Mul", ["x", "half"], ["h"]], ["Variance", ["h"], ["v"], {"axes": [1], "keepdims": 0}], ["Slice", ["h"], ["y"], {"starts": [1], "ends": [6], "axes": [0], "steps": [2]}]],
     "outputs": ["v", "y"]},
    {"name": "empty", "inputs": {"x": {"shape": [0, 8]}}, "nodes": [["Relu", ["x"], ["y"]]], "outputs": ["y"]},
]
WRONG = [({"family": "softmin"}, "no family 'softmin'"), ({"family": "softmax", "rows": 3}, "columns"), ({"name": "n", "nodes": []}, "lacks inputs, outputs"),
         ({"name": "n", "inputs": {"x": {"shape": [2]}}, "nodes": [["Frobnicate", ["x"], ["y"]]], "outputs": ["y"]}, "no operator Frobnicate"),
         ({"name": "n", "inputs": {"x": {"shape": [2]}}, "nodes": [["Relu", ["z"], ["y"]]], "outputs": ["y"]}, "reads z")]


def main():
    library, source = sys.argv[1:3]
    work = tempfile.mkdtemp(prefix="tessera-bench-test-")
    cases, out, table = (os.path.join(work, n) for n in ("cases.json", "out.json", "out.md"))

    def bench(*options):
        command = [sys.executable, os.path.join(source, "tools/bench"), "--device", "cpu", "--threads", "1", "--library", library, "--rounds", "1", "--seconds", "0.001", "--jobs", "0", *options]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TESSERA_CACHE_DIR": os.path.join(work, "cache")})

    json.dump(CASES, open(cases, "w"))
    r = bench("--no-suite", "--cases", cases, "--peers", "copy,onnxruntime", "--json", out, "--markdown", table)
    assert r.returncode == 0, r.stdout + r.stderr
    rows = json.load(open(out))["cases"]
    assert [x["case"] for x in rows] == ["softmax.3x17.f32", "group_norm_silu.16x12.f32", "mixed_types.5x7.f16", "any.4x9.f32", "by_hand", "empty"], rows
    for row in rows:
        assert row["times"]["tessera"]["min_us"] > 0 and row["times"]["copy"]["median_us"] > 0, row
        assert "tessera" not in row.get("failed", {}) and "wrong" not in row, row
    assert rows[4]["bytes"] == 4 * (6 * 8 + 6 + 3 * 8), rows[4]
    assert "| softmax.3x17.f32 |" in open(table).read()
    for entry, text in WRONG:
        json.dump([entry], open(cases, "w"))
        r = bench("--no-suite", "--cases", cases)
        assert r.returncode == 2 and text in r.stderr, (entry, r.returncode, r.stdout, r.stderr)

    first, again, other = (bench("--sweep", "--points", "60", "--seed", s, "--list").stdout.split() for s in ("1", "1", "2"))
    assert len(first) == 60 and first == again != other, first
    r = bench("--list", "--filter", "softmax,rope")
    assert "softmax.4096x1024.f32" in r.stdout and "rope" in r.stdout and "rmsnorm" not in r.stdout, r.stdout
    r = bench("--no-suite", "--cases", os.path.join(work, "none.json"))
    assert r.returncode == 2 and "none.json" in r.stderr, r.stderr
    print(f"{len(rows)} cases, {len(WRONG)} refusals")


if __name__ == "__main__": main()
