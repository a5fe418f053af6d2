"""What a run executed against what the report says of it."""


def differences(report, run, case):
    """Yields where the report (explain --format json) and a case of `run --profile --json` differ: steps, launches, bytes."""
    steps = [s for s in report["steps"] if "inside" not in s]
    executed = case["run"]["steps"]
    expected = [s["id"] for s in steps]
    names = [e["name"] for e in executed]
    if names != expected:
        at = next((i for i, (a, b) in enumerate(zip(names + [None], expected + [None])) if a != b), None)
        yield f"step {at}: the run has {(names + [None])[at]}, the report {(expected + [None])[at]}"
        return
    for s, e in zip(steps, executed):
        if s["bytes"]["at_sizes"] is not None and s["bytes"]["at_sizes"] != e["bytes"]:
            yield f"{s['id']}: the run moved {e['bytes']} bytes, the report says {s['bytes']['at_sizes']}"
    if not any(s["kind"] == "control" for s in steps):
        for what, kinds in (("kernels", ("kernel", "separate")), ("library_calls", ("library", "attention")), ("host_steps", ("host",)), ("copies", ("copy",))):
            n = sum(s["kind"] in kinds for s in steps)
            if n != run[what]: yield f"{what}: the run has {run[what]}, the report {n}"
    launches = sum(s["launches"] for s in steps)
    if launches != report["totals"]["launches"] - sum(s["launches"] for s in report["steps"] if "inside" in s): yield "launches"
