#!/usr/bin/env python3
"""Licence texts and an SBOM of what is linked into files of a build folder: licences.py BUILD OUTPUT FILE...

Writes OUTPUT/licenses/COMPONENT.txt and OUTPUT/sboms/tessera.cdx.json (CycloneDX). A component is a Debian source package, a Python
distribution, CUDA's folder or Python itself. Its files are found by what made FILE: shared libraries by the loader (ldd), static
libraries, headers and embedded files by the build's own records (ninja -t inputs, ninja -t deps). A file without an owner, an owner
without a known licence, and a licence under which nothing may be shipped are errors.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

GCC = "GPL-3.0-or-later WITH GCC-exception-3.1"  # the one licence of the GPL's family under which something may be shipped
# The licence of what is linked, as an SPDX expression: read from the component's text by a person, since such a text also covers tests
# and packaging, which are not linked, and choices between licences. Names are those of family().
LICENCES = {
    "cli11": "BSD-3-Clause",
    "cuda": "LicenseRef-NVIDIA-CUDA-EULA",
    "fmtlib": "MIT",
    "gcc": GCC,
    "googletest": "BSD-3-Clause",
    "jbigkit": "GPL-2.0-or-later",
    "libjpeg-turbo": "IJG AND BSD-3-Clause AND Zlib",
    "libpng1.6": "libpng-2.0",
    "libwebp": "BSD-3-Clause",
    "libzstd": "BSD-3-Clause",
    "llvm-toolchain": "Apache-2.0 WITH LLVM-exception",
    "nlohmann-json3": "MIT",
    "node-dagre-layout": "MIT",
    "node-graphlibrary": "MIT",
    "node-lodash": "MIT",
    "ocl-icd": "BSD-2-Clause",
    "onednn": "Apache-2.0 AND BSD-3-Clause",
    "onnx": "Apache-2.0",
    "openjpeg2": "BSD-2-Clause",
    "protobuf": "BSD-3-Clause",
    "python": "PSF-2.0",
    "re2": "BSD-3-Clause",
    "spdlog": "MIT",
    "tiff": "libtiff",
    "xxhash": "BSD-2-Clause",
    "zlib": "Zlib",
}
NOTES = {
    "gcc": "The GCC Runtime Library Exception permits conveying these run-time libraries with compiled programs under any terms.",
    "tiff": "Declarations alone: libtiff itself is neither linked nor shipped, but loaded from the system where it has one.",
}
SYSTEM = {"glibc", "linux"}  # what every system has: used and not shipped
EMBEDS = {"node-dagre-layout": ["node-graphlibrary", "node-lodash"]}  # packages whose code stands in a file of another
COMMON = {"Apache-2.0": "Apache-2.0", "GPL-3.0-or-later": "GPL-3"}  # texts that Debian's files name instead of repeating them


class Problem(Exception):
    pass


def family(name):
    """The name without the number of a version that several packages of it have: gcc of gcc-12, python of python3.11."""
    return re.sub(r"-\d+$|(?<=^python)3\.\d+$", "", name)


def expression_of(name, why):
    """The licence of a component that may be shipped."""
    licence = LICENCES.get(name) or LICENCES.get(family(name))
    if licence is None:
        raise Problem(f"the licence of '{name}' is not known, which is linked for {why}; read its text, and add it to LICENCES in {__file__}")
    if "GPL" in licence.replace(GCC, ""):
        raise Problem(f"'{name}' is under {licence} and is linked for {why}; link another library, or load it at run time where a system has it")
    return licence


def output(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Problem(f"{' '.join(command[:4])} ... ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


class Build:
    """The records of a build folder with Ninja's files."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        cache = (self.folder / "CMakeCache.txt").read_text(encoding="utf-8")
        self.variables = dict(re.findall(r"^([\w-]+):\w+=(.*)$", cache, re.MULTILINE))
        self.source = pathlib.Path(self.variables["CMAKE_HOME_DIRECTORY"]).resolve()
        self.version = self.variables["CMAKE_PROJECT_VERSION"]
        self.cuda_include = pathlib.Path(self.variables["TESSERA_CUDA_INCLUDE"]).resolve()
        self.libdevice = pathlib.Path(self.variables["TESSERA_LIBDEVICE"]).resolve()
        if self.variables["CMAKE_GENERATOR"] != "Ninja":
            raise Problem(f"{folder} was made by {self.variables['CMAKE_GENERATOR']}; what is linked is read from Ninja's records: configure with -G Ninja")

    def ninja(self, *arguments):
        return output(self.variables["CMAKE_MAKE_PROGRAM"], "-C", str(self.folder), *arguments).splitlines()

    def linked(self, file):
        """(kind, path) of all that a linked file consists of or loads, wherever it lies."""
        for line in output("ldd", str(file)).splitlines():
            if "not found" in line:
                raise Problem(f"{file} needs a library that the loader does not find: {line.strip()}")
            if found := re.match(r"\s*(\S+) => (/\S+)", line):
                yield "shared", found[2], found[1]
        inputs = [self.folder / i for i in self.ninja("-t", "inputs", os.path.relpath(file, self.folder)) if not i.startswith("ninja:")]
        objects = [os.path.relpath(i, self.folder) for i in inputs if i.suffix in (".o", ".gch")]
        for path in inputs:
            if not re.search(r"\.so(\.|$)", path.name) and path.suffix != ".cmake" and path.is_file() and not os.access(path, os.X_OK):
                yield "static" if path.suffix == ".a" else "embedded", str(path), path.name
        for line in self.ninja("-t", "deps", *objects):
            if line.startswith("    "):
                path = self.folder / line.strip()
                yield "headers", str(path), path.name


