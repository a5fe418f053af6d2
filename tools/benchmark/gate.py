"""Command line of tools/gate: the recorded suites on the machine at hand, and what is worse than docs/performance.json."""
import argparse, datetime, json, os, statistics, sys, tempfile, time
from . import gate_suites
from .page import NAMES
from .report import geometric_mean

# A row is judged against the first of these peers that both the recorded and the measured row have: the one whose time depends least
# on the host.
NEAREST = ("compile", "graphs", "onnxruntime", "cuda_graph", "eager", "copy")
TAKES = 3  # of a row that looks worse
EPILOG = """A row's figure is Tessera's time over a peer's (TorchInductor, PyTorch eager, ONNX Runtime), both measured here and now: absolute times differ between
machines. A row that is more than --bar worse than the recorded figure is measured again, three times in all; the median of its figures counts.
Exit code 1: a row is worse, wrong, or failed; 2: nothing could be measured.

  tools/gate                                    all suites of the GPU, or of the host where there is none
  tools/gate attention training                 these suites
  tools/gate --update measured.json             also writes what was measured, in the form of docs/performance.json;
                                                tools/benchmark/page.py --merge measured.json takes it into the documentation
"""


def arguments(argv):
    p = argparse.ArgumentParser(prog="tools/gate", description=__doc__.split(": ")[1], epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(gate_suites.SUITES)} (default: all)")
    p.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    p.add_argument("--bar", type=float, default=0.05, help="how much worse a figure may be (default: 0.05, which is 5 %%)")
    p.add_argument("--budget", type=float, help="seconds for everything (default: 480 on a GPU, 600 on a host)")
    p.add_argument("--jobs", type=int, help="subjects that are compiled at a time on a GPU (default: two of three cores, at most 10)")
    p.add_argument("--threads", type=int, default=2, help="of everybody, on a host (default: 2, as recorded)")
    p.add_argument("--recorded", default=os.path.join(gate_suites.ROOT, "docs", "performance.json"), metavar="FILE", help="the figures to compare with")
    p.add_argument("--update", metavar="FILE", help="write the sections that were measured completely; those of the file that were not stay")
    p.add_argument("--machine", help="with --update: card and versions, where the words that this program finds are not enough")
    return p.parse_args(argv)


class Row:
    """One row of a section: the figures over each peer in every take."""
    def __init__(self, section, key):
        self.section, self.key, self.takes, self.failed = section, key, [], {}

    @property
    def name(self):
        return " ".join(k for k in self.key if k)

    def add(self, us, failed):
        """us: microseconds by contender; failed: contender -> why."""
        if "tessera" in us: self.takes.append(us)
        self.failed.update(failed)

    def us(self, contender):
        times = [t[contender] for t in self.takes if contender in t]
        return statistics.median(times) if times else None

    def peers(self):
        return [p for p in dict.fromkeys(p for t in self.takes for p in t) if p != "tessera"]

    def ratio(self, peer):
        """The median over the takes of Tessera's time over the peer's."""
        ratios = [t["tessera"] / t[peer] for t in self.takes if t.get(peer)]
        return statistics.median(ratios) if ratios else None


def recorded_figures(data):
    """{section: {key: {peer: figure}}} of docs/performance.json; sections whose rows have no figures of the kind are left out."""
    out = {}
    for section, s in data.items():
        if section not in gate_suites.SECTIONS: continue
        out[section] = {gate_suites.key_of(r): {p: r[2] / us for p, us in r[3].items() if us} for r in s["rows"]}
    return out


def other_cards(data, sections, card):
    """Lines about sections that another card's figures stand in: what memory bounds has other ratios where memory is slower."""
    return [f"{s}: recorded on another card ({data[s]['machine'].split(',')[0]}): its ratios are no measure of this one's" for s in sections
            if s in data and not data[s]["machine"].removeprefix("one NVIDIA ").startswith(" ".join(card.removeprefix("NVIDIA ").split()[:1]))]


