#!/usr/bin/env python3
"""The targets that tests need, one a line, by the labels that tessera_about gave them (cmake/TesseraTargets.cmake).

    needed_targets.py BUILD_FOLDER [LABEL...]     LABEL: a regular expression; tests that match all of them
"""
import json, subprocess, sys

def main():
    selected = [a for label in sys.argv[2:] for a in ("-L", label)]
    r = subprocess.run(["ctest", "--test-dir", sys.argv[1], "--show-only=json-v1", *selected], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    tests = json.loads(r.stdout[r.stdout.index("{"):])["tests"]
    labels = {label for t in tests for p in t.get("properties", []) if p["name"] == "LABELS" for label in p["value"]}
    print("\n".join(sorted(label.removeprefix("build=") for label in labels if label.startswith("build="))))

if __name__ == "__main__": main()
