#!/usr/bin/env python3
"""Groups of sources that one unity file may include (cmake/TesseraUnity.cmake).

    unity_groups.py SIZE < LINES     LINES: "TARGET<tab>FILE"; prints "TARGET<tab>GROUP<tab>FILE"

Files in one translation unit share what is local to a file: anonymous namespaces, static functions, constants, macros. Two files of
which one declares such a name and the other declares it, too, uses it unqualified, or includes a header that declares it, do not come into
the same group. Names are found by
their form, without a compiler: what that overlooks fails to compile, and gets SKIP_UNITY_BUILD_INCLUSION or another name.
"""
import functools, pathlib, re, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "structure"))
from cpp import plain

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.M)
MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.M)
UNQUALIFIED = re.compile(r"(?<![\w.:>])([A-Za-z_]\w*)|(?<=[^-]>)([A-Za-z_]\w*)")
TYPE = re.compile(r"(?:typedef\s+)?(?:struct|class|union|enum(?:\s+(?:class|struct))?)\s+(?:alignas\([^)]*\)\s*)?(\w+)\s*(?:final\s*)?(?::[^:].*)?$", re.S)
LOCAL = re.compile(r"(?:inline\s+)?(?:static|constexpr|const|using|namespace)\b")
NAMESPACE = re.compile(r"(?:inline\s+)?namespace\b[^=]*$|extern\s*\"\"$")


def without_template(head):
    """The declaration behind "template <...>"."""
    while head.startswith("template"):
        depth = 0
        for at, c in enumerate(head):
            depth += (c == "<") - (c == ">")
            if c == ">" and depth == 0:
                head = head[at + 1:].lstrip()
                break
        else:
            return head
    return head


def declared(head):
    """(name, kind, text) of a declaration at namespace scope, or None: kinds are using, alias, type, function and value."""
    head = re.sub(r"\[\[.*?\]\]", "", head, flags=re.S).strip()
    head = without_template(head)
    if head.startswith("using namespace"):
        return None
    if m := re.match(r"(?:using|namespace)\s+(\w+)\s*=", head):
        return m[1], "alias", " ".join(head.split())
    if m := re.match(r"using\s+[\w:]*?(\w+)$", head):
        return m[1], "using", " ".join(head.split())
    if m := TYPE.match(head):
        return m[1], "type", head
    before = re.match(r"[^(=\[{]*", head)[0]
    if "operator" in before or not (m := re.search(r"(::\s*)?\b([A-Za-z_]\w*)\s*$", before)) or m[1] or not re.search(r"[\s*&>][A-Za-z_]\w*\s*$", before):
        return None
    return m[2], "function" if head[len(before):].startswith("(") else "value", head


def declarations(text):
    """(name, kind, text, local) of each declaration at namespace scope; local: whether other files do not see it."""
    for name in MACRO.findall(text):
        yield name, "macro", "", True
    code = plain(text)
    scopes, begin, depth = [], 0, 0  # scopes: True for anonymous namespaces; depth: of braces inside a declaration
    for m in re.finditer(r"[{};]", code):
        c = m[0]
        if depth == 0:
            head = code[begin:m.start()].strip()
            if c == "}" or c == "{" and NAMESPACE.match(head):
                if c == "{":
                    scopes.append(head == "namespace")
                elif scopes:
                    scopes.pop()
                begin = m.end()
                continue
            if found := declared(head):
                yield *found, any(scopes) or LOCAL.match(without_template(head)) is not None
        depth += (c == "{") - (c == "}")
        if depth == 0:
            begin = m.end()


def local_names(text):
    """{name: (kind, text)} of what a source declares for itself, and {name: called} of what it uses unqualified."""
    names = {name: (kind, head) for name, kind, head, local in declarations(text) if local}
    code = plain(text)
    used = {}
    for m in UNQUALIFIED.finditer(code):
        name = m[1] or m[2]
        used[name] = used.get(name, False) or code[m.end():m.end() + 1] == "("
    return names, used


@functools.cache
def header(path):
    """The types and constants that a header of the project declares, and the headers that it includes."""
    if not (ROOT / path).is_file():
        return set(), []
    text = (ROOT / path).read_text(encoding="utf-8")
    return {name for name, kind, _, _ in declarations(text) if kind in ("type", "value", "alias")}, INCLUDE.findall(text)


def of_headers(waiting):
    """The types and constants of these headers and those that they include."""
    names, seen, waiting = set(), set(), list(waiting)
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.add(path)
            own, included = header(path)
            names |= own
            waiting += included
    return names


def read(file):
    """local_names of a source; what its headers declare counts as used."""
    text = pathlib.Path(file).read_text(encoding="utf-8")
    names, used = local_names(text)
    return names, dict.fromkeys(of_headers(INCLUDE.findall(text)), False) | used


def clash(a, b):
    """Whether a local name of file `a` would be taken for another in file `b`."""
    (names, _), (others, used) = a, b
    for name, (kind, text) in names.items():
        if name in others:
            if kind not in ("using", "alias") or others[name] != (kind, text):
                return True
        elif kind != "using" and name in used and (kind != "function" or used[name]):
            return True
    return False


def groups(files, size, read=read):
    """Lists of at most `size` files, of about the same length, none of which clash; `read` maps a file to its names."""
    count = -(-len(files) // size)
    limit = -(-len(files) // max(count, 1))
    made = []
    known = {file: read(file) for file in files}
    for file in files:
        for group in made:
            if len(group) < limit and not any(clash(known[file], known[g]) or clash(known[g], known[file]) for g in group):
                group.append(file)
                break
        else:
            made.append([file])
    return made


def main():
    targets = {}
    for line in sys.stdin.read().splitlines():
        target, file = line.split("\t")
        targets.setdefault(target, []).append(file)
    for target, files in targets.items():
        for at, group in enumerate(groups(files, int(sys.argv[1]))):
            for file in group:
                print(f"{target}\t{at}\t{file}")


if __name__ == "__main__":
    main()
