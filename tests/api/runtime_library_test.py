#!/usr/bin/env python3
"""libtessera_runtime.so: its size, what it links, that compiled files run in it as in libtessera.so, bit for bit, and what it says of
other files.

    runtime_library_test.py COMMAND LIBRARY RUNTIME_LIBRARY SOURCE_DIRECTORY [MODEL...]
"""
import ctypes as c
import glob, json, os, random, re, subprocess, sys, tempfile, time

MOST_BYTES = 17 << 19  # of the stripped library
DIMS = {"default": 3}   # a size for each symbol of an input
UNEQUAL = {"open_ms": 0, "run_ms": 0, "writable_code": []}  # what differs between the libraries


class Tensor(c.Structure):
    _fields_ = [("name", c.c_char_p), ("dtype", c.c_int32), ("rank", c.c_int32), ("dims", c.POINTER(c.c_int64)), ("data", c.c_void_p)]


class Io(c.Structure):
    _fields_ = [("name", c.c_char_p), ("dtype", c.c_int32), ("rank", c.c_int32), ("dims", c.POINTER(c.c_char_p))]


BYTES = {1: 4, 2: 1, 3: 1, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8, 12: 4, 13: 8, 16: 2}  # of an element, by tessera_dtype


def values(dtype, count, rng):
    """Small numbers: floats below 1, integers that index any table."""
    if dtype == 1: return (c.c_float * count)(*[rng.random() for _ in range(count)])
    if dtype == 11: return (c.c_double * count)(*[rng.random() for _ in range(count)])
    if dtype in (10, 16): return (c.c_uint16 * count)(*[0x3800 + rng.randrange(64) for _ in range(count)])
    kind = {1: c.c_uint8, 4: c.c_uint32, 8: c.c_uint64}[BYTES[dtype]]
    return (kind * count)(*[rng.randrange(2) for _ in range(count)])


def run(library, model, sizes):
    """Opens a model by a library's C interface and runs it: milliseconds of opening, and the outputs' types, sizes and bytes."""
    lib = c.CDLL(library)
    for name in ("tessera_open", "tessera_inputs", "tessera_run_fresh", "tessera_last_variant"):
        if hasattr(lib, name): getattr(lib, name).restype = c.c_char_p
    session, begin = c.c_void_p(), time.monotonic()
    error = lib.tessera_open(model.encode(), b"cpu", 1, c.byref(session))
    opened = (time.monotonic() - begin) * 1000
    if error: return {"error": error.decode()}
    ios, count = c.POINTER(Io)(), c.c_int32()
    error = lib.tessera_inputs(session, c.byref(ios), c.byref(count))
    if error: return {"error": error.decode()}
    rng, tensors, kept = random.Random(7), (Tensor * max(count.value, 1))(), []
    for i in range(count.value):
        dims = [int(d) if d.isdigit() else sizes.get(d.decode(), sizes.get("default", 3)) for d in ios[i].dims[: ios[i].rank]]
        elements = 1
        for d in dims: elements *= d
        if ios[i].dtype not in BYTES: return {"error": f"an input of type {ios[i].dtype}"}
        data = values(ios[i].dtype, elements, rng)
        shape = (c.c_int64 * max(len(dims), 1))(*dims)
        kept += [data, shape]
        tensors[i] = Tensor(ios[i].name, ios[i].dtype, ios[i].rank, shape, c.cast(data, c.c_void_p))
    outputs, results = c.POINTER(Tensor)(), c.c_int32()
    begin = time.monotonic()
    error = lib.tessera_run_fresh(session, tensors, count, c.byref(outputs), c.byref(results))
    ran = (time.monotonic() - begin) * 1000
    if error: return {"error": error.decode()}
    shown = []
    for o in outputs[: results.value]:
        dims, elements = list(o.dims[: o.rank]), 1
        for d in dims: elements *= d
        shown.append([o.dtype, dims, c.string_at(o.data, elements * BYTES[o.dtype]).hex() if elements else ""])
    writable_code = [line.strip() for line in open("/proc/self/maps", encoding="utf-8") if " rwx" in line]
    return {"open_ms": opened, "run_ms": ran, "writable_code": writable_code, "variants": lib.tessera_variants(session), "outputs": shown}


def child(library, model, sizes=None):
    """The same in a process of its own, which has no other library."""
    done = subprocess.run([sys.executable, __file__, "--child", library, model, json.dumps(sizes or {})], capture_output=True, text=True, timeout=300)
    if done.returncode != 0: return {"crash": f"{done.returncode}: {done.stderr[-300:]}"}
    return json.loads(done.stdout)


