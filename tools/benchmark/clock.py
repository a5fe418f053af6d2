"""How long a call takes. Contenders take turns in several rounds, so that what else the machine does meets all of them.

A contender is a list of calls that do the same, each on a set of memory of its own: set i of one contender has the inputs of set i of every other. Whoever calls takes the
next set, so that a set's inputs rest for as many calls as there are sets. On a GPU that is what makes the memory cold: overwriting the level-2 cache alone leaves lines of
what the call before read there (11 to 12 of 50 MB on an H200, by the DRAM's counters), the more so where loads carry no hint, which makes kernels on the same memory again and
again look up to 2.3 us faster than on fresh memory, and others not at all."""
import itertools, statistics, time

MOST_SETS = 16


def sets_of_memory(moved, cache, limit):
    """How many sets of memory calls that move `moved` bytes each take turns in, so that at least twice the `cache` goes by between two calls on the same set; all sets
    together stay within `limit` bytes, but for the first.

    What moves less than 2 / (MOST_SETS - 1) of the cache has less than that go by. Its data may then be in part in the cache as far as the overwriting, once a call, so
    MOST_SETS times, has left them there. (Cases of 0.5 to 12 MB took the same on 2, 16 and 40 sets of an H200.)"""
    moved = max(moved, 1)
    wanted = min(MOST_SETS, -(-2 * cache // moved) + 1)
    return max(1, min(wanted, int(limit // moved)))


class HostClock:
    """Calls that have ended when they return. They find in the caches what the call before left there, as a program's do that calls again and again.

    Before a turn everybody's threads come to rest: those of ONNX Runtime go on looking for work for 35 ms after a call, OpenMP's for 10, on the cores that the next contender
    is to have (RMS norm of 4096x1024 on two cores took 620 us right after ONNX Runtime, 300 after 60 ms)."""
    least = 5
    rest = 0.06  # seconds

    def sets(self, moved, holders):
        return 1

    def times(self, call, count):
        time.sleep(self.rest)
        for _ in range(2): call()
        out = []
        for _ in range(count):
            start = time.perf_counter()
            call()
            out.append((time.perf_counter() - start) * 1e6)
        return out


class GpuClock:
    """Work on the GPU alone, between events, the level-2 cache overwritten before each call, and calls on several sets of memory in turn.

    The GPU is kept waiting until the host has put the whole call on the stream: else a call of several launches, or one of a slow host, would be timed
    by its launches."""
    least = 8

    def __init__(self, torch):
        self.torch = torch
        self.flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        properties = torch.cuda.get_device_properties(0)
        self.cycles_per_us = properties.clock_rate / 1e3 if hasattr(properties, "clock_rate") else 2000.0
        self.cache = getattr(properties, "L2_cache_size", 64 << 20)

    def sets(self, moved, holders):
        """The number of sets of memory that calls take turns in, for contenders of which `holders` have memory of their own for `moved` bytes: all of it takes
        at most a third of what is free."""
        return sets_of_memory(moved, self.cache, self.torch.cuda.mem_get_info()[0] / 3 / max(holders, 1))

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
    """contenders: name -> calls, as many of each. Times each contender in `rounds` rounds of `seconds` in all, starting with another one each round. Returns name -> data."""
    turns = itertools.count()
    counts, timings, next_call = {}, {}, {}
    for name, calls in contenders.items():
        for call in calls * max(1, 2 // len(calls)): call()  # what is made at the first call is there then, for each set
        next_call[name] = lambda calls=calls: calls[next(turns) % len(calls)]()
        once = statistics.median(clock.times(next_call[name], 2))
        counts[name] = max(clock.least, min(100, int(seconds / rounds / max(once, 50.0) * 1e6)))
        timings[name] = Timing()
    order = list(contenders)
    for r in range(rounds):
        for name in order[r % len(order):] + order[:r % len(order)]: timings[name].add(clock.times(next_call[name], counts[name]))
    return {name: t.data() for name, t in timings.items()}