class Judge:
    """The recorded rows, the measured rows, and which of these are worse."""
    def __init__(self, recorded, bar):
        self.recorded, self.bar, self.rows = recorded, bar, {}

    def row(self, section, key):
        return self.rows.setdefault((section, tuple(key)), Row(section, tuple(key)))

    def figure(self, row):
        """(peer, recorded, measured) by the nearest peer; the first is None where nothing is recorded, the last where nothing was measured."""
        was = self.recorded.get(row.section, {}).get(row.key, {})
        for p in NEAREST:
            if p in was and row.ratio(p) is not None: return p, was[p], row.ratio(p)
        for p in NEAREST:
            if p in was: return p, was[p], None
            if not was and row.ratio(p) is not None: return p, None, row.ratio(p)
        return None, None, None

    def worse(self, row):
        """By how much the figure is worse, as a share; nothing where that is within the bar or unknown."""
        _, was, now = self.figure(row)
        return now / was - 1 if was and now and now > was * (1 + self.bar) else None

    def take(self, measured):
        """measured: [{"section", "key", "us", "failed"}]. Returns the keys of those that are to be measured again."""
        again = []
        for m in measured:
            row = self.row(m["section"], m["key"])
            row.add(m["us"], m.get("failed", {}))
            if self.worse(row) is not None and len(row.takes) < TAKES: again.append(row.key)
        return again

    # ---- what is printed
    def line(self, row):
        """A row that needs a word, or None."""
        peer, was, now = self.figure(row)
        if "tessera" in row.failed: return f"FAILED  {row.section}  {row.name}: {row.failed['tessera']}"
        if not row.takes: return None
        if was is None: return f"no figure recorded  {row.section}  {row.name}: {now:.2f} over {NAMES[peer]}" if now else f"no peer  {row.section}  {row.name}: {row.failed}"
        if now is None: return f"no peer  {row.section}  {row.name}: {NAMES[peer]} did not run" + (f" ({row.failed[peer]})" if peer in row.failed else "")
        if (by := self.worse(row)) is None: return None
        takes = " ".join(f"{t['tessera'] / t[peer]:.2f}" for t in row.takes if t.get(peer))
        return f"WORSE by {100 * by:.0f} %  {row.section}  {row.name}: {now:.2f} over {NAMES[peer]}, recorded {was:.2f} (takes: {takes}; {row.us('tessera'):.1f} us)"

    def missing(self, section):
        """Recorded rows that were not measured."""
        return [k for k in self.recorded.get(section, {}) if not ((section, k) in self.rows and (self.rows[section, k].takes or "tessera" in self.rows[section, k].failed))]

    def summary(self, section):
        """A line for the section."""
        rows = [r for (s, _), r in self.rows.items() if s == section]
        both = [self.figure(r) for r in rows if self.figure(r)[1] and self.figure(r)[2]]
        text = f"{section}: {len([r for r in rows if r.takes])} rows"
        if both: text += f", geometric mean {geometric_mean(b[2] for b in both):.3f}, recorded {geometric_mean(b[1] for b in both):.3f}"
        text += f"; {sum(self.worse(r) is not None for r in rows)} worse"
        if lost := self.missing(section): text += f"; {len(lost)} recorded rows were not measured: " + ", ".join(" ".join(filter(None, k)) for k in lost)
        return text

    def bad(self):
        return [r for r in self.rows.values() if self.worse(r) is not None or "tessera" in r.failed]


def section_data(judge, section, suite, machine, known):
    """A section in the form of docs/performance.json."""
    about = gate_suites.SECTIONS[section]
    rows = []
    for (s, key), row in judge.rows.items():
        if s != section or not row.takes: continue
        second = known.get(key, key[1]) if about.kind in ("kernels", "families") else key[1]
        rows.append([key[0], second, round(row.us("tessera"), 1), {p: round(row.us(p), 1) for p in row.peers() if row.us(p)}])
    title = f"{about.title}, {machine['short']}" if gate_suites.SUITES[suite].device == "cuda" else about.title
    return {"title": title, "kind": about.kind, "command": f"tools/gate {suite} --update FILE",
            "machine": machine["text"], "date": datetime.date.today().isoformat(), "rows": rows}


def write_update(path, sections):
    """Puts the sections into the file, in the place of those of the same name; the others stay."""
    data = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f: data = json.load(f)
    data.update(sections)
    from .page import write_data
    write_data(path, data)


def main(argv=None):
    a = arguments(argv)
    began = time.time()
    if unknown := [s for s in a.suites if s not in gate_suites.SUITES]:
        print(f"error: there is no suite {unknown[0]}; there are {', '.join(gate_suites.SUITES)}", file=sys.stderr)
        return 2
    try:
        with open(a.recorded, encoding="utf-8") as f: recorded = json.load(f)
        judge = Judge(recorded_figures(recorded), a.bar)
    except (OSError, ValueError) as e:
        print(f"error: {a.recorded}: {e}", file=sys.stderr)
        return 2
    machine = gate_suites.machine()
    device = a.device if a.device != "auto" else "cuda" if machine["gpu"] else "cpu"
    wanted, run = a.suites or list(gate_suites.SUITES), []
    for name in wanted:
        suite = gate_suites.SUITES[name]
        why = f"it is measured with --device {suite.device}" if suite.device != device else gate_suites.lacks(suite, machine)
        if why: print(f"{name}: not run: {why}")
        else: run.append(name)
    if not run:
        print("error: no suite can be measured on this machine", file=sys.stderr)
        return 2
    budget = a.budget or (480 if device == "cuda" else 600)
    jobs = a.jobs or max(1, min(10, len(os.sched_getaffinity(0)) * 2 // 3))
    described = gate_suites.describe(machine, device, a.threads)
    print(f"on {described['text']}", flush=True)
    with tempfile.TemporaryDirectory(prefix="tessera-gate-") as work:
        context = gate_suites.Context(device, work, began + budget, jobs, a.threads, judge)
        gate_suites.run(context, run)
    for row in judge.rows.values():
        if text := judge.line(row): print(text)
    print()
    for name in run:
        for section in gate_suites.SUITES[name].sections: print(judge.summary(section))
    if device == "cuda":
        for line in other_cards(recorded, [s for name in run for s in gate_suites.SUITES[name].sections], machine["gpu"]): print(line)
    for name, why in context.problems: print(f"{name}: {why}")
    if a.update:
        measured = {}
        if a.machine: described["text"] = a.machine
        for name in run:
            for section in gate_suites.SUITES[name].sections:
                lost = judge.missing(section) or [r.key for (s, _), r in judge.rows.items() if s == section and not r.takes]
                if lost or not any(s == section and r.takes for (s, _), r in judge.rows.items()): print(f"{section}: not written to {a.update}: not all of its rows were measured")
                else: measured[section] = section_data(judge, section, name, described, context.megabytes)
        write_update(a.update, measured)
    bad = judge.bad()
    print(f"{len(bad)} rows are worse or failed; {time.time() - began:.0f} s")
    return 1 if bad or context.problems else 0
