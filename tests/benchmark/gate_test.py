#!/usr/bin/env python3
"""tools/gate: what it calls worse, what it measures again, what it writes, how its processes take turns. Nothing is timed.

    gate_test.py SOURCE_DIRECTORY
"""
import contextlib, io, json, os, sys, tempfile, time

SOURCE = sys.argv[1]
sys.path[:0] = [os.path.join(SOURCE, "tools"), os.path.join(SOURCE, "python", "benchmarks")]
from benchmark import gate, gate_suites, page
from turns import waves

RECORDED = {
    "gpu-attention": {"title": "Attention", "kind": "calls", "command": "c", "machine": "m", "date": "d",
                      "rows": [["full", "2×3", 10.0, {"compile": 10.0, "eager": 20.0}], ["causal", "2×3", 10.0, {"eager": 20.0}], ["gone", "1", 1.0, {"compile": 2.0}]]},
    "servers": {"title": "Servers", "kind": "servers", "command": "c", "machine": "m", "date": "d", "rows": []},
}


def measured(name, shape, **us):
    return {"section": "gpu-attention", "key": [name, shape], "us": us, "failed": {}}


def check_judge():
    judge = gate.Judge(gate.recorded_figures(RECORDED), 0.05)
    assert set(judge.recorded) == {"gpu-attention"}
    # The nearest peer that both rows have judges: eager's time does not count where TorchInductor's is there.
    assert judge.take([measured("full", "2×3", tessera=10.4, compile=10.0, eager=1.0)]) == []
    assert judge.line(judge.row("gpu-attention", ("full", "2×3"))) is None
    # A row that looks worse is measured again, three times in all, and the median counts.
    row = judge.row("gpu-attention", ("causal", "2×3"))
    assert judge.take([measured("causal", "2×3", tessera=12.0, compile=12.0, eager=20.0)]) == [("causal", "2×3")]
    assert round(judge.worse(row), 6) == 0.2 and "WORSE by 20 %" in judge.line(row)
    assert judge.take([measured("causal", "2×3", tessera=10.0, eager=20.0)]) == [("causal", "2×3")]  # 0.55 is still worse
    assert judge.take([measured("causal", "2×3", tessera=10.2, eager=20.0)]) == [] and judge.worse(row) is None and not judge.bad()
    for us in (11.0, 11.1, 10.0): again = judge.take([measured("full", "2×3", tessera=us, compile=10.0)])
    assert again == [] and judge.worse(judge.row("gpu-attention", ("full", "2×3"))) is not None
    assert judge.missing("gpu-attention") == [("gone", "1")] and "gone 1" in judge.summary("gpu-attention")
    data = {"gpu-kernels": {"machine": "one NVIDIA H200, CUDA 13.0"}, "gpu-graphs": {"machine": "one NVIDIA H100 80GB, CUDA 13.0"}}
    assert [t.split(":")[0] for t in gate.other_cards(data, ["gpu-kernels", "gpu-graphs", "gpu-training"], "NVIDIA H100 80GB HBM3")] == ["gpu-kernels"]
    assert not gate.other_cards(data, ["gpu-kernels"], "NVIDIA H200")
    # A row that fails is bad; one that nobody recorded is not.
    judge.take([{"section": "gpu-attention", "key": ["gone", "1"], "us": {}, "failed": {"tessera": "no"}}, measured("new", "4", tessera=3.0, compile=4.0)])
    assert {r.name for r in judge.bad()} == {"full 2×3", "gone 1"}, judge.bad()
    assert "no figure recorded" in judge.line(judge.row("gpu-attention", ("new", "4")))
    assert judge.line(judge.row("gpu-attention", ("gone", "1"))) == "FAILED  gpu-attention  gone 1: no"


