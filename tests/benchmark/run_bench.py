#!/usr/bin/env python3
"""tools/bench on small cases: it runs what it is given, says what it cannot do, and draws the same points for the same seed. What times it reads is not looked at.

    run_bench.py LIBTESSERA SOURCE_DIRECTORY
"""
import atexit, json, os, shutil, subprocess, sys, tempfile

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


def check_errors(source):
    """How far a result is off, where the type's numbers are subnormal and where they are not."""
    sys.path.insert(0, os.path.join(source, "tools"))
    from benchmark.machine import LEAST_STEP, relative_error
    import numpy as np
    step = LEAST_STEP["f16"]
    assert float(np.nextafter(np.float16(0), np.float16(1))) == step
    off = lambda got, want: relative_error(np.array(got, np.float64), np.array(want, np.float64), "f16")
    assert off([2 * step, 0], [1.5 * step, 0.5 * step]).max() == 0
    assert off([4 * step], [step]).max() > 0.9
    assert abs(off([1.0, 1.1], [1.0, 1.0])[1] - 0.05) < 1e-6
    assert np.isnan(off([np.nan, 1.0], [1.0, 1.0])).tolist() == [True, False]


def check_turns(source):
    """Contenders on several sets of memory: how many, and that whoever calls takes the next one."""
    sys.path.insert(0, os.path.join(source, "tools"))
    from benchmark.clock import HostClock, MOST_SETS, race, sets_of_memory
    mib, cache, none = 1 << 20, 50 << 20, 1 << 60
    assert [sets_of_memory(n * mib, cache, none) for n in (1000, 100, 99, 10, 1, 0)] == [2, 2, 3, 11, MOST_SETS, MOST_SETS]
    assert [sets_of_memory(10 * mib, cache, n * mib) for n in (40, 5)] == [4, 1]
    assert HostClock().sets(mib, 2) == 1

    log = []
    class Clock:
        least, timing = 3, False
        def times(self, call, count):
            self.timing = True
            for _ in range(count): call()
            self.timing = False
            return [100.0] * count
    clock = Clock()
    for sets in (1, 2, 5):
        log.clear()
        calls = {name: [lambda name=name, i=i: log.append((name, i, clock.timing)) for i in range(sets)] for name in ("a", "b", "c")}
        timings = race(clock, calls, 4, 1e-6)
        assert list(timings) == ["a", "b", "c"] and all(t["rounds_us"] == [100.0] * 4 for t in timings.values()), timings
        for name in calls:
            mine = [(i, timed) for n, i, timed in log if n == name]
            first = next(k for k, (_, timed) in enumerate(mine) if timed)
            assert first >= 2 and {i for i, _ in mine[:first]} == set(range(sets)), mine
        timed = [i for _, i, t in log if t]
        assert all(len(set(timed[k:k + sets])) == sets for k in range(len(timed) - sets + 1)), timed


def check_tuning(bench, library, cases, out, table):
    """Rules against tuning: a ratio for each case that has something to tune, and how many are within 10 %. How many cases were tuned."""
    command = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(library))), "bin", "tessera")
    json.dump([{"family": "softmax", "rows": 37, "columns": 130}, {"family": "swiglu", "rows": 64, "columns": 64, "dtype": "f32"}, CASES[-1]], open(cases, "w"))
    r = bench("--no-suite", "--cases", cases, "--peers", "", "--tune", "5", "--json", out, "--markdown", table)
    if not os.path.exists(command):
        assert r.returncode == 2 and command in r.stderr, r.stdout + r.stderr
        return 0
    assert r.returncode == 0, r.stdout + r.stderr
    found = json.load(open(out))
    rows = found["cases"]
    for row in rows[:2]:
        t = row["tuning"]
        assert t["measured"] == 1 and t["wrong"] == 0 and t["ratio"] == t["default_us"] / t["tuned_us"] >= 1, row
    assert "ratio" not in rows[2]["tuning"], rows[2]
    near = sum(row["tuning"]["ratio"] <= 1.10 for row in rows[:2])
    assert f"default against tuned: {near} of 2 within 10 %, 1 not tuned" in found["notes"], found["notes"]
    assert "| default over tuned |" in open(table).read()
    return 2


def check_products(bench):
    """The points of a seed: all prologues and epilogues, a third of them unaligned; some of them run."""
    first, again, other = (bench("--products", "--points", "90", "--seed", s, "--list").stdout.split() for s in ("1", "1", "2"))
    assert len(first) == 90 and first == again != other, first
    parts = [name.split(".") for name in first]
    assert all(len(p) == 5 and p[0] == "product" for p in parts), first
    assert {p[3] for p in parts} == {"plain", "relu", "scaled", "norm"} and len({p[4] for p in parts}) == 10, parts
    extents = [[int(n) for n in p[1].split("x")] for p in parts]
    assert all(1 <= m <= 16384 and 64 <= k <= 16384 and 64 <= n <= 16384 for m, k, n in extents), extents
    assert 25 <= sum(k % 8 != 0 or n % 8 != 0 for _, k, n in extents) <= 35, extents
    r = bench("--products", "--points", "3", "--seed", "1", "--no-time")
    assert r.returncode == 0, r.stdout + r.stderr
    r = bench("--products", "--points", "1", "--seed", "1", "--peers", "library", "--no-check")
    assert "libraries alone are left out" in r.stdout, r.stdout + r.stderr


def main():
    library, source = sys.argv[1:3]
    check_errors(source)
    check_turns(source)
    work = tempfile.mkdtemp(prefix="tessera-bench-test-")
    atexit.register(shutil.rmtree, work, ignore_errors=True)
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
    tuned = check_tuning(bench, library, cases, out, table)
    for entry, text in WRONG:
        json.dump([entry], open(cases, "w"))
        r = bench("--no-suite", "--cases", cases)
        assert r.returncode == 2 and text in r.stderr, (entry, r.returncode, r.stdout, r.stderr)

    first, again, other = (bench("--sweep", "--points", "60", "--seed", s, "--list").stdout.split() for s in ("1", "1", "2"))
    assert len(first) == 60 and first == again != other, first
    check_products(bench)
    r = bench("--list", "--filter", "softmax,rope")
    assert "softmax.4096x1024.f32" in r.stdout and "rope" in r.stdout and "rmsnorm" not in r.stdout, r.stdout
    r = bench("--no-suite", "--cases", os.path.join(work, "none.json"))
    assert r.returncode == 2 and "none.json" in r.stderr, r.stderr
    print(f"{len(rows)} cases, {tuned} tuned, {len(WRONG)} refusals")


if __name__ == "__main__": main()