class Component:
    def __init__(self, name, version, purl, texts):
        self.name, self.version, self.purl, self.texts = name, version, purl, texts
        self.files = {}  # kind: names

    def text(self, licence):
        whole = "\n\n".join(dict.fromkeys(t.read_text(encoding="utf-8", errors="replace") for t in self.texts))
        for identifier, file in COMMON.items():
            if identifier in licence and f"common-licenses/{file}" in whole:
                whole += f"\n\n---- /usr/share/common-licenses/{file}\n\n" + pathlib.Path("/usr/share/common-licenses", file).read_text(encoding="utf-8")
        if not whole.strip():
            raise Problem(f"no licence text of '{self.name}' {self.version} was found; install it where its package has one (tools/setup makes build/cuda)")
        return whole


def of_distribution(path):
    """The Python distribution that a file of site-packages belongs to."""
    site = next(p for p in path.parents if p.name in ("site-packages", "dist-packages"))
    for record in site.glob("*.dist-info/RECORD"):
        if f"{path.relative_to(site)}," in record.read_text(encoding="utf-8"):
            name, version = record.parent.name.removesuffix(".dist-info").split("-", 1)
            texts = [t for pattern in ("licenses/**/*", "LICEN[CS]E*", "License*") for t in record.parent.glob(pattern) if t.is_file()]
            return Component("cuda" if name.startswith("nvidia") else name, version, f"pkg:pypi/{name.replace('_', '-')}@{version}", sorted(texts))
    raise Problem(f"{path} is linked, and no distribution in {site} has it")


def of_cuda(build):
    """CUDA's and cuDNN's declarations, and libdevice: of a toolkit, or of build/cuda (tools/scripts/cuda_headers.py)."""
    places = ("EULA.txt", "LICENSE*", "licenses/*", "dist-info/nvidia_*/licenses/*")
    texts = sorted(t for root in (build.cuda_include.parent, build.libdevice.parents[2]) for place in places for t in root.glob(place) if t.is_file())
    texts = texts or [t for c in of_debian([str(build.cuda_include / "cuda.h")]).values() for t in c.texts]
    version = re.search(r"#define CUDA_VERSION (\d+)", (build.cuda_include / "cuda.h").read_text(encoding="utf-8"))
    version = version[1] if version else "unknown"
    return Component("cuda", version, f"pkg:generic/cuda@{version}", texts)


def of_debian(paths):
    """{path: component} of files of Debian's packages; a file that none has is left out."""
    if not paths:
        return {}
    asked = {spelled: p for p in paths for spelled in (p, p.removeprefix("/usr"))}  # packages name /lib or /usr/lib
    if not shutil.which("dpkg-query"):
        raise Problem("there is no dpkg-query, and texts are those of Debian's packages; build on Debian, or configure with -DTESSERA_LICENCES=OFF")
    found = subprocess.run(["dpkg-query", "-S", *asked], capture_output=True, text=True, check=False).stdout
    packages = {asked[path]: owner for owner, path in re.findall(r"^([^\s:,]+)[^\s]*(?:, \S+)*: (/.*)$", found, re.MULTILINE) if path in asked}
    sources, out = {}, {}
    names = sorted(set(packages.values()))
    for line in output("dpkg-query", "-W", "-f", "${Package} ${source:Package} ${source:Version}\n", *names).splitlines() if names else []:
        package, source, version = line.split()
        sources.setdefault(package, (source, version))
    components = {}
    for path, package in packages.items():
        source, version = sources[package]
        text = pathlib.Path("/usr/share/doc", package, "copyright")
        purl = f"pkg:deb/debian/{source}@{version.replace('+', '%2B').replace(':', '%3A')}?arch=source"
        out[path] = components.setdefault(source, Component(source, version, purl, [text]))
    return out


