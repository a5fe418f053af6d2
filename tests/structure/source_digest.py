#!/usr/bin/env python3
"""Check that the digest of sources, by which kept plans are valid, ignores comments and nothing else.

    source_digest.py SOURCE_DIRECTORY
"""
import os, subprocess, sys, tempfile

SCRIPT = os.path.join(sys.argv[1], "cmake", "SourceDigest.cmake")
CODE = '// A file.\nint f() {\n  // why\n  return 1; // because\n}\nconst char* where = "http://a"; // b\n'


def digest(text, name="a.cpp"):
    with tempfile.TemporaryDirectory() as root:
        os.mkdir(os.path.join(root, "x"))
        with open(os.path.join(root, "x", name), "w") as f: f.write(text)
        out = os.path.join(root, "out")
        subprocess.run(["cmake", f"-DROOT={root}", "-DFOLDERS=x", "-DSYMBOL=k", f"-DOUTPUT={out}", "-P", SCRIPT], check=True)
        return open(out).read()


def main():
    wrong = []
    for old, new in (("// A file.\n", ""), ("// A file.", "// Another."), ("  // why\n", "  // why\n  // and more\n"), (" // because", "")):
        if digest(CODE) != digest(CODE.replace(old, new)): wrong.append(f"the comment {old!r} counts")
    for old, new in (("return 1", "return 2"), ("http://a", "http://b"), ('"; // b', '", d = 0; // b')):
        if digest(CODE) == digest(CODE.replace(old, new)): wrong.append(f"{old!r} does not count")
    if digest(CODE, "a.txt") == digest(CODE.replace("// A file.", "//"), "a.txt"): wrong.append("a line of data does not count")
    print(*wrong, sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__": main()
