"""The machine that the cases run on: it makes inputs and outputs, computes the right results, and knows the contenders."""
import concurrent.futures, os, platform
import numpy as np
from .clock import GpuClock, HostClock
from .ops import NUMPY_TYPES, TORCH_TYPES, numpy_type
from .tessera import Library

# Largest error of an element, relative to it and to the root of the mean square of all, by the coarsest type in the case; where matrices are multiplied, of the
# results as a whole: what lies between the products may be rounded to that type.
TOLERANCE = {"f64": 1e-12, "f32": 5e-5, "f16": 4e-3, "bf16": 2e-2}

# Between neighbours where a type's numbers lie closest, its subnormal ones.
LEAST_STEP = {"f64": 2.0**-1074, "f32": 2.0**-149, "f16": 2.0**-24, "bf16": 2.0**-133}


def import_torch():
    """PyTorch, or nothing and why."""
    try:
        import torch
        return torch, ""
    except ImportError as e:
        return None, f"PyTorch is not there ({e})"


def import_onnxruntime():
    try:
        import onnxruntime
        return onnxruntime, ""
    except ImportError as e:
        return None, f"ONNX Runtime is not there ({e})"


def tolerance(case):
    types = {spec["dtype"] for spec in case.inputs.values()} | {t for _, t in case.results}
    return max(TOLERANCE[t] for t in types if t in TOLERANCE)


def relative_error(got, want, dtype):
    """The error of each element of `got`, numbers of `dtype` in float64, against `want`: relative to it and to the root of the mean square of all. One step between
    subnormal numbers, which no result comes closer than by luck, is no error. Arrays are numpy's or PyTorch's; NaN and infinity stay as they are."""
    off = (abs(got - want) - LEAST_STEP.get(dtype, 0.0)).clip(min=0.0)
    return off / (abs(want) + (want * want).mean() ** 0.5 + 1e-30)


