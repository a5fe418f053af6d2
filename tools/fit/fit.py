#!/usr/bin/env python3
"""Fits the parameters of the cost of schedules to measured times (README.md beside this file).

  build/venv/bin/python3 tools/fit/fit.py h200 RUN.jsonl ... [--seconds 120] [--held-out] [--worst 3]

Prints the parameters, and for each family of models the error of predicted times and the regret of the choice: the time of the schedule that would be chosen over
that of the fastest measured one."""
import argparse, json, os, subprocess, sys, time
import numpy as np

COLUMNS = 9  # of predict.cpp: time, registers, memory, latency, issue, shared memory, resident blocks, blocks, registers that a thread may have
REGRET = 3   # weight of the regret relative to the error of times
BETA = 30    # of the soft choice that the loss uses: schedules within 1/BETA of the least time share it
# Bounds of parameters, where others than a factor of 10 about the value in cost.h keep a term what it means.
BOUNDS = dict(bandwidth=(0.88, 1.03), alone=(1.3, 5), cache=(0.5, 2), level2=(0.1, 1.2), chain=(0.5, 2.5), loop=(0.03, 2.5), prefetched=(0.05, 1), again=(0.1, 1.2),
              shared_tile=(0.01, 4), async_tile=(0.001, 0.5), tail=(0.2, 2), element=(1e-4, 0.01), q=(0.3, 8), overlap=(0.1, 10), spill=(0.3, 8), registers_error=(0.1, 0.4), registers_free=(0.01, 0.9), grid_barrier=(0.25, 4), unhinted=(0.001, 0.3))


class Log:
    """Rows that were measured, and a process that predicts them."""
    def __init__(self, target, files, program):
        self.process = subprocess.Popen([program, target, *files], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        head = json.loads(self.process.stdout.readline())
        rows = head["rows"]
        self.parameters = head["parameters"]
        self.nest = np.array([r[0] for r in rows])
        self.us, self.registers = np.array([r[2] for r in rows]), np.array([r[3] for r in rows])
        self.config = [r[4] for r in rows]
        self.names = [os.path.basename(model).removesuffix(".onnx") + ":" + kernel for model, kernel in head["nests"]]
        self.family = np.array([n.split(".")[0] for n in self.names])
        self.order = np.argsort(self.nest, kind="stable")
        self.begin = np.r_[0, np.where(np.diff(self.nest[self.order]))[0] + 1]
        self.ids = self.nest[self.order][self.begin]
        self.length = np.diff(np.r_[self.begin, len(self.us)])
        best = np.minimum.reduceat(self.us[self.order], self.begin)
        self.relative = self.us[self.order] / np.repeat(best, self.length)
        # The assembler gave what the thread may have: it needs as many, or more.
        most = self.predict(self.parameters)[:, 8]
        self.told, self.full = self.registers > 0, self.registers >= most - 2
        self.given = np.clip(self.registers, 16, most)

    def predict(self, parameters):
        self.process.stdin.write((" ".join(f"{k} {v}" for k, v in parameters.items()) + "\n").encode())
        self.process.stdin.flush()
        wanted = len(self.us) * COLUMNS * 8
        data = self.process.stdout.read(wanted)
        return np.frombuffer(data, dtype=np.float64).reshape(-1, COLUMNS)

    def depends_on(self, name):
        """Whether what was measured says anything about a parameter."""
        other = {**self.parameters, name: 1.5 * self.parameters[name]}
        return not np.array_equal(self.predict(self.parameters), self.predict(other))

    def each(self, values):
        return np.repeat(values, self.length)

    def loss(self, parameters, nests):
        q = self.predict(parameters)
        t = np.log(q[self.order, 0])
        if not np.all(np.isfinite(t)): return 1e9
        chosen = np.exp(-BETA * (t - self.each(np.minimum.reduceat(t, self.begin))))
        regret = np.add.reduceat(chosen * np.minimum(self.relative - 1, 1.5), self.begin) / np.add.reduceat(chosen, self.begin)
        weight = 1 / self.relative ** 2
        e = t - np.log(self.us[self.order])
        sums = np.add.reduceat(weight, self.begin)
        mean = np.add.reduceat(weight * e, self.begin) / sums
        spread = np.add.reduceat(weight * np.minimum((e - 0.8 * self.each(mean)) ** 2, 1), self.begin) / sums
        e = np.log(q[:, 1] / self.given)
        registers = np.mean(np.minimum(np.where(self.full, np.minimum(e, 0), e)[self.told] ** 2, 0.5))
        return REGRET * np.mean(regret[nests]) + np.mean(spread[nests]) + 0.1 * np.mean(mean[nests] ** 2) + 0.1 * registers

    def regrets(self, predicted):
        out = {}
        for begin, length, n in zip(self.begin, self.length, self.ids):
            rows = self.order[begin:begin + length]
            out[n] = self.us[rows[np.argmin(predicted[rows])]] / self.us[rows].min()
        return out


def clipped(parameters, start):
    out, penalty = {}, 0.0
    for k, v in parameters.items():
        low, high = BOUNDS.get(k, (start[k] / 10, start[k] * 10))
        out[k] = min(max(v, low), high)
        penalty += np.log(v / out[k]) ** 2
    return out, penalty


def minimize(log, nests, seconds, seed=0):
    """Evolution of a normal distribution over the logarithms of the parameters (CMA-ES with a diagonal covariance matrix)."""
    start, rng = dict(log.parameters), np.random.default_rng(seed)
    keys = [k for k in start if log.depends_on(k)]
    n, count = len(keys), 32
    def loss(x):
        p, penalty = clipped({**start, **dict(zip(keys, np.exp(x)))}, start)
        return log.loss(p, nests) + 0.003 * penalty
    mean, sigma, cov = np.log([start[k] for k in keys]), 0.15, np.ones(n)
    half = count // 2
    w = np.log(half + 0.5) - np.log(np.arange(1, half + 1))
    w /= w.sum()
    mu = 1 / np.sum(w ** 2)
    cs, cc = (mu + 2) / (n + mu + 5), 4 / (n + 4)
    c1 = 2 / ((n + 1.3) ** 2 + mu) * (n + 2) / 3
    cmu = min(1 - c1, 2 * (mu - 2 + 1 / mu) / ((n + 2) ** 2 + mu) * (n + 2) / 3)
    ps, pc, expected = np.zeros(n), np.zeros(n), np.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))
    best, began = (loss(mean), mean), time.time()
    while time.time() - began < seconds:
        z = rng.standard_normal((count, n))
        x = mean + sigma * z * np.sqrt(cov)
        losses = [loss(v) for v in x]
        order = np.argsort(losses)[:half]
        if losses[order[0]] < best[0]: best = (losses[order[0]], x[order[0]])
        old, mean = mean, w @ x[order]
        ps = (1 - cs) * ps + np.sqrt(cs * (2 - cs) * mu) * (w @ z[order])
        pc = (1 - cc) * pc + np.sqrt(cc * (2 - cc) * mu) * (mean - old) / sigma
        cov = (1 - c1 - cmu) * cov + c1 * pc ** 2 + cmu * (w @ ((x[order] - old) ** 2)) / sigma ** 2
        sigma = min(1.0, sigma * np.exp(cs / (1 + cs) * (np.linalg.norm(ps) / expected - 1)))
    return clipped({**start, **dict(zip(keys, np.exp(best[1])))}, start)[0]


