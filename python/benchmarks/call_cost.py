#!/usr/bin/env python3
"""Measures the cost on the host of a call of a model from Python, against the same call through the C interface.

    PYTHONPATH=build/python build/venv/bin/python3 python/benchmarks/call_cost.py [--limit MICROSECONDS]

A model of one addition of 8 numbers runs on the CPU with one thread, on NumPy's arrays, on objects that have nothing but DLPack, and
on PyTorch's tensors where it is installed. "C interface": tessera_run(), called by ctypes, whose own cost is taken off. With --limit
the program ends with 1 where a call from Python costs more than that over the C interface.
"""

import argparse
import ctypes
import json
import statistics
import sys
import time

import numpy

import tessera
from tessera import _native


def program() -> bytes:
    """x + x of float32[8] as torch.export writes it."""
    meta = {
        "dtype": 7, "sizes": [{"as_int": 8}], "requires_grad": False, "device": {"type": "cpu", "index": None},
        "strides": [{"as_int": 1}], "storage_offset": {"as_int": 0}, "layout": 7,
    }  # fmt: skip
    x = {"as_tensor": {"name": "x"}}
    add = {"as_tensor": {"name": "add"}}
    node = {
        "target": "torch.ops.aten.add.Tensor", "outputs": [add], "metadata": {},
        "inputs": [{"name": "self", "arg": x, "kind": 1}, {"name": "other", "arg": x, "kind": 1}],
    }  # fmt: skip
    graph = {
        "inputs": [x], "outputs": [add], "nodes": [node], "tensor_values": {"x": meta, "add": meta},
        "sym_int_values": {}, "sym_bool_values": {}, "is_single_tensor_return": False,
    }  # fmt: skip
    signature = {"input_specs": [{"user_input": {"arg": x}}], "output_specs": [{"user_output": {"arg": add}}]}
    return json.dumps({
        "graph_module": {"graph": graph, "signature": signature, "module_call_graph": []}, "opset_version": {"aten": 10},
        "range_constraints": {}, "schema_version": {"major": 8, "minor": 14}, "torch_version": "2.9",
    }).encode()  # fmt: skip


def per_call(function, calls: int = 20000, rounds: int = 9) -> float:
    """Median over rounds, in microseconds."""
    for _ in range(1000):
        function()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        times.append((time.perf_counter() - start) / calls * 1e6)
    return statistics.median(times)


class Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32), ("dims", ctypes.POINTER(ctypes.c_int64)), ("data", ctypes.c_void_p)]


class Program(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("json", ctypes.c_char_p), ("json_bytes", ctypes.c_size_t), ("weights", ctypes.c_void_p), ("weight_count", ctypes.c_int32), ("strided", ctypes.c_int32)]


class Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("device", ctypes.c_char_p), ("threads", ctypes.c_int32), ("tune_share", ctypes.c_double), ("tf32", ctypes.c_char_p), ("plan", ctypes.c_char_p), ("memory_limit", ctypes.c_uint64), ("allocator", ctypes.c_void_p)]


def library() -> ctypes.CDLL:
    """The libtessera.so that the extension has loaded."""
    with open("/proc/self/maps") as maps:
        path = next(line.split()[-1] for line in maps if "/libtessera" in line)
    c = ctypes.CDLL(path)
    for name in ("tessera_open_program", "tessera_run"):
        getattr(c, name).restype = ctypes.c_char_p
    return c


def from_dlpack(model: tessera.Model, x: numpy.ndarray) -> tessera.Tensor:
    """An array that other libraries see by DLPack alone: the result of a call that was given such a one."""

    class Shown:
        __dlpack__, __dlpack_device__ = x.__dlpack__, x.__dlpack_device__

    return model(Shown())


def main() -> int:
    parser = argparse.ArgumentParser(description="what a call from Python costs over the C interface")
    parser.add_argument("--limit", type=float, help="in microseconds")
    limit = parser.parse_args().limit
    text = program()
    model = tessera.Model(_native.open_program("x + x", text, None, False, {"device": "cpu", "threads": 1}), "x + x")
    x = numpy.arange(8, dtype=numpy.float32)
    assert (model(x) == x + x).all()

    c, session = library(), ctypes.c_void_p()
    given, options = Program(ctypes.sizeof(Program), b"x + x", text, len(text), None, 0, 0), Options(ctypes.sizeof(Options), b"cpu", 1)
    if error := c.tessera_open_program(ctypes.byref(given), ctypes.byref(options), ctypes.byref(session)):
        print(error.decode(), file=sys.stderr)
        return 1
    y, dims = numpy.empty(8, numpy.float32), (ctypes.c_int64 * 1)(8)
    inputs, outputs = (Tensor * 1)(Tensor(b"x", 1, 1, dims, x.ctypes.data)), (Tensor * 1)(Tensor(None, 1, 1, dims, y.ctypes.data))
    one = ctypes.c_int32(1)
    assert c.tessera_run(session, inputs, one, outputs, one) is None and (y == x + x).all()
    null = ctypes.c_void_p()
    c.tessera_device.restype = ctypes.c_char_p
    through_ctypes = per_call(lambda: c.tessera_run(session, inputs, one, outputs, one))
    # A function that does nothing, with as many arguments: null stands for a session, and the error's text is not made twice.
    empty = ctypes.PyDLL(None).Py_IsInitialized
    ctypes_itself = per_call(lambda: empty(null, inputs, one, outputs, one))
    in_c = through_ctypes - ctypes_itself
    c.tessera_close(session)
    print(f"C interface (tessera_run): {in_c:5.2f} us a call")
    given_arrays = {"NumPy arrays": x, "DLPack": from_dlpack(model, x)}
    try:
        import torch

        given_arrays["PyTorch tensors"] = torch.from_numpy(x)
    except ImportError:
        print("PyTorch is not installed: its tensors are left out")
    slow = False
    for kind, array in given_arrays.items():
        cost = per_call(lambda array=array: model(array))
        slow = slow or (limit is not None and cost - in_c > limit)
        print(f"{'Python, ' + kind + ':':27}{cost:5.2f} us a call, {cost - in_c:.2f} us over the C interface")
    if slow:
        print(f"error: that is more than {limit} us", file=sys.stderr)
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
