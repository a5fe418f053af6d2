#!/usr/bin/env python3
"""Check the documents: links lead somewhere, pages are at most two screens, all of docs/ is short enough to be read, and the page of
measurements is what its data give. A page that a command writes says so in its first line, "<!-- generated: COMMAND -->": nobody reads
it from end to end, so that its length does not count.

    docs.py SOURCE_DIRECTORY
"""
import glob, os, re, subprocess, sys

WORDS, PAGE_WORDS, PAGE_LINES, COLUMNS = 15500, 1100, 130, 170


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


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

    for folder in ("graph", "frontend", "fusion", "codegen", "runtime", "api", "serving", "tools", "python", "tests", "cmake"):
        for path in glob.glob(f"{root}/{folder}/**/*", recursive=True):
            if not path.endswith((".h", ".cpp", ".py", ".md", ".txt", ".cmake")): continue
            for page in re.findall(r"docs/([\w-]+\.(?:md|json))", open(path, encoding="utf-8", errors="replace").read()):
                if not os.path.exists(f"{root}/docs/{page}"): problems.append(f"{os.path.relpath(path, root)}: no page docs/{page}")

    stale = subprocess.run([sys.executable, f"{root}/tools/benchmark/page.py", "--check"], capture_output=True, text=True)
    if stale.returncode: problems.append(stale.stderr.strip())
    print("\n".join(problems) or f"{len(pages)} pages ({generated} generated), {total} words, every link resolves")
    sys.exit(1 if problems else 0)


if __name__ == "__main__": main()
