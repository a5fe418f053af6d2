"""Answers requests of several sizes from two threads: serve.py MODEL [DEVICE]. Inputs are all ones; a symbolic first
dimension is the batch, any other symbolic one the length."""

import sys
import threading

import numpy

import tessera

THREADS, REQUESTS = 2, 24
SHAPES = [(1, 8), (4, 16)]  # batch, length


def sizes(model, shape):
    return [tuple(d if isinstance(d, int) else shape[min(axis, 1)] for axis, d in enumerate(i.shape)) for i in model.inputs]


def serve(model, errors):
    try:
        for k in range(REQUESTS):
            shape = SHAPES[k % len(SHAPES)]
            outputs = model(*(numpy.ones(s, i.dtype) for s, i in zip(sizes(model, shape), model.inputs)))
            first = outputs[0] if isinstance(outputs, tuple) else outputs
            assert numpy.isfinite(first).all()
    except Exception as e:  # the thread's, for the program's end
        errors.append(e)


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: serve.py MODEL [DEVICE]")
    model = tessera.load(sys.argv[1], *sys.argv[2:3], memory_limit=1 << 30)
    for shape in SHAPES:
        model.warmup(*sizes(model, shape))
    warm = model.metrics()

    errors = []
    threads = [threading.Thread(target=serve, args=(model, errors)) for _ in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()

    m = model.metrics()
    print(f"{m['calls']} calls, {m['errors']} errors, {m['variants']} variants, {m['latency_us'] / max(1, m['calls']):.1f} us a call")
    if miss := model.last_miss():
        print("last miss:", miss)
    if errors:
        raise errors[0]
    if m["compiles"] != warm["compiles"]:
        sys.exit("a request waited for a compile")


if __name__ == "__main__":
    main()
