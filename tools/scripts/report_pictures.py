#!/usr/bin/env python3
"""Makes the pictures of the report for the documents: the first screen of gpt2, and the pages of four models, in headless Chromium, as
PNG of at most 256 colours.

    tools/setup --browser && report_pictures.py TESSERA MODELS FOLDER      # build/bin/tessera models docs/pictures
"""
import html
import io
import pathlib
import re
import subprocess
import sys
import tempfile

from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "browser"))
from chromium import Chromium  # noqa: E402

GPU = ["--device", "cuda", "--arch", "sm_90a", "--target", "h200"]
# name, model, options, width, dark, what is shown
PICTURES = [
    ("bert", "bert.dynamo.f32.onnx", ["--shape", "s10=1", "--shape", "s12=128", "--shape", "s86=1"], 1280, False, ""),
    ("gpt2", "gpt2.dynamo.f16.onnx", [*GPU, "--shape", "s10=1", "--shape", "s21=128"], 1280, True,
     "choose(steps.find(s => s.kind === 'attention' && placeInLayer.has(s.id)).id)"),
    ("resnet50", "resnet50.dynamo.f32.onnx", ["--shape", "s10=1"], 1280, False, "byId('steps').scrollIntoView()"),
    ("llama", "llama.dynamo.f16.onnx", [*GPU, "--shape", "s10=1", "--shape", "s21=128"], 390, True, ""),
]


STYLES = {"1": "font-weight: bold", "2": "opacity: .65", "31": "color: #f47067", "32": "color: #6bc46d", "33": "color: #daaa3f", "36": "color: #56d4dd"}
SCREEN = """<!DOCTYPE html><meta charset="utf-8"><style>body { margin: 0; background: #1c2128; color: #cdd9e5 }
pre { margin: 14px; font: 13px/1.35 "DejaVu Sans Mono", monospace }</style><pre>%s</pre><script>performance.mark("page done")</script>"""


def screen(command):
    """The command's output on a terminal, as a page."""
    text = subprocess.run([*command, "--color", "always"], check=True, capture_output=True, text=True).stdout
    line = html.escape(f"$ tessera explain {pathlib.Path(command[2]).name} {' '.join(command[3:])}") + "\n"
    shown = re.sub("\x1b\\[([0-9;]*)m", lambda m: "</span>" if m[1] in ("", "0") else f'<span style="{"; ".join(STYLES.get(c, "") for c in m[1].split(";"))}">', html.escape(text))
    return SCREEN % (line + shown)


def keep(raw, out):
    """The picture, with fewer colours."""
    data = io.BytesIO()
    Image.open(raw).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE).save(data, "PNG", optimize=True)
    out.write_bytes(data.getvalue())
    print(f"{out.name}: {len(data.getvalue()) // 1000} kB")


def main():
    tessera, models, folder = sys.argv[1:4]
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work, Chromium() as browser:
        for name, model, options, width, dark, shown in PICTURES:
            file, raw = pathlib.Path(work, f"{name}.html"), pathlib.Path(work, f"{name}.png")
            subprocess.run([tessera, "explain", f"{models}/{model}", "--format", "html", "-o", file, *options], check=True)
            page = browser.open(file, width, dark=dark)
            if shown:
                page.value(f"void ({shown})")
            page.picture(raw)
            page.close()
            keep(raw, pathlib.Path(folder, f"{name}.png"))
        file, raw = pathlib.Path(work, "screen.html"), pathlib.Path(work, "screen.png")
        file.write_text(screen([tessera, "explain", f"{models}/gpt2.dynamo.f32.onnx", "--device", "cpu", "--target", "avx512", "--shape", "s10=1,s21=128"]), encoding="utf-8")
        page = browser.open(file, 860, 830)
        page.picture(raw)
        page.close()
        keep(raw, pathlib.Path(folder, "first_screen.png"))


if __name__ == "__main__":
    main()
