#!/usr/bin/env python3
"""Check the documents: links lead somewhere, pages are at most two screens, all of docs/ is short enough to be read, the page of
measurements is what its data give, and the files of docs/walkthrough.md have the functions that it names. A page that a command writes says so in its first line, "<!-- generated: COMMAND -->": nobody reads
it from end to end, so that its length does not count.

    docs.py SOURCE_DIRECTORY
"""
import glob, os, re, subprocess, sys

WORDS, PAGE_WORDS, PAGE_LINES, COLUMNS = 15500, 1100, 130, 170


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def walkthrough(root):
    """Problems of the rows "| step | `file`, `file` | `function`, `function` |": a file without a path is beside the one before it. Each file
    defines one of the functions at least, and each function stands in one."""
    problems, rows = [], 0
    for line in open(f"{root}/docs/walkthrough.md", encoding="utf-8"):
        cells = [re.findall(r"`([^`]+)`", c) for c in line.split("|")]
        if len(cells) != 5 or not cells[2]: continue
        rows += 1
        folder, found = "", set()
        for file in cells[2]:
            folder = os.path.dirname(file) or folder
            path = f"{root}/{folder}/{os.path.basename(file)}"
            text = open(path, encoding="utf-8").read() if os.path.exists(path) else ""
            names = {f for f in cells[3] if re.search(rf"(?<![\w:]){re.escape(f)}\(", text)}
            if not names: problems.append(f"docs/walkthrough.md: {folder}/{os.path.basename(file)} has no function {' or '.join(cells[3])}")
            found |= names
        problems += [f"docs/walkthrough.md: no file of its row has {f}" for f in cells[3] if f not in found and not problems]
    return problems if rows else ["docs/walkthrough.md: no row names a function"]


def quoted_accuracy(root):
    """Problems of what docs/schedules.md says of the cost model, by the row of generated kernels in docs/price-accuracy.md."""
    row = re.search(r"^\| kernel \| (\d+) \| ([\d.]+) \| (\d+) \|", open(f"{root}/docs/price-accuracy.md", encoding="utf-8").read(), re.M)
    said = " ".join(open(f"{root}/docs/schedules.md", encoding="utf-8").read().split())
    expected = [f"{row[3]} of {row[1]} generated kernels", f"predicted / measured is {row[2]} "]
    return [f"docs/schedules.md: does not say '{e}', as docs/price-accuracy.md does" for e in expected if e not in said]


def main():
    root, problems = sys.argv[1], []
    pages = sorted(glob.glob(f"{root}/docs/*.md"))
    readmes = glob.glob(f"{root}/*.md") + [f"{folder}/{f}" for top in glob.glob(f"{root}/*/") if not re.match(r"(build|dist)\b", os.path.basename(top[:-1]))
                                            for folder, _, files in os.walk(top) for f in files if f.endswith(".md")]  # build folders have links to all of this
    total = generated = 0
    for path in sorted(set(readmes + pages)):
        name, text = os.path.relpath(path, root), open(path, encoding="utf-8").read()
        prose = re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)\s]+)\)", prose):
            if re.match(r"https?:|mailto:", target): continue
            file, _, fragment = target.partition("#")
            other = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
            if not os.path.exists(other): problems.append(f"{name}: no file {target}")
            elif fragment and fragment not in map(anchor, re.findall(r"^#+ (.*)$", open(other, encoding="utf-8").read(), re.M)): problems.append(f"{name}: no heading {target}")
        if path not in pages: continue
        if re.match(r"<!-- generated: .+ -->\n", text):
            generated += 1
            continue
        words, lines = len(text.split()), text.splitlines()
        total += words
        if words > PAGE_WORDS: problems.append(f"{name}: {words} words, at most {PAGE_WORDS}")
        if len(lines) > PAGE_LINES: problems.append(f"{name}: {len(lines)} lines, at most {PAGE_LINES}")
        problems += [f"{name}:{n}: {len(l)} columns, at most {COLUMNS}" for n, l in enumerate(lines, 1) if len(l) > COLUMNS and not l.startswith("|")]
    if total > WORDS: problems.append(f"docs: {total} words, at most {WORDS}")

    for folder in ("base", "symbols", "measure", "graph", "frontend", "fusion", "codegen", "runtime", "api", "serving", "tools", "python", "tests", "cmake"):
        for path in glob.glob(f"{root}/{folder}/**/*", recursive=True):
            if not path.endswith((".h", ".cpp", ".py", ".md", ".txt", ".cmake")): continue
            for page in re.findall(r"docs/([\w-]+\.(?:md|json))", open(path, encoding="utf-8", errors="replace").read()):
                if not os.path.exists(f"{root}/docs/{page}"): problems.append(f"{os.path.relpath(path, root)}: no page docs/{page}")

    problems += walkthrough(root) + quoted_accuracy(root)
    stale = subprocess.run([sys.executable, f"{root}/tools/benchmark/page.py", "--check"], capture_output=True, text=True)
    if stale.returncode: problems.append(stale.stderr.strip())
    print("\n".join(problems) or f"{len(pages)} pages ({generated} generated), {total} words, every link resolves")
    sys.exit(1 if problems else 0)


if __name__ == "__main__": main()
