#!/usr/bin/env python3
"""Check that no function has more than 100 lines, from the first one of its declaration to its closing brace: one that has does several things, which
are divided by what each is about, or is a table in disguise. Members, free functions, and lambdas outside of functions are counted.

    function_length.py SOURCE_DIRECTORY [--list]

--list prints the longest ones.
"""
import os, re, sys
from cpp import plain, sources

MOST = 100
FOLDERS = ("codegen/", "measure/", "fusion/", "runtime/", "api/")

SCOPE = re.compile(r'\b(namespace|class|struct|union|enum)\b[^()=]*$|\bextern\s*""\s*$')
BEHIND = r"(?:\b(?:const|noexcept|override|final|mutable|try)\b|&|->[^;{}]*|\s)*$"  # of parameters
LAMBDA, FUNCTION = re.compile(r"\]\s*(\([^{}]*\))?" + BEHIND), re.compile(r"\)" + BEHIND)
NAME = re.compile(r"(?:\[\[[^\]]*\]\]|[^({\[])*?([\w:~]+|operator\W+?)\s*\(")


def kind(head, behind_brace, outside):
    """Whether a brace opens a scope, a function or an initial value. `outside`: what is around it; `behind_brace`: a brace ends before `head`."""
    if outside == "function" or LAMBDA.search(head): return "function"
    if outside == "value": return "value"
    if SCOPE.search(re.sub(r"<[^<>]*>", "", head)): return "scope"
    # A constructor's body may follow `member{value}`.
    return "function" if FUNCTION.search(head) or behind_brace and not head.strip() else "value"


def functions(text):
    """(name, first line, lines) of the functions that are in no other one."""
    start, last, around, open_functions = 0, -1, ["scope"], []  # start: of the declaration; last: the brace or semicolon before
    for m in re.finditer(r"[{};]", text):
        i = m.start()
        if m[0] == "{":
            opened = kind(text[last + 1:i], text[last:last + 1] == "}" and start <= last, around[-1])
            if opened == "function" and around[-1] != "function":
                begin = start if around[-1] == "scope" else last + 1  # a lambda in a table
                open_functions.append(begin + len(text[begin:i]) - len(text[begin:i].lstrip()))
            around.append(opened)
            if opened == "scope": start = i + 1
        elif m[0] == "}" and len(around) > 1:
            closed = around.pop()
            if closed == "function" and around[-1] != "function":
                begin = open_functions.pop()
                name = NAME.match(text[begin:i])
                yield name[1] if name else "lambda", text.count("\n", 0, begin) + 1, text.count("\n", begin, i) + 1
            if closed != "value" and around[-1] == "scope": start = i + 1
        elif around[-1] == "scope": start = i + 1
        last = i


# The counting is checked before the sources are: a text, and the functions of its braces with their lines.
EXAMPLES = [
    ("int f(int a) {\n return a;\n}", [("f", 3)]), ("int f();\nstruct S {\n int g() const {\n  return 1;\n }\n int n{3};\n};", [("g", 3)]),
    ("S::S(int a)\n  : x{a}, y(a) {\n}\nint z;", [("S::S", 3)]), ("S::S(int a) : x{a} {\n}", [("S::S", 2)]),
    ("auto f(A a = {}, int b = 1)\n -> int {\n auto g = [] {\n };\n}", [("f", 5)]), ("const T t[] = {\n {1, 2},\n {3, [](int x) {\n  return x;\n }}};", [("lambda", 3)]),
    ("namespace {\nenum class E : int {\n A\n};\n}", []), ('extern "C" {\nvoid f() {}\n}', [("f", 1)]), ("// f() {\n/* {\n */ int a;", []),
    ("template <class F>\nvoid f(F&& g) noexcept {\n for (int i = 0; i < 3; ++i) {\n  g();\n }\n}", [("f", 6)]),
]


def main():
    for text, wanted in EXAMPLES:
        seen = [(name, lines) for name, _, lines in functions(plain(text))]
        assert seen == wanted, f"the check itself is broken: {text!r} gives {seen}"
    root, found = sys.argv[1], []
    for path in sources(root):
        rel = os.path.relpath(path, root)
        if not rel.startswith(FOLDERS): continue
        found += [(lines, rel, at, name) for name, at, lines in functions(plain(open(path, encoding="utf-8").read()))]
    if "--list" in sys.argv:
        for lines, path, at, name in sorted(found, reverse=True)[:20]: print(f"{lines:4} {path}:{at} {name}")
    problems = [f"{path}:{at}: {name} has {lines} lines, {MOST} allowed; divide it by what its parts are about"
                for lines, path, at, name in found if lines > MOST]
    print("\n".join(problems) or f"{len(found)} functions, none with more than {MOST} lines")
    sys.exit(bool(problems))


if __name__ == "__main__": main()
