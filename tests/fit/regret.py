#!/usr/bin/env python3
"""The cost model against times that were measured: h200.jsonl beside this file has 19 nests of as many families, each with up to 22 schedules, their times and
registers, as `tessera tune --log` wrote them on an H200. The schedule of least predicted time must be close to the fastest of them.

    regret.py PREDICT_SCHEDULES"""
import os, sys
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "tools", "fit"))
import fit

MEAN, WORST = 1.10, 1.50  # of the chosen schedule's time over the fastest one's


def main():
    log = fit.Log("h200", [os.path.join(HERE, "h200.jsonl")], sys.argv[1])
    regret = log.regrets(log.predict(log.parameters)[:, 0])
    far = [f"{log.names[n]} {r:.2f}" for n, r in sorted(regret.items(), key=lambda x: -x[1])[:3]]
    mean, worst = float(np.exp(np.mean(np.log(list(regret.values()))))), max(regret.values())
    print(f"{len(regret)} nests: mean {mean:.3f}, worst {', '.join(far)}")
    assert len(regret) == 19, "the fixture has 19 nests: a schedule or a nest of it was not understood"
    assert mean <= MEAN, f"the chosen schedules take {mean:.3f} of the fastest ones' time on the mean, expected at most {MEAN}"
    assert worst <= WORST, f"a chosen schedule takes {worst:.2f} of the fastest one's time, expected at most {WORST}"


if __name__ == "__main__": main()
