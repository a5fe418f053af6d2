#!/usr/bin/env python3
"""Check the include edges between folders (docs/architecture.md), that no folders include each other in a circle, that LLVM and
protobuf headers stay where they belong, that files are opened in one place, and that every source folder has a README.

    include_edges.py SOURCE_DIRECTORY
"""
import os, re, sys

MAY = {
    "base": {"base"},
    "symbols": {"base", "symbols"},
    "graph": {"base", "symbols", "graph"},
    "frontend": {"base", "symbols", "graph", "frontend"},
    "fusion": {"base", "symbols", "graph", "fusion"},
    "runtime": {"base", "symbols", "runtime"},
    "codegen/target": {"base", "codegen/target"},
    "codegen/load": {"base", "symbols", "graph", "runtime", "codegen/load"},
    "codegen": {"base", "symbols", "graph", "fusion", "runtime", "codegen"},
    "measure": {"base", "symbols", "graph", "fusion", "runtime", "codegen", "measure"},
    "report": {"base", "symbols", "graph", "frontend", "fusion", "codegen", "runtime", "report"},
    "api": {"base", "symbols", "graph", "frontend", "fusion", "codegen", "runtime", "measure", "report", "api"},
    "python": {"api/c.h", "api/metric_fields.h", "api/option_fields.h", "api/operators.h", "python"},
    "serving": {"api/c.h", "api/option_fields.h", "serving"},
    "tools": {"base", "symbols", "graph", "frontend", "fusion", "codegen", "runtime", "measure", "report", "api", "serving/triton/config.h", "tools"},
}
ONLY_IN = {r"llvm/": "codegen/llvm", r"google/protobuf|tessera_onnx\.pb\.h": "frontend/onnx", r"oneapi/dnnl|dnnl\.h": "runtime/library", r"spdlog/": "base"}

# Opening a FIFO or a device as a file may wait for ever: whoever opens one takes the functions of these files.
OPENS = re.compile(r"std::(i|o)?fstream\b|\bfopen\(|(?<![\w>])::open(at)?\(")
MAY_OPEN = {"base/file.cpp", "runtime/cache/private_folder.cpp"}


def circles(edges):
    """The strongly connected components of more than one folder (Tarjan's algorithm)."""
    found, index, low, stack = [], {}, {}, []
    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in sorted(edges.get(v, ())):
            if w not in index: visit(w)
            if w in stack: low[v] = min(low[v], low[w])
        if low[v] != index[v]: return
        at = stack.index(v)
        if len(stack) - at > 1: found.append(set(stack[at:]))
        del stack[at:]
    for v in sorted(edges):
        if v not in index: visit(v)
    return found

def main():
    root = sys.argv[1]
    problems, files, edges = [], 0, {}
    for top in sorted({m.split("/")[0] for m in MAY}):
        for folder, _, names in os.walk(os.path.join(root, top)):
            rel = os.path.relpath(folder, root)
            sources = [n for n in names if n.endswith((".h", ".cpp"))]
            if sources and "README.md" not in names: problems.append(f"{rel}: no README.md")
            rule = next(MAY[m] for m in sorted(MAY, key=len, reverse=True) if (rel + "/").startswith(m + "/"))
            for n in sources:
                files += 1
                for line, text in enumerate(open(os.path.join(folder, n), encoding="utf-8"), 1):
                    where = f"{rel}/{n}:{line}"
                    m = re.match(r'\s*#include\s*"([^"]+)"', text)
                    if m and os.path.isdir(os.path.join(root, os.path.dirname(m[1]))) and os.path.dirname(m[1]) not in ("", rel):
                        edges.setdefault(rel, {}).setdefault(os.path.dirname(m[1]), f"{where}: {m[1]}")
                    if m and "/" in m[1] and not any((m[1] + "/").startswith(r + "/") for r in rule) and m[1].split("/")[0] in {x.split("/")[0] for x in MAY}:
                        problems.append(f"{where}: {rel} may not include {m[1]}")
                    if OPENS.search(text) and f"{rel}/{n}" not in MAY_OPEN: problems.append(f"{where}: opens a file; base/file.h does that")
                    for pattern, owner in ONLY_IN.items():
                        if re.match(r'\s*#include\s*[<"](' + pattern + ")", text) and not (rel + "/").startswith(owner + "/"): problems.append(f"{where}: {text.strip()} belongs to {owner}")
    for circle in circles(edges):
        problems.append("these folders include each other: " + ", ".join(sorted(circle)))
        problems += [f"  {where}" for a in sorted(circle) for b, where in sorted(edges[a].items()) if b in circle]
    print("\n".join(problems) or f"{files} files, include edges as documented")
    sys.exit(1 if problems else 0)

if __name__ == "__main__": main()
