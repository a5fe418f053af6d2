"""One case: is Tessera right, is it the same twice, and how long does it take against the others."""
import os
from .clock import race
from .tessera import TesseraError


def check(machine, case, folder):
    """Runs Tessera twice into memory that holds other bytes each time. Returns what is wrong, or None."""
    path = os.path.join(folder, case.name + ".onnx")
    case.save(path)
    inputs = machine.inputs(case)
    try:
        results = []
        for poison in (0xFF, 0x5A):
            results.append(machine.outputs(case, poison))
            machine.tessera(case, path, [inputs], [results[-1]])[0]()
            machine.wait()
    except TesseraError as e:
        return "error: " + str(e).strip().splitlines()[0]
    if not machine.same_bits(*results): return "two runs differ"
    expected = machine.reference(case, inputs)
    return machine.error(case, results[0], expected) if expected else None


def contenders(machine, case, folder, peers):
    """name -> calls, one for each set of memory, Tessera first, and what could not be made: name -> why."""
    path = os.path.join(folder, case.name + ".onnx")
    if not os.path.exists(path) or not hasattr(case, "bytes"): case.save(path)
    sets = machine.clock.sets(case.bytes, 1 + len(peers))
    inputs = machine.input_sets(case, sets, seed=1)
    make = {"tessera": lambda: machine.tessera(case, path, inputs, [machine.outputs(case, 0) for _ in inputs]), "copy": lambda: machine.copy(case, sets), "eager": lambda: machine.eager(case, inputs),
            "compile": lambda: machine.compiled(case, inputs), "max-autotune": lambda: machine.compiled(case, inputs, "max-autotune-no-cudagraphs"),
            "onnxruntime": lambda: machine.ort(case, path, inputs), "library": lambda: machine.tessera(case, path, inputs, [machine.outputs(case, 0) for _ in inputs], without="contract-products,split-products")}
    calls, failed = {}, {}
    for name in ("tessera", *peers):
        try:
            calls[name] = make[name]()
            for call in calls[name]: call()
            machine.wait()
        except Exception as e:  # a peer's failure is its own, and must not end the run
            calls.pop(name, None)
            failed[name] = f"{type(e).__name__}: {str(e).strip().splitlines()[0] if str(e).strip() else ''}"[:300]
    return calls, failed


def measure(machine, case, folder, peers, rounds, seconds):
    """A row of the results: sizes, and of each contender its times or why it has none."""
    calls, failed = contenders(machine, case, folder, peers)
    row = {"case": case.name, "family": case.family, "bytes": case.bytes, "flops": case.flops, "sets": max(map(len, calls.values()), default=0)}
    row["times"] = race(machine.clock, calls, rounds, seconds) if calls else {}
    if failed: row["failed"] = failed
    calls.clear()
    machine.clean()
    return row