def run_main(work, rows, *options):
    """main() with a GPU that is not there and a suite that gives `rows` once, then the same for the keys that are requested again."""
    recorded = os.path.join(work, "recorded.json")
    page.write_data(recorded, RECORDED)
    assert json.load(open(recorded)) == RECORDED
    def run(context, names):
        assert names == ["attention"], names
        keys = None
        while keys is None or keys: keys = context.judge.take([r for r in rows if keys is None or tuple(r["key"]) in keys])
    saved = gate_suites.machine, gate_suites.run, gate_suites.package
    gate_suites.machine = lambda: {"gpu": "NVIDIA X1", "versions": {"PyTorch": "2"}, "modules": ["torch", "triton"], "cpu": "x"}
    gate_suites.run, gate_suites.package = run, lambda: work
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out): code = gate.main(["--recorded", recorded, *options])
    finally: gate_suites.machine, gate_suites.run, gate_suites.package = saved
    return code, out.getvalue()


def check_main():
    good = [measured(n, s, tessera=5.0, compile=10.0, eager=20.0) for n, s in (("full", "2×3"), ("causal", "2×3"), ("gone", "1"), ("new", "9"))]
    with tempfile.TemporaryDirectory() as work:
        update = os.path.join(work, "update.json")
        page.write_data(update, {"gpu-kernels": RECORDED["servers"], "gpu-attention": RECORDED["servers"]})
        code, out = run_main(work, good, "attention", "--update", update)
        assert code == 0 and "0 worse" in out and "no figure recorded  gpu-attention  new 9" in out, out
        data = json.load(open(update))
        assert data["gpu-kernels"] == RECORDED["servers"]  # not measured: stays
        section = data["gpu-attention"]
        assert section["kind"] == "calls" and section["title"].endswith(", X1") and "PyTorch 2" in section["machine"], section
        assert section["rows"] == [[r["key"][0], r["key"][1], 5.0, {"compile": 10.0, "eager": 20.0}] for r in good], section
        assert "| full | 2×3 | 5 | 0.50 | 0.25 |" in page.page({"gpu-attention": section})
        # A section that has not been measured is not written but reported.
        code, out = run_main(work, good[:2], "attention", "--update", os.path.join(work, "part.json"))
        assert code == 0 and "not written" in out and "gone 1" in out and json.load(open(os.path.join(work, "part.json"))) == {}, out
        worse = [measured("full", "2×3", tessera=12.0, compile=10.0)]
        code, out = run_main(work, worse, "attention")
        assert code == 1 and "WORSE by 20 %" in out and "(takes: 1.20 1.20 1.20;" in out, out
        code, out = run_main(work, worse, "attention", "--bar", "0.5")
        assert code == 0, out
        code, out = run_main(work, worse, "attention", "host", "models")
        assert "host: not run: it is measured with --device cpu" in out and "models: not run: Python has no transformers" in out, out
        code, out = run_main(work, worse, "host")
        assert code == 2 and "no suite can be measured" in out, out
        code, out = run_main(work, worse, "nothing")
        assert code == 2 and "there is no suite nothing" in out, out


def subject(name):
    if name == "broken": raise ValueError("it is broken")
    if name == "dies": os._exit(3)
    def measure(request):
        if name == "breaks later": raise ValueError("later")
        return name, request
    return measure


def check_waves():
    names = ["a", "broken", "b", "dies", "breaks later", "c"]
    for jobs in (1, 4, 10):
        found = {}
        for name, measure in waves([(n, lambda n=n: subject(n)) for n in names], jobs, time.time() + 60):
            found[name] = measure if isinstance(measure, str) else [measure(r, 60) for r in (None, ["key"])]
        for n in "abc": assert found[n] == [("measured", (n, None)), ("measured", (n, ["key"]))], found
        assert found["broken"] == "ValueError: it is broken" and found["dies"] == "the process died: exit status 3", found
        assert found["breaks later"] == [("failed", "ValueError: later"), ("failed", "the process died: exit status 0")], found
    assert [m for _, m in waves([("a", lambda: subject("a"))], 1, time.time() - 1)] == ["out of time"]


check_judge()
check_main()
check_waves()
print("the gate judges, repeats, writes and takes turns")
