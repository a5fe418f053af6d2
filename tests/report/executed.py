"""Compares what a run executed with what the report says of it."""

FUNCTIONS = {
    "min": min, "max": max, "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "select": lambda c, a, b: a if c else b,
    "eq": lambda a, b: int(a == b), "ne": lambda a, b: int(a != b), "lt": lambda a, b: int(a < b), "le": lambda a, b: int(a <= b),
    "not": lambda a: int(not a),
}  # of expressions over sizes (symbols/expr.h)


def amount(sized, sizes):
    """An amount of the report at these sizes; None where only a run knows it."""
    try:
        return eval(sized["expression"], {"__builtins__": {}}, {**FUNCTIONS, **sizes})
    except (NameError, SyntaxError):
        return None


def differences(report, run, case):
    """Yields where the report (explain --format json) and a case of `run --profile --json` differ: steps, launches, bytes. The sizes
    are those of the case."""
    steps = [s for s in report["steps"] if "inside" not in s]
    executed = case["run"]["steps"]
    names, expected = [e["name"] for e in executed], [s["id"] for s in steps]
    if names != expected:
        at = next(i for i, (a, b) in enumerate(zip([*names, None], [*expected, None])) if a != b)
        yield f"step {at}: the run has {[*names, None][at]}, the report {[*expected, None][at]}"
        return
    for s, e in zip(steps, executed):
        bytes_ = amount(s["bytes"], case["sizes"])
        if bytes_ is not None and bytes_ != e["bytes"]: yield f"{s['id']}: the run moved {e['bytes']} bytes, the report says {bytes_}"
    if not any(s["kind"] == "control" for s in steps):
        for what, kinds in (("kernels", ("kernel", "separate")), ("library_calls", ("library", "attention")), ("host_steps", ("host", "read")), ("copies", ("copy",))):
            n = sum(s["kind"] in kinds for s in steps)
            if n != run[what]: yield f"{what}: the run has {run[what]}, the report {n}"
        launches = run["kernels"] + run["library_calls"] + run["copies"]
        if report["totals"]["launches"] != launches: yield f"launches: the run made {launches}, the report says {report['totals']['launches']}"