def check_binary(library, folder, problems):
    stripped = os.path.join(folder, "stripped.so")
    subprocess.run(["strip", "-o", stripped, library], check=True)
    size = os.path.getsize(stripped)
    if size > MOST_BYTES: problems.append(f"{library} has {size} bytes stripped, at most {MOST_BYTES} are expected")
    needed = re.findall(r"NEEDED.*\[(.*)\]", subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout)
    problems += [f"it needs {n}" for n in needed if re.search("LLVM|protobuf|onnx|tbb", n, re.I)]
    if "NODELETE" not in subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout:
        problems.append(f"{library} can be unloaded under its own threads")
    for symbols in (["nm", "-C", library], ["nm", "-DC", library]):
        names = subprocess.run(symbols, check=True, capture_output=True, text=True).stdout
        for foreign in ("llvm::", "google::protobuf"):
            if foreign in names: problems.append(f"it has symbols of {foreign}")
    print(f"{os.path.basename(library)}: {size} bytes stripped; it needs {', '.join(needed)}")


def check_hardening(binary, problems):
    """Checks that the tables which the loader fills in are read-only when the program begins."""
    read = subprocess.run(["readelf", "-Wld", binary], check=True, capture_output=True, text=True).stdout
    problems += [f"{binary} is linked without {what}" for what in ("BIND_NOW", "GNU_RELRO") if what not in read]


def main():
    command, library, runtime, source = sys.argv[1:5]
    models = sys.argv[5:] or sorted(glob.glob(os.path.join(source, "models/small/*.onnx")) + glob.glob(os.path.join(source, "tests/fuzz/seeds/import/*.onnx")))
    problems, compared = [], 0
    with tempfile.TemporaryDirectory() as folder:
        check_binary(runtime, folder, problems)
        for binary in (command, library, runtime): check_hardening(binary, problems)
        environment = dict(os.environ, TESSERA_CACHE_DIR=os.path.join(folder, "cache"))
        compiled = None
        for model in models:
            file = os.path.join(folder, os.path.basename(model) + ".tsr")
            made = subprocess.run([command, "compile", model, "-o", file, "--device", "cpu", "--embed-weights"], capture_output=True, text=True, env=environment)
            if made.returncode != 0: continue  # a model that is refused is other tests' concern
            compiled = file
            want, got = child(library, file), child(runtime, file)
            if "error" in want and "error" in got: continue  # sizes or values that the model refuses
            if {**want, **UNEQUAL} != {**got, **UNEQUAL}: problems.append(f"{model}: {str(got)[:300]} instead of {str(want)[:300]}")
            else: compared += 1
            if "open_ms" in got: print(f"{os.path.basename(model)}: opened in {got['open_ms']:.1f} ms, first run {got['run_ms']:.1f} ms")
        if compared == 0: problems.append("no compiled file ran in both libraries")
        # Kernels of ours lie in pages that are written or executed, never both. oneDNN's are both.
        relu = os.path.join(source, "tests/fuzz/seeds/import/relu.onnx")
        for file in (relu, os.path.join(folder, "relu.tsr")):
            if file != relu: subprocess.run([command, "compile", relu, "-o", file, "--device", "cpu"], check=True, capture_output=True, env=environment)
            pages = child(library, file).get("writable_code")
            if pages != []: problems.append(f"{file} runs with pages that are writable and executable: {pages}")
        # Other files, and damaged ones.
        for model in models[:1] + [relu]:
            output = child(runtime, model).get("error", "")
            for part in (os.path.basename(model), "an ONNX model", "runs compiled files alone", "tessera compile MODEL -o FILE"):
                if part not in output: problems.append(f"opening a model says {output!r}, expected is {part!r}")
        if compiled:
            good = open(compiled, "rb").read()
            rng = random.Random(1)
            bad_file = os.path.join(folder, "bad.tsr")
            for _ in range(10):
                bad = bytearray(good)
                bad[rng.randrange(64, len(bad) // 2)] ^= 1 << rng.randrange(8)
                open(bad_file, "wb").write(rng.choice([bad, good[: rng.randrange(len(good))]]))
                output = child(runtime, bad_file)
                if "error" not in output: problems.append(f"a damaged file: {str(output)[:300]}")
    print("\n".join(problems) or f"{compared} compiled files run in both libraries with the same results")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]: print(json.dumps(run(sys.argv[2], sys.argv[3], json.loads(sys.argv[4]))))
    else: main()
