#!/usr/bin/env python3
"""Check the licence texts and the SBOM of what is shipped against the shipped files themselves: licences.py FOLDER

FOLDER is an unpacked wheel, an installation or a bundle. Every library that a file in it needs is the system's or is listed, so is every
library in it, and every library whose strings a file has; each component has its licence's text; none is under the GPL.
"""
import json
import pathlib
import re
import subprocess
import sys

SYSTEM = {"libc", "libm", "libdl", "libpthread", "librt", "ld-linux-x86-64", "libcuda"}
OWN = re.compile(r"lib(tessera|tessera_runtime|triton_tessera)$|_native\.abi3$")
STRINGS = {  # what a file holds that a library is linked into, by component
    "llvm-toolchain-": b"LLVM ERROR: ",
    "nlohmann-json": b"[json.exception.",
    "cli11": b"N3CLI",
    "node-dagre-layout": b"dagre=",
    "node-lodash": b"__lodash_hash_undefined__",
    "cuda": b"__nv_",
    "googletest": b"GTEST_TOTAL_SHARDS",
}
PHRASES = {  # of licences' texts, as they read without line breaks
    "Apache-2.0": "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION",
    "BSD-": "Redistribution and use in source and binary forms",
    "GCC-exception": "GCC RUNTIME LIBRARY EXCEPTION",
    "GPL-3.0": "GNU GENERAL PUBLIC LICENSE Version 3, 29 June 2007",
    "MIT": "Permission is hereby granted, free of charge",
    "NVIDIA": "NVIDIA",
    "PSF": "PYTHON SOFTWARE FOUNDATION LICENSE",
    "Zlib": "provided 'as-is'",
}


def stem(name):
    """libtbb of libtbb.so.12, and of libtbb-4d79fbbd.so.12.8 as auditwheel names it."""
    return re.sub(r"-[0-9a-f]{8}$", "", name.split(".so")[0])


def problems_of(folder):
    folder = pathlib.Path(folder)
    boms = list(folder.rglob("sboms/tessera.cdx.json"))
    if len(boms) != 1:
        return [f"{folder} has {len(boms)} files sboms/tessera.cdx.json, expected is 1"]
    components = json.loads(boms[0].read_text(encoding="utf-8"))["components"]
    found = [] if components else [f"{boms[0]} lists nothing"]
    listed, texts = set(), {"LICENSE"}
    for component in components:
        name, properties = component["name"], component["properties"]
        listed |= {stem(p["value"]) for p in properties if p["name"] == "tessera:file"}
        (expression,) = (licence["expression"] for licence in component["licenses"])
        if re.sub(r"GPL-3.0-or-later WITH GCC-exception-3.1", "", expression).find("GPL") >= 0:
            found.append(f"{name} is under {expression}")
        (file,) = (p["value"] for p in properties if p["name"] == "tessera:text")
        texts.add(file.split("/")[1])
        path = boms[0].parents[1] / file
        text = " ".join(re.sub(r"^[ .*#]+$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE).split()) if path.exists() else ""
        found += [f"{file} lacks '{phrase}', and {name} is under {expression}" for key, phrase in PHRASES.items() if key in expression and phrase not in text]
    found += [f"the text {t} is missing" for t in texts if not (boms[0].parents[1] / "licenses" / t).exists()]
    names = {c["name"] for c in components}
    elf = 0
    for file in (f for f in folder.rglob("*") if f.is_file() and not f.is_symlink()):
        content = file.read_bytes()
        if content[:4] != b"\x7fELF":
            continue
        elf += 1
        dynamic = subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True).stdout
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
        carried = [file.name] if ".so" in file.name else []
        for library in needed + carried:
            if not OWN.match(stem(library)) and stem(library) not in SYSTEM | listed:
                found.append(f"{file.relative_to(folder)} {'needs' if library in needed else 'is'} {library}, which no component of the SBOM has")
        if file.name in carried and not OWN.match(stem(file.name)):
            continue  # its own package's text says what it holds
        missing = [key for key, part in STRINGS.items() if part in content and not any(n.startswith(key) for n in names)]
        found += [f"{file.relative_to(folder)} holds code of {key}, which the SBOM lacks" for key in missing]
    print(f"{folder}: {elf} programs and libraries, {len(components)} components")
    return found + ([] if elf else [f"{folder} has no program and no library"])


if __name__ == "__main__":
    problems = problems_of(sys.argv[1])
    print("\n".join(problems))
    sys.exit(1 if problems else 0)
