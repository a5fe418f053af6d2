"""A case tuned by the command next to the library: how far the default schedules are from the fastest ones found."""
import json, os, subprocess
from .report import format_ratio, format_us
from .tessera import TesseraError

NEAR = 1.10  # of the default schedules' time over the tuned ones': what a choice without tuning should keep


def find_command(library):
    """The command in the build folder or the bundle that the library is part of."""
    path = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(library))), "bin", "tessera")
    if not os.path.exists(path): raise TesseraError(f"tuning takes the command {path}, which is not there: build it (tools/build release)")
    return path


class Tuner:
    """`folder` holds the cache of kernels and the records, which are no one else's: nothing is known before, and nothing is changed for others."""
    def __init__(self, library, device, threads, folder):
        self.command, self.device, self.threads = find_command(library), device, threads
        self.cache = os.path.join(folder, "tuned")

    def __call__(self, path, seconds):
        """Tunes the model of a row of the results: of all kernels that were measured, each as often as the model has it, the times of the default schedules and of
        the fastest, and their ratio; why others were not."""
        options = ["--device", self.device, "--threads", str(self.threads), "--budget", str(seconds), "--cache-dir", self.cache, "--json", "-"]
        try:
            r = subprocess.run([self.command, "tune", path, *options], capture_output=True, text=True, timeout=60 + 2 * seconds)
            found = json.loads(r.stdout)
            kernels = found["kernels"]
        except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as e:
            return {"failed": f"{type(e).__name__}: {str(e).strip().splitlines()[0] if str(e).strip() else ''}"[:300]}
        timed = [k for k in kernels if k["outcome"] != "left"]
        out = {"kernels": len(kernels), "measured": len(timed), "left": sorted({k["note"] for k in kernels if k["outcome"] == "left"}),
               "wrong": found["wrong"], "schedules": [k["schedule"] for k in timed], "seconds": found["seconds"],
               "candidates": [k["measured"] for k in timed]}
        if timed:
            out["default_us"], out["tuned_us"] = (sum(k["uses"] * k[t] for k in timed) for t in ("default_us", "tuned_us"))
            out["ratio"] = out["default_us"] / out["tuned_us"] if out["tuned_us"] > 0 else 1.0
        return out


def text(row):
    """The text for the line of a case."""
    t = row.get("tuning")
    if not t: return ""
    if "ratio" in t: return f"  tuned {format_us(t['tuned_us'])} ({format_ratio(t['ratio'])})" + (f" {t['wrong']} WRONG" if t["wrong"] else "")
    return f"  [tuned: {t.get('failed') or '; '.join(t['left']) or 'no kernels'}]"


def summary(rows):
    """Lines about all rows: how many of the default choices are as good as tuned ones, and which are not."""
    tried = [r for r in rows if "tuning" in r]
    timed = [r for r in tried if "ratio" in r["tuning"]]
    if not tried: return []
    far = sorted((r for r in timed if r["tuning"]["ratio"] > NEAR), key=lambda r: -r["tuning"]["ratio"])
    out = [f"default against tuned: {len(timed) - len(far)} of {len(timed)} within {100 * (NEAR - 1):.0f} %, {len(tried) - len(timed)} not tuned"]
    out += [f"  {format_ratio(r['tuning']['ratio'])}  {r['case']}: {format_us(r['tuning']['default_us'])} us, tuned {format_us(r['tuning']['tuned_us'])}, {'; '.join(r['tuning']['schedules'])}" for r in far[:10]]
    wrong = [r["case"] for r in tried if r["tuning"].get("wrong")]
    if wrong: out.append("schedules that yield something else: " + ", ".join(wrong))
    return out
