#!/usr/bin/env python3
"""Check that comments, messages and pages use the field's terms. WORDS has what is not written, and what is written instead.

    words.py SOURCE_DIRECTORY

A line that quotes such a word on purpose (a test of old names) ends in "words: allowed".
"""
import glob, os, re, sys

WORDS = {
    r"too dear|dear(er|est)\b": "too expensive, most expensive",
    r"one by one": "unfused; singly",
    r"made up\b": "random",
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
FOLDERS = ("graph", "frontend", "fusion", "codegen", "runtime", "api", "serving", "tools", "docs")
# Not checked yet.
PATTERN = re.compile("|".join(f"(?P<w{i}>{w})" for i, w in enumerate(WORDS)), re.I)
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def prose(path, line):
    """The comment and the strings of a line; of a page all but code."""
    if path.endswith(".md"): return re.sub(r"`[^`]*`", "", line)
    mark = "#" if path.endswith(".py") else "//"
    plain = STRING.sub(lambda m: "_" * len(m[0]), line)
    at = plain.find(mark)
    comment = line[at:] if at >= 0 else line if re.match(r"\s*/?\*", line) else ""
    if not path.endswith(".py"): comment += " ".join(re.findall(r"/\*.*?\*/", plain[:at] if at >= 0 else plain))
    return comment + " " + " ".join(STRING.findall(line[:at] if at >= 0 else line))


def main():
    root, problems, files = sys.argv[1], [], 0
    paths = [f"{root}/{f}" for f in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + [p for f in FOLDERS for p in glob.glob(f"{root}/{f}/**/*", recursive=True)]
    for path in sorted(paths):
        if not path.endswith((".h", ".cpp", ".py", ".md")): continue
        files += 1
        for n, line in enumerate(open(path, encoding="utf-8"), 1):
            if line.rstrip().endswith("words: allowed"): continue
            for m in PATTERN.finditer(prose(path, line)):
                instead = list(WORDS.values())[int(m.lastgroup[1:])]
                problems.append(f"{os.path.relpath(path, root)}:{n}: '{m[0]}': write {instead}")
    print("\n".join(problems) or f"{files} files in the field's terms")
    sys.exit(1 if problems else 0)


if __name__ == "__main__": main()
