#!/usr/bin/env python3
"""Names the licences of what a wheel carries in its metadata (PEP 639): wheel_licences.py WHEEL

The installation put the texts and the SBOM there (tools/scripts/licences.py), after the metadata had been written. What comes next,
auditwheel, writes the sums of RECORD anew.
"""
import json
import pathlib
import re
import sys
import zipfile


def main():
    wheel = pathlib.Path(sys.argv[1])
    changed = wheel.with_suffix(".part")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as new:
        (metadata,) = (n for n in old.namelist() if n.endswith(".dist-info/METADATA"))
        folder = metadata.removesuffix("METADATA")
        bom = json.loads(old.read(f"{folder}sboms/tessera.cdx.json"))
        every = [licence["expression"] for c in [bom["metadata"]["component"], *bom["components"]] for licence in c["licenses"]]
        expression = " AND ".join(dict.fromkeys(part for e in every for part in e.split(" AND ")))
        texts = sorted(n.removeprefix(f"{folder}licenses/") for n in old.namelist() if n.startswith(f"{folder}licenses/") and not n.endswith("/"))
        text = re.sub(r"^License-File: .*\n", "", old.read(metadata).decode(), flags=re.MULTILINE)
        lines = "".join(f"License-File: {t}\n" for t in texts)
        text, count = re.subn(r"^License-Expression: .*\n", lambda _: f"License-Expression: {expression}\n{lines}", text, count=1, flags=re.MULTILINE)
        if count != 1:
            sys.exit(f"error: {metadata} of {wheel} has {count} lines 'License-Expression:', expected is 1; use scikit-build-core 0.11 or newer")
        for entry in old.infolist():
            new.writestr(entry, text if entry.filename == metadata else old.read(entry), zipfile.ZIP_DEFLATED)
    changed.replace(wheel)


if __name__ == "__main__":
    main()
