#!/usr/bin/env python3
"""Check what the installed package shows: symbols of the library and names below include/.

    symbols.py PREFIX
"""
import os, re, subprocess, sys

# The C interface, and what the installed C++ headers declare. Nothing of libraries inside, nothing of std, no types or
# tables of other classes.
C = re.compile(r"tessera_[a-z_]+$")
CPP = re.compile(
    r"tessera::((Session|Tensor|Diagnostic|Location|Failure|CheckContext|SymExpr|DeviceChoice)::|(ThreadPool|Executor)::create\(|"
    r"(choose_device|choose_device_here|parse_policy|parse_specializations|parse_variant|parse_size_ranges|element_count|allocate_bytes|read_npy|write_npy|compare|value_of_error|check_failed|info|dtype_from_\w+|"
    r"(small_float|bf16|f16|f32|f64)_to_\w+|operator[-+*]|floordiv|ceildiv|mod|sym_\w+|product|parse_sym|str|contiguous_strides)"
    r"(\[abi:cxx11\])?\()")
MOST = 220  # symbols; there are about 205

def main():
    prefix = sys.argv[1]
    problems = []
    (library,) = [os.path.join(f, n) for f, _, names in os.walk(prefix) for n in names if n == "libtessera.so"]
    lines = subprocess.run(["nm", "-D", "--defined-only", "-C", library], check=True, capture_output=True, text=True).stdout.splitlines()
    versioned = [re.match(r"(.*?)@@?(TESSERA_[\w.]+)$", line.split(" ", 2)[2]) for line in lines]
    problems += [f"exported without a version: {line}" for line, m in zip(lines, versioned) if not m and " A " not in line]
    names = [m[1] for m in versioned if m]
    for name in names:
        if not (C.match(name) or CPP.match(name)): problems.append(f"exported, and no part of the interface: {name}")
    if len(names) > MOST: problems.append(f"{len(names)} symbols are exported, at most {MOST} are expected")
    for api, functions in (("c.h", r"^[\w *]*[ *](tessera_\w+)\("), ("operators.h", r"^const char\* (tessera_\w+)\(")):
        header = open(os.path.join(prefix, "include/tessera/api", api), encoding="utf-8").read()
        for function in set(re.findall(functions, header, re.M)):
            if function not in names: problems.append(f"declared in api/{api}, and not exported: {function}")
    top = sorted(os.listdir(os.path.join(prefix, "include")))
    if top != ["tessera"]: problems.append(f"include/ has {top}, expected is tessera alone")
    headers = [os.path.join(f, n) for f, _, files in os.walk(os.path.join(prefix, "include")) for n in files]
    for h in headers:
        for line in open(h, encoding="utf-8"):
            if re.match(r'\s*#include\s*"', line): problems.append(f"{h}: {line.strip()} is not found with include/ alone")
    print("\n".join(problems) or f"{len(names)} symbols, {len(headers)} headers, {os.path.getsize(library)} bytes")
    sys.exit(1 if problems else 0)

if __name__ == "__main__": main()
