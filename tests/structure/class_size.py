#!/usr/bin/env python3
"""Check that no class declares more than 40 member functions. A class with more does several things: it is divided along the flow of
its data. Constructors, destructors, operators and what is `= default` or `= delete` are not counted; a nested class counts for itself.

    class_size.py SOURCE_DIRECTORY [--list]

--list prints the largest ones.
"""
import os, re, sys
from cpp import closing, plain, sources

MOST = 40

HEAD = re.compile(r"\b(?<!enum )(?:class|struct)\s+(?:\[\[\w+\]\]\s*)?([\w:]+)\s*(?:final\s*)?(?::[^;{}()]*)?\{")
NOT_A_FUNCTION = re.compile(r"^\s*(friend|using|typedef|static_assert|enum|struct|class|union)\b")

def members(body):
    """Declarations right in a class's body, without what stands in their braces."""
    out, begin, i, parens = [], 0, 0, 0
    while i < len(body):
        if body[i] == "(": parens += 1
        elif body[i] == ")": parens -= 1
        elif body[i] == "{" and parens == 0:
            end = closing(body, i, "{}")
            text = body[begin:i]
            rest = re.match(r"\s*[;,]", body[end:])
            if rest or HEAD.search(body[begin:i + 1]) or "=" in text and "(" not in text:  # an initializer, or a type
                body = body[:i] + body[end:]
                continue
            out.append(text)
            i = begin = end
            continue
        elif body[i] == ";" and parens == 0:
            out.append(body[begin:i])
            begin = i + 1
        i += 1
    return out

def is_function(declaration, name):
    d = re.sub(r"\b(public|private|protected)\s*:", " ", declaration)
    d = re.sub(r"\[\[.*?\]\]", " ", d, flags=re.S)
    if re.search(r"\boperator\b", d) or re.search(r"=\s*(default|delete)\s*$", d): return False
    d = re.sub(r"^\s*template\b", " ", d)
    before = None
    while before != d: before, d = d, re.sub(r"<[^<>;]*>", " ", d)  # std::function<void()> is no function
    if NOT_A_FUNCTION.match(d): return False
    m = re.match(r"([^(=]*?)([~\w]+)\s*\(", d, re.S)
    return bool(m) and m[2].lstrip("~") != name and bool(m[1].strip())

def classes(text):
    for m in HEAD.finditer(text):
        name = m[1].split("::")[-1]
        body = text[m.end() - 1:closing(text, m.end() - 1, "{}")][1:-1]
        yield m[1], sum(is_function(d, name) for d in members(body))

def main():
    root, found = sys.argv[1], {}
    for path in sources(root):
        rel = os.path.relpath(path, root)
        if rel.startswith("tests/"): continue
        for name, count in classes(plain(open(path, encoding="utf-8").read())):
            found[f"{rel}:{name}"] = max(count, found.get(f"{rel}:{name}", 0))
    if "--list" in sys.argv:
        for where, count in sorted(found.items(), key=lambda x: -x[1])[:20]: print(f"{count:4} {where}")
    problems = [f"{where}: {count} member functions, {MOST} allowed; divide it along the flow of its data"
                for where, count in found.items() if count > MOST]
    print("\n".join(problems) or f"{len(found)} classes, none with more than {MOST} member functions")
    sys.exit(1 if problems else 0)

if __name__ == "__main__": main()