def components_of(build, files):
    """The components of the files by name."""
    headers = pathlib.Path(sysconfig.get_path("include")).resolve()
    used, debian, found = {}, {}, {}
    for file in files:
        for kind, path, name in build.linked(file):
            used.setdefault((os.path.normpath(path), kind, name), str(file))

    def add(component, kind, name):
        known = found.setdefault(component.name, component)
        known.texts = list(dict.fromkeys(known.texts + component.texts))
        known.files.setdefault(kind, set()).add(name)

    cuda = None
    for (path, kind, name), why in used.items():
        real = pathlib.Path(path).resolve()
        parents = real.parents
        if {"site-packages", "dist-packages"} & set(real.parts):
            add(of_distribution(real), kind, name)
        elif real == build.libdevice or build.cuda_include in parents:
            cuda = cuda or of_cuda(build)
            add(cuda, kind, name)
        elif headers in parents:
            version = sysconfig.get_python_version()
            add(Component("python", version, f"pkg:generic/python@{version}", [pathlib.Path(sysconfig.get_path("stdlib"), "LICENSE.txt")]), kind, name)
        elif build.source not in parents and build.folder not in parents:
            debian.setdefault(str(real), []).append((kind, name, why))
    owned = of_debian(debian)
    for path, uses in debian.items():
        if path not in owned:
            raise Problem(f"{path} is linked into {uses[0][2]} and belongs to no Debian package; install its package, or add its owner to {__file__}")
        for kind, name, _ in uses:
            add(owned[path], kind, name)
    for owner, embedded in EMBEDS.items():
        if owner in found:
            texts = [f"/usr/share/doc/{name}/copyright" for name in embedded]
            owned = of_debian(texts)
            if absent := set(texts) - set(owned):
                raise Problem(f"{owner} holds code of others, and their texts are missing: {', '.join(sorted(absent))}; install their packages")
            for component in owned.values():
                add(component, "embedded", f"in {owner}")
    return {name: c for name, c in sorted(found.items()) if name not in SYSTEM}


def main():
    build, out, files = Build(sys.argv[1]), pathlib.Path(sys.argv[2]), [pathlib.Path(f).resolve() for f in sys.argv[3:]]
    listed = []
    (out / "licenses").mkdir(parents=True, exist_ok=True)
    (out / "sboms").mkdir(parents=True, exist_ok=True)
    for earlier in (out / "licenses").glob("*.txt"):
        earlier.unlink()
    (out / "licenses" / "LICENSE").write_bytes((build.source / "LICENSE").read_bytes())
    for name, component in components_of(build, files).items():
        shown = sorted(min(component.files.items())[1])[:3]
        licence = expression_of(name, ", ".join(shown))
        text = f"licenses/{name}.txt"
        (out / text).write_text(component.text(licence), encoding="utf-8")
        properties = [{"name": "tessera:text", "value": text}]
        properties += [{"name": "tessera:linkage", "value": kind} for kind in sorted(component.files)]
        properties += [{"name": "tessera:file", "value": f} for kind in ("shared", "static", "embedded") for f in sorted(component.files.get(kind, ()))]
        note = NOTES.get(family(name))
        listed.append({
            "type": "library", "bom-ref": name, "name": name, "version": component.version, **({"description": note} if note else {}),
            "licenses": [{"expression": licence, "acknowledgement": "concluded"}], "purl": component.purl, "properties": properties,
        })
    own = {"type": "application", "bom-ref": "tessera", "name": "tessera", "version": build.version, "licenses": [{"expression": "Apache-2.0"}]}
    bom = {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"component": own}, "components": listed,
        "dependencies": [{"ref": "tessera", "dependsOn": [c["bom-ref"] for c in listed]}],
    }
    (out / "sboms" / "tessera.cdx.json").write_text(json.dumps(bom, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except Problem as problem:
        sys.exit(f"error: {problem}")
