#!/usr/bin/env python3
"""Makes the pictures of the report's page for the documents: four models in headless Chromium, as PNG of at most 256 colours.

    tools/setup --browser && report_pictures.py TESSERA MODELS FOLDER      # build/bin/tessera models docs/pictures
"""
import io
import pathlib
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
            out = io.BytesIO()
            Image.open(raw).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE).save(out, "PNG", optimize=True)
            pathlib.Path(folder, f"{name}.png").write_bytes(out.getvalue())
            print(f"{name}.png: {len(out.getvalue()) // 1000} kB")


if __name__ == "__main__":
    main()
