#!/usr/bin/env python3
"""Check that comments, messages, pages and identifiers use the field's terms, and that comments have a subject. WORDS and NAMES have what is
not written, and what is written instead.

    words.py SOURCE_DIRECTORY

A line that has such a word on purpose (a test of old names) ends in "words: allowed".
"""
import glob, os, re, sys

WORDS = {
    r"too dear|dear(er|est)\b": "too expensive, most expensive",
    r"one by one": "unfused; singly",
    r"made up\b": "random; invented",
    r"to and fro\b": "serpentine order",
    r"under way": "in flight; current",
    r"rules' (schedule|choice|plan|kernel)s?": "default schedule, cost-model choice",
    r"\d operators by reference|kernels? of its own": "CPU fallback; separate kernel",
    r"\bbeside\b": "broadcast operands; next to; against",
    r"\btold\b|\btells?\b": "reported, notified; reports, gives",
    r"\bask(s|ed)? for\b": "requests, requires, queries",
    r"\bsettles?\b": "waits",
    r"\bwish(es)?\b": "request",
    r"\bthe usual\b|\blean\b": "the number or the rule",
    r"passing loads|lasting loads|leaving loads": "no_allocate, evict_last, evict_first",
    r"\bmeetings?\b": "grid barrier",
    r"\b(rounds?|loaded|loads) ahead\b": "prefetched, num_stages",
}
NAMES = {
    r"\w*too_dear\w*|dear": "too_expensive",
    r"kMost\w*": "kMax...",
    r"team|teams|team_|\w*_teams?|BlockTeam": "cooperative_blocks, cooperative",
    r"(counters, |kernel\.|[kl]\.)boxes": "mailboxes; tiles, ranges",
    r"Walk|walk_|TreeWalk": "the loop or the traversal that it is",
    r"\w*Questions?|questions?_|patience_?|kPatience": "query; the bound that it is",
    r"ask|asks|asked|asking|ask_\w+|Asked": "query, requested",
    r"GraphUnderWay": "PartialGraph",
    r"settle(?!_tuning\b)\w*": "assign, bind, wait",  # Session::settle_tuning() is a public name
}
FOLDERS = ("base", "symbols", "measure", "graph", "frontend", "fusion", "codegen", "runtime", "api", "report", "serving", "python", "tools", "tests", "cmake", "examples", "docs")

PATTERN = re.compile("|".join(f"(?P<w{i}>{w})" for i, w in enumerate(WORDS)), re.I)
IDENTIFIER = re.compile("|".join(rf"(?P<w{i}>\b(?:{w})\b)" for i, w in enumerate(NAMES)))
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
HASH = (".py", ".cmake", ".txt")
SUBJECTLESS = re.compile(r'^\s*(?://+!?|/\*\*?|#|""")\s*(What|Of)\b')
COMMENT = re.compile(r"^\s*(?://+!?|#)\s*(.*)")


def parts(path, line):
    """The code of a line without strings and comments, its comment, and its strings."""
    plain = STRING.sub(lambda m: "_" * len(m[0]), line)
    at = plain.find("#" if path.endswith(HASH) else "//")
    code, comment = (plain[:at], line[at:]) if at >= 0 else (plain, "")
    if path.endswith(HASH): return code, comment, STRING.findall(line[: len(code)])
    if at < 0 and re.match(r"\s*/?\*", line): return "", line, []
    return re.sub(r"/\*.*?\*/", " ", code), comment + " ".join(re.findall(r"/\*.*?\*/", code)), STRING.findall(line[: len(code)])


def check(path, lines):
    """Each problem of a file, with the number of its line."""
    names = path.endswith((".h", ".hpp", ".cpp"))
    begins = True  # a comment that begins here begins a paragraph
    for n, line in enumerate(lines, 1):
        comment = COMMENT.match(line)
        if (begins or not comment) and (m := SUBJECTLESS.match(line)) and not path.endswith(".md"):
            yield n, f"a comment begins with '{m[1]}': write a sentence with its subject, or remove it"
        begins = not comment or not comment[1]
        if line.rstrip().endswith("words: allowed"): continue
        if path.endswith(".md"):
            code, prose = "", re.sub(r"`[^`]*`", "", line)
        else:
            code, said, strings = parts(path, line)
            prose = " ".join([said, *strings])
        for pattern, text, words in ((PATTERN, prose, WORDS), (IDENTIFIER, code if names else "", NAMES)):
            for m in pattern.finditer(text): yield n, f"'{m[0]}': write {list(words.values())[int(m.lastgroup[1:])]}"


EXAMPLES = [
    ("a.h", "// What the file says.", "a comment begins with 'What'"), ("a.h", "/// Of each.", "a comment begins with 'Of'"),
    ("a.py", '    """What it is."""', "a comment begins with 'What'"), ("a.cmake", "# Of all.", "a comment begins with 'Of'"),
    ("a.h", "// The first.\n// Of the second.", ""), ("a.h", "// The first.\n//\n// What follows.", "a comment begins with 'What'"),
    ("a.h", "int a; // of the file", ""), ("a.h", "int kMostBytes = 1;", "'kMostBytes': write kMax..."),
    ("a.h", 'f("team");', ""), ("a.h", "// as asked", ""), ("a.cpp", "auto asked = ask();", "'asked': write query"), ("a.h", "task_team = masked;", "'task_team'"),
    ("a.h", "int task = mask;", ""), ("a.py", "x = 1  # too dear", "'too dear': write"), ("a.md", "`settle` it", ""),
]  # path, lines, and the beginning of the first problem


def main():
    for path, text, expected in EXAMPLES:
        found = next((p for _, p in check(path, text.split("\n"))), "")
        if not found.startswith(expected) or bool(found) != bool(expected): sys.exit(f"the check itself is wrong: {text!r} in {path}: {found!r}")
    root, problems, files = sys.argv[1], [], 0
    paths = [f"{root}/{f}" for f in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + [p for f in FOLDERS for p in glob.glob(f"{root}/{f}/**/*", recursive=True)]
    for path in sorted(paths):
        shown = os.path.relpath(path, root)
        if not path.endswith((".h", ".hpp", ".cpp", ".py", ".js", ".md", ".cmake", "CMakeLists.txt")) or shown == "tests/structure/words.py": continue
        files += 1
        problems += [f"{shown}:{n}: {p}" for n, p in check(path, open(path, encoding="utf-8").read().split("\n"))]
    print("\n".join(problems) or f"{files} files in the field's terms")
    sys.exit(1 if problems else 0)


if __name__ == "__main__": main()
