"""Tables, means and bars from the rows that run.py makes."""
import json, math

LABELS = {"copy": "copy", "eager": "PyTorch eager", "compile": "TorchInductor", "max-autotune": "TorchInductor max-autotune", "onnxruntime": "ONNX Runtime", "library": "Tessera with libraries' products alone"}


def time_of(row, name, key="median_us"):
    return row["times"].get(name, {}).get(key)


def ratio(row, peer, key="median_us"):
    """Tessera's time over the peer's; below 1 Tessera is faster."""
    mine, other = time_of(row, "tessera", key), time_of(row, peer, key)
    return mine / other if mine and other else None


def geometric_mean(values):
    values = [v for v in values if v]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def format_us(us):
    return "-" if us is None else f"{us:.1f}" if us < 1e4 else f"{us:.0f}"


def format_ratio(r):
    return "-" if r is None else f"{r:.2f}"


def bar(share, width=20):
    """A bar of `width` characters, which are the ceiling; `share` of them are filled."""
    filled = max(0, min(width, round(share * width)))
    return "█" * filled + "░" * (width - filled)


def line(row, peers):
    """One line on the screen for a row."""
    text = f"{row['case']:46s} {row['bytes'] / 1e6:7.1f} MB  {format_us(time_of(row, 'tessera')):>8s} us"
    copy = ratio(row, "copy")
    if copy: text += f" {100 / copy:4.0f} %"
    for p in peers:
        r = ratio(row, p)
        text += f"  {p} {format_us(time_of(row, p))} ({format_ratio(r)})"
    if row.get("wrong"): text += f"  WRONG {row['wrong']}"
    for name, why in row.get("failed", {}).items(): text += f"  [{name}: {why}]"
    return text


def spread(row):
    """How far the rounds of the noisiest contender lie apart: largest over smallest median."""
    return max((max(t["rounds_us"]) / min(t["rounds_us"]) for t in row["times"].values()), default=1.0)


def means(rows, peers):
    """Lines about all rows: the memory-bound ones, then those with products."""
    out = []
    for what, chosen in (("memory-bound cases", [r for r in rows if not r["flops"]]), ("cases with products", [r for r in rows if r["flops"]])):
        timed = [r for r in chosen if "tessera" in r["times"]]
        if not timed: continue
        for p in peers:
            both = [r for r in timed if ratio(r, p)]
            if not both: continue
            worst = max(both, key=lambda r: ratio(r, p))
            out.append(f"{len(both)} {what}, over {LABELS[p]}: geometric mean {geometric_mean(ratio(r, p) for r in both):.3f} "
                       f"(of the smallest times {geometric_mean(ratio(r, p, 'min_us') for r in both):.3f}); worst {ratio(worst, p):.2f}, {worst['case']}")
    noisy = [r for r in rows if r["times"] and spread(r) > 1.15]
    if noisy: out.append(f"rounds differ by more than 15 % in {len(noisy)} of {len(rows)} cases: " + ", ".join(f"{r['case']} ({spread(r):.2f})" for r in sorted(noisy, key=spread, reverse=True)[:5]))
    return out


def sweep_summary(rows, peer, large=8e6, bound=1.15):
    """The summary by which a sweep is judged: right or wrong, the ratio to `peer` by family, the worst points."""
    wrong = [r for r in rows if r.get("wrong")]
    out = [f"{len(rows) - len(wrong)} of {len(rows)} points right" + (":" if wrong else "")]
    out += [f"  {r['case']}: {r['wrong']}" for r in wrong]
    timed = [r for r in rows if ratio(r, peer)]
    big = [r for r in timed if r["bytes"] >= large]
    if not timed: return out
    out.append(f"over {LABELS[peer]}: geometric mean {geometric_mean(ratio(r, peer) for r in timed):.3f} of {len(timed)} points"
               + (f", {geometric_mean(ratio(r, peer) for r in big):.3f} of the {len(big)} that move {large / 1e6:.0f} MB or more" if big else ""))
    slow = [r for r in big if ratio(r, peer) > bound]
    out.append(f"{len(slow)} of those are slower than {bound}")
    out.append("by family (mean, worst, points): " + "; ".join(
        f"{f} {geometric_mean(x):.2f} {max(x):.2f} {len(x)}" for f, x in sorted({r["family"]: [ratio(q, peer) for q in timed if q["family"] == r["family"]] for r in timed}.items())))
    out.append("worst:")
    out += [f"  {ratio(r, peer):.2f}  {r['case']}, {r['bytes'] / 1e6:.1f} MB: {format_us(time_of(r, 'tessera'))} us, {peer} {format_us(time_of(r, peer))}, copy {format_us(time_of(r, 'copy'))}"
            for r in sorted(timed, key=lambda r: -ratio(r, peer))[:10]]
    return out


def markdown(rows, peers, machine, notes):
    others = [p for p in peers if p != "copy"]
    tuned = any("tuning" in r for r in rows)
    head = ["case", "MB", "Tessera µs"] + [f"{LABELS[p]} µs" for p in peers] + [f"over {LABELS[p]}" for p in others] + ["default over tuned"] * tuned + (["share of the copy's speed"] if "copy" in peers else [])
    out = [f"Measured on {machine.get('name', machine['device'])}" + (f", {machine['threads']} threads" if "threads" in machine else "")
           + "".join(f", {k} {v}" for k, v in machine["peers"].items()) + "; medians of rounds in turn.", "", "| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    for r in rows:
        if "tessera" not in r["times"]: continue
        cells = [r["case"], f"{r['bytes'] / 1e6:.0f}", format_us(time_of(r, "tessera"))] + [format_us(time_of(r, p)) for p in peers] + [format_ratio(ratio(r, p)) for p in others]
        if tuned: cells.append(format_ratio(r.get("tuning", {}).get("ratio")))
        if "copy" in peers:
            share = 1 / ratio(r, "copy") if ratio(r, "copy") else None
            cells.append("-" if share is None or r["flops"] else f"`{bar(share)}` {share:.2f}")
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out + [""] + [f"- {n}" for n in notes]) + "\n"


def write_json(path, rows, machine, notes):
    with open(path, "w") as f: json.dump({"machine": machine, "notes": notes, "cases": rows}, f, indent=1)