def report(log, parameters, families=None, worst=0):
    q = log.predict(parameters)
    error, regret = np.log(q[:, 0] / log.us), log.regrets(q[:, 0])
    mean = lambda values: float(np.exp(np.mean(np.log(values))))
    lines = []
    for f in families or sorted(set(log.family)):
        nests = [n for n in log.ids if log.family[n] == f]
        rows = np.isin(log.nest, nests)
        r = [regret[n] for n in nests]
        lines.append((f, len(nests), mean(r), max(r), float(np.sqrt(np.mean(error[rows] ** 2))), float(np.mean(error[rows]))))
        for n in sorted(nests, key=lambda n: -regret[n])[:worst]:
            rows = np.where(log.nest == n)[0]
            for what, i in (("best", rows[np.argmin(log.us[rows])]), ("chosen", rows[np.argmin(q[rows, 0])])):
                c = log.config[i]
                print(f"  {log.names[n]} {what}: {log.us[i]:.1f} us, predicted {q[i, 0]:.1f}, {int(log.registers[i])} registers, predicted {q[i, 1]:.0f}; {c}")
    return lines, regret


def show(lines):
    print(f"{'family':24} nests regret  worst  error   bias")
    for f, n, r, w, e, b in lines: print(f"{f:24} {n:5d} {r:6.3f} {w:6.2f} {e:6.3f} {b:+.3f}")
    total = sum(l[1] for l in lines)
    print(f"{'all':24} {total:5d} {np.exp(sum(l[1] * np.log(l[2]) for l in lines) / total):6.3f} {max(l[3] for l in lines):6.2f}")


def main():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("target", help="that the times were measured on")
    p.add_argument("logs", nargs="+", help="what tessera tune --log wrote")
    p.add_argument("--seconds", type=float, default=120, help="for each fit; 0: only report")
    p.add_argument("--held-out", action="store_true", help="fit without a fifth of the families at a time, and report on these")
    p.add_argument("--worst", type=int, default=0, help="show so many nests of each family")
    p.add_argument("--program", default=os.path.join(root, "build/bin/predict_schedules"))
    a = p.parse_args()
    log = Log(a.target, a.logs, a.program)
    everything = np.ones(len(log.ids), bool)
    if a.held_out:
        families, lines = sorted(set(log.family)), []
        for k in range(5):
            out = families[k::5]
            lines += report(log, minimize(log, ~np.isin(log.family[log.ids], out), a.seconds, k), out)[0]
        show(sorted(lines))
        return 0
    parameters = minimize(log, everything, a.seconds) if a.seconds > 0 else dict(log.parameters)
    show(report(log, parameters, worst=a.worst)[0])
    if a.seconds > 0: print("\n".join(f"  X({k}, {v:.4g})" for k, v in parameters.items()))
    return 0


if __name__ == "__main__": sys.exit(main())