class Machine:
    """`torch` and `onnxruntime` may be None. Arrays are PyTorch's where it is there, else numpy's."""
    def __init__(self, device, threads, library, torch, onnxruntime):
        self.device, self.threads, self.torch, self.onnxruntime = device, threads, torch, onnxruntime
        self.library = Library(library)  # after PyTorch, whose C++ library is as new or newer
        if device == "cuda" and not (torch and torch.cuda.is_available()): raise RuntimeError("timing on a GPU needs PyTorch with CUDA: it makes the inputs and holds the clock")
        self.clock = GpuClock(torch) if device == "cuda" else HostClock()
        if torch: torch.set_num_threads(threads)
        if device == "cpu": self.copiers = concurrent.futures.ThreadPoolExecutor(threads)

    def describe(self):
        out = {"device": self.device, "peers": {}}
        if self.device == "cuda": out["name"] = self.torch.cuda.get_device_name(0)
        else: out.update(name=platform.processor() or platform.machine(), threads=self.threads)
        if self.torch: out["peers"]["torch"] = self.torch.__version__
        if self.onnxruntime and self.device == "cpu": out["peers"]["onnxruntime"] = self.onnxruntime.__version__
        return out

    # ---- arrays
    def inputs(self, case, seed=0):
        if self.torch: return case.torch_inputs(self.torch, self.device, seed)
        return case.numpy_inputs(seed)

    def input_sets(self, case, count, seed=0):
        """The same inputs `count` times, each in memory of its own."""
        first = self.inputs(case, seed)
        return [first] + [[x.clone() if self.torch else x.copy() for x in first] for _ in range(count - 1)]

    def outputs(self, case, poison):
        """Memory for the results, each byte set to `poison`."""
        out = []
        for shape, dtype in case.results:
            if self.torch:
                x = self.torch.empty(shape, dtype=TORCH_TYPES(self.torch)[dtype], device=self.device)
                if x.numel(): x.reshape(-1).view(self.torch.uint8).fill_(poison)
            else:
                x = np.empty(shape, numpy_type(dtype))
                x.reshape(-1).view(np.uint8)[...] = poison
            out.append(x)
        return out

    def _described(self, names, arrays):
        short = {v: k for k, v in (TORCH_TYPES(self.torch) if self.torch else {k: numpy_type(k) for k in NUMPY_TYPES}).items()}
        return [(n, short[a.dtype], list(a.shape), a.data_ptr() if self.torch else a.ctypes.data) for n, a in zip(names, arrays)]

    # ---- contenders: a call for each set of inputs, on memory of its own
    def tessera(self, case, path, inputs, outputs, without=""):
        """inputs and outputs: those of each set; `without`: passes that are left out. (A model of six steps and more would be replayed as a CUDA graph, for up to four sets of addresses: with more sets its steps
        are put on the stream one by one.)"""
        session = self.library.open(path, self.device, self.threads, without)
        stream = self.torch.cuda.current_stream().cuda_stream if self.device == "cuda" else 0

        def on(ins, outs):
            call = session.bind(self._described(case.arguments(), ins), self._described(case.outputs, outs), stream)
            return lambda _keep=(ins, outs): call()
        return [on(*memory) for memory in zip(inputs, outputs)]

    def eager(self, case, inputs, mode=None):
        torch = self.torch
        f = case.torch_function(case.torch_constants(torch, self.device))
        if mode is not None: f = torch.compile(f, dynamic=False, **({"mode": mode} if mode else {}))

        def on(ins):
            result = [None]  # stays until the next call on these inputs has made another: results of other sets lie elsewhere

            def call():
                with torch.no_grad(): result[0] = f(*ins)
            return call
        return [on(ins) for ins in inputs]

    def compiled(self, case, inputs, mode=""):
        self.torch._dynamo.reset()
        return self.eager(case, inputs, mode)

    def ort(self, case, path, inputs):
        """On numpy's arrays over the same memory, results in memory that stays."""
        o = self.onnxruntime
        options = o.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.log_severity_level = 3
        session = o.InferenceSession(path, options, providers=["CPUExecutionProvider"])

        def on(ins):
            binding, held = session.io_binding(), []
            arrays = [x.numpy() if self.torch else x for x in ins]
            for n, x in zip(case.arguments(), arrays): binding.bind_ortvalue_input(n, o.OrtValue.ortvalue_from_numpy(x))
            for n, (shape, dtype) in zip(case.outputs, case.results):
                held.append(np.zeros(shape, numpy_type(dtype)))
                binding.bind_ortvalue_output(n, o.OrtValue.ortvalue_from_numpy(held[-1]))
            return lambda _held=(held, arrays): session.run_with_iobinding(binding)
        return [on(ins) for ins in inputs]

    def copy(self, case, sets):
        """A copy that moves as many bytes as the case: half read, half written."""
        half = max(case.bytes // 2, 1)
        step = -(-half // self.threads)
        parts = [slice(i, min(i + step, half)) for i in range(0, half, step)]

        def one():
            if self.device == "cuda":
                source = self.torch.empty(half, dtype=self.torch.uint8, device="cuda")
                target = self.torch.empty_like(source)
                return lambda: target.copy_(source)
            source, target = np.ones(half, np.uint8), np.zeros(half, np.uint8)
            return lambda: list(self.copiers.map(lambda p: np.copyto(target[p], source[p]), parts))
        return [one() for _ in range(sets)]

    # ---- what is right
    def reference(self, case, inputs):
        """In float64, rounded to the results' types; nothing without PyTorch."""
        torch = self.torch
        if not torch: return None
        wide = [x.double() if x.dtype.is_floating_point else x for x in inputs]
        with torch.no_grad(): results = case.torch_function(case.torch_constants(torch, self.device), reference=True)(*wide)
        return [results] if len(case.outputs) == 1 else list(results)

    def error(self, case, results, expected):
        """Text of what is wrong with the results, or None."""
        torch = self.torch
        for name, got, want, (_, dtype) in zip(case.outputs, results, expected, case.results):
            if tuple(got.shape) != tuple(want.shape): return f"{name} has the shape {tuple(got.shape)}, not {tuple(want.shape)}"
            if got.numel() == 0: continue
            if not got.dtype.is_floating_point:
                bad = int((got != want.to(got.dtype)).sum())
                if bad: return f"{name}: {bad} of {got.numel()} values differ"
                continue
            # Infinities are compared in the result's type, all other values as they were computed.
            rounded, g = want.to(got.dtype), got.double()
            finite = torch.isfinite(rounded)
            if not torch.equal(torch.where(finite, 0.0, g), torch.where(finite, 0.0, rounded.double())): return f"{name} has other infinities"
            want = torch.where(finite, want, 0.0)
            g = torch.where(finite, g, 0.0)
            if case.flops:
                whole = float((g - want).norm() / (want.norm() + 1e-30))
                if not whole <= tolerance(case): return f"{name}: off by {whole:.2g} as a whole"
                continue
            off = relative_error(g, want, dtype)
            worst = float(off.max())
            if not worst <= tolerance(case):
                at = int(torch.where(off.isnan(), torch.inf, off).argmax())
                return f"{name}: off by {worst:.2g} at element {at}: {float(g.reshape(-1)[at]):.7g} for {float(want.reshape(-1)[at]):.7g}"
        return None

    def same_bits(self, a, b):
        if self.torch: return all(self.torch.equal(x.reshape(-1).view(self.torch.uint8), y.reshape(-1).view(self.torch.uint8)) for x, y in zip(a, b))
        return all(x.tobytes() == y.tobytes() for x, y in zip(a, b))

    def wait(self):
        if self.device == "cuda": self.torch.cuda.synchronize()

    def clean(self):
        if self.device == "cuda": self.torch.cuda.empty_cache()


def cores():
    return len(os.sched_getaffinity(0))
