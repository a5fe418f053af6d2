#!/usr/bin/env python3
"""Compare the C interface with a golden text: exported symbols with their versions, prototypes, constants, layouts of structs.

    abi.py LIBRARY SOURCE_DIRECTORY C++_COMPILER

TESSERA_BLESS=1 rewrites tests/api/abi.txt, where the change is compatible or TESSERA_ABI_VERSION has become another one. Compatible
are additions: functions, constants, structs, fields at the end of a struct that begins with struct_size or that the library alone
makes.
"""
import os, re, subprocess, sys, tempfile

HEADERS = ("api/c.h", "api/operators.h")
OF_LIBRARY = {"tessera_error", "tessera_version_numbers"}  # the library alone makes them, one at a time
IN_ARRAYS = {"tessera_item"}  # struct_size says which version it is

def fields(body):
    """(name, type) of each field of a struct's text."""
    out = []
    for text in filter(None, (" ".join(t.split()) for t in re.split(r";(?![^(]*\))", body))):
        if pointer := re.match(r"(.*)\(\*(\w+)\)(\(.*\))$", text):
            out.append((pointer[2], f"{pointer[1].strip()} (*){pointer[3]}"))
            continue
        first, *others = text.split(",")
        kind, name = re.match(r"(.*?)(\w+(?:\[\w+\])?)$", first.strip()).groups()
        for n in (name, *(o.strip() for o in others)):
            array = re.search(r"\[\w+\]", n)
            out.append((n.split("[")[0], kind.strip() + (array[0] if array else "")))
    return out

def types_of(parameters):
    """The types of a prototype's parameters, without the names."""
    out = []
    for p in (" ".join(p.split()) for p in parameters.split(",")):
        m = re.match(r"(.*[\s*])(\w+)$", p)
        out.append(m[1].strip() if m and m[1].strip() not in ("const", "struct") else p)
    return ", ".join(out)

def interface(source, compiler):
    """{what: value} of the headers."""
    now, program = {}, ["#include <cstddef>", "#include <cstdio>", *(f'#include "{h}"' for h in HEADERS), "int main() {"]
    for header in HEADERS:
        text = re.sub(r"/\*.*?\*/", "", open(os.path.join(source, header), encoding="utf-8").read(), flags=re.S)
        for name in re.findall(r"^#define (TESSERA_\w+) \w+$", text, re.M): program.append(f'std::printf("constant {name}\\t%d\\n", static_cast<int>({name}));')
        for body in re.findall(r"typedef enum \w*\s*\{(.*?)\}", text, re.S):
            for name in re.findall(r"\b(TESSERA_\w+)", body): program.append(f'std::printf("constant {name}\\t%d\\n", static_cast<int>({name}));')
        for body, name in re.findall(r"typedef struct \w*\s*\{(.*?)\}\s*(\w+);", text, re.S):
            program.append(f'std::printf("sizeof {name}\\t%zu\\n", sizeof({name}));')
            for field, kind in fields(body):
                program.append(f'std::printf("field {name}.{field}\\t%zu..%zu {kind}\\n", offsetof({name}, {field}), offsetof({name}, {field}) + sizeof({name}::{field}));')
        plain = re.sub(r"\{.*?\}", "{}", text, flags=re.S)
        for result, name, parameters in re.findall(r"^((?:const )?\w+[ *]+)(tessera_\w+)\(([^;]*?)\);", plain, re.M):
            now[f"function {name}"] = f"{result.strip()} ({types_of(parameters)})"
        for result, name, parameters in re.findall(r"^typedef ([\w *]+?)\s*\(\*(tessera_\w+)\)\(([^;]*?)\);", plain, re.M):
            now[f"callback {name}"] = f"{result.strip()} ({types_of(parameters)})"
    with tempfile.TemporaryDirectory() as folder:
        file, binary = os.path.join(folder, "layout.cpp"), os.path.join(folder, "layout")
        with open(file, "w", encoding="utf-8") as f: f.write("\n".join([*program, "}"]))
        subprocess.run([compiler, "-std=c++20", "-I", source, file, "-o", binary], check=True)
        for line in subprocess.run([binary], check=True, capture_output=True, text=True).stdout.splitlines():
            what, value = line.split("\t")
            now[what] = value
    return now

def symbols(library):
    lines = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout.splitlines()
    return {f"symbol {n}": v for n, v in re.findall(r" [A-Z] (tessera_\w+)@@(\w+)", "\n".join(lines))}

def incompatible(golden, now):
    growing = {w.split(".")[0].split(" ")[1] for w in now if w.endswith(".struct_size") and now[w].startswith("0..")} | OF_LIBRARY
    growing -= IN_ARRAYS
    out = []
    for what, value in golden.items():
        if what not in now: out.append(f"{what}: gone")
        elif now[what] != value and not (what.startswith("sizeof ") and what.split(" ")[1] in growing and int(now[what]) > int(value)):
            out.append(f"{what}: {value} is {now[what]} now")
    for what in sorted(w for w in now.keys() - golden.keys() if w.startswith("field ")):
        name = what.split(" ")[1].split(".")[0]
        if f"sizeof {name}" not in golden: continue
        if name not in growing: out.append(f"{what}: new, and {name} does not grow")
        elif int(now[what].split("..")[0]) < int(golden[f"sizeof {name}"]): out.append(f"{what}: new, and not behind the end of {name} as it was")
    return out

def main():
    library, source, compiler = sys.argv[1:]
    path = os.path.join(source, "tests/api/abi.txt")
    now = interface(source, compiler)
    now.update(symbols(library))
    problems = [f"{w}: declared, and not exported" for w in now if w.startswith("function ") and "symbol" + w[8:] not in now and not w.endswith(("_register_operators", "_operators_version"))]
    problems += [f"{w}: exported, and not declared" for w in now if w.startswith("symbol ") and "function" + w[6:] not in now]
    abi = now["constant TESSERA_ABI_VERSION"]
    problems += [f"{w}: of version {v}, expected TESSERA_{abi}" for w, v in now.items() if w.startswith("symbol ") and v != f"TESSERA_{abi}"]
    text = "".join(f"{w}: {v}\n" for w, v in now.items())
    golden = {}
    if os.path.exists(path):
        golden = dict(line.rstrip("\n").split(": ", 1) for line in open(path, encoding="utf-8"))
    if golden.get("constant TESSERA_ABI_VERSION") == abi:
        problems += [f"{p}. The ABI is another one: undo it, or raise TESSERA_ABI_VERSION (api/c.h)" for p in incompatible(golden, now)]
    if not problems and os.environ.get("TESSERA_BLESS") == "1":
        with open(path, "w", encoding="utf-8") as f: f.write(text)
    elif not problems and golden != now:
        problems = [f"{w}: {now.get(w, 'gone')}, tests/api/abi.txt has {golden.get(w, 'nothing')}; TESSERA_BLESS=1 rewrites it" for w in sorted(golden.keys() ^ now.keys() | {w for w in golden.keys() & now.keys() if golden[w] != now[w]})]
    print("\n".join(problems) or f"{len(now)} facts of ABI {abi}")
    sys.exit(1 if problems else 0)

if __name__ == "__main__": main()
