"""How long a call takes. Contenders take turns in several rounds, so that what else the machine does meets all of them."""
import statistics, time


class HostClock:
    """Calls that have ended when they return."""
    least = 5

    def times(self, call, count):
        out = []
        for _ in range(count):
            start = time.perf_counter()
            call()
            out.append((time.perf_counter() - start) * 1e6)
        return out


class GpuClock:
    """Work on the GPU alone, between events, the level-2 cache overwritten before each call.

    The GPU is kept waiting until the host has put the whole call on the stream: else a call of several launches, or one of a slow host, would be timed
    by its launches."""
    least = 8

    def __init__(self, torch):
        self.torch = torch
        self.flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        self.cycles_per_us = torch.cuda.get_device_properties(0).clock_rate / 1e3 if hasattr(torch.cuda.get_device_properties(0), "clock_rate") else 2000.0

    def times(self, call, count):
        torch = self.torch
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        host_us = (time.perf_counter() - start) * 1e6
        torch.cuda.synchronize()
        wait = int(min(1.5 * host_us + 30, 3000) * self.cycles_per_us)
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
        for before, after in events:
            self.flush.zero_()
            torch.cuda._sleep(wait)
            before.record()
            call()
            after.record()
        torch.cuda.synchronize()
        return [before.elapsed_time(after) * 1e3 for before, after in events]


class Timing:
    """Microseconds of single calls."""
    def __init__(self):
        self.rounds = []  # the median of each

    def add(self, samples):
        self.rounds.append(statistics.median(samples))
        self.smallest = min(samples + ([self.smallest] if hasattr(self, "smallest") else []))

    def data(self):
        return {"median_us": statistics.median(self.rounds), "min_us": self.smallest, "rounds_us": self.rounds}


def race(clock, contenders, rounds, seconds):
    """contenders: name -> call. Times each in `rounds` rounds of `seconds` in all, starting with another one each round. Returns name -> data."""
    counts, timings = {}, {}
    for name, call in contenders.items():
        for _ in range(2): call()
        once = statistics.median(clock.times(call, 2))
        counts[name] = max(clock.least, min(100, int(seconds / rounds / max(once, 50.0) * 1e6)))
        timings[name] = Timing()
    order = list(contenders)
    for r in range(rounds):
        for name in order[r % len(order):] + order[:r % len(order)]: timings[name].add(clock.times(contenders[name], counts[name]))
    return {name: t.data() for name, t in timings.items()}
