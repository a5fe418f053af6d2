"""Tessera in this process, through its C interface (api/c.h)."""
import ctypes, glob, os
from .ops import ONNX_TYPES


class TesseraError(Exception):
    pass


class _Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32), ("dims", ctypes.POINTER(ctypes.c_int64)), ("data", ctypes.c_void_p)]


def _tensors(described):
    """described: (name, dtype, shape, address) of each. Returns the array and what it points to."""
    held, array = [], (_Tensor * max(len(described), 1))()
    for t, (name, dtype, shape, address) in zip(array, described):
        dims = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        held.append(dims)
        t.name, t.dtype, t.rank, t.dims, t.data = name.encode(), ONNX_TYPES[dtype], len(shape), dims, address
    return array, held


def find_library():
    """The library in the build folder next to tools/, or in the bundle that this file is part of."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    named = os.environ.get("TESSERA_LIBRARY", "")
    for path in ([named] if named else []) + [p for name in ("build/lib/libtessera.so", "lib/libtessera.so.*") for p in sorted(glob.glob(os.path.join(root, name)))]:
        if os.path.exists(path): return path
    raise TesseraError(f"no libtessera.so under {root}/build/lib or {root}/lib: build it (tools/build release), or name it with --library")


class Library:
    def __init__(self, path=None):
        self.path = path or find_library()
        try: self.c = ctypes.CDLL(self.path)
        except OSError as e: raise TesseraError(str(e)) from e
        for name in ("tessera_open", "tessera_run", "tessera_run_on_device", "tessera_device"): getattr(self.c, name).restype = ctypes.c_char_p

    def check(self, error):
        if error: raise TesseraError(error.decode(errors="replace"))

    def open(self, model, device, threads=0, without=""):
        """`without`: passes that are left out, with commas between them."""
        before = os.environ.get("TESSERA_DISABLE_PASSES")
        if without: os.environ["TESSERA_DISABLE_PASSES"] = ",".join(filter(None, (before, without)))
        try: return Session(self, model, device, threads)
        finally:
            if before is not None: os.environ["TESSERA_DISABLE_PASSES"] = before
            elif without: del os.environ["TESSERA_DISABLE_PASSES"]


class Session:
    def __init__(self, library, model, device, threads):
        self.library, self.handle = library, ctypes.c_void_p()
        library.check(library.c.tessera_open(model.encode(), device.encode(), threads, ctypes.byref(self.handle)))
        self.device = library.c.tessera_device(self.handle).decode()

    def close(self):
        if self.handle: self.library.c.tessera_close(self.handle)
        self.handle = None

    def __del__(self):
        self.close()

    def bind(self, inputs, outputs, stream=0):
        """A function without arguments that runs the model on memory that stays: inputs and outputs as (name, dtype, shape, address).
        On a GPU it only puts the work on `stream`."""
        ins, held_ins = _tensors(inputs)
        outs, held_outs = _tensors(outputs)
        c, handle, counts = self.library.c, self.handle, (ctypes.c_int32(len(inputs)), ctypes.c_int32(len(outputs)))
        on_device, stream = self.device == "cuda", ctypes.c_void_p(stream)

        def run(_held=(self, held_ins, held_outs)):
            if on_device: error = c.tessera_run_on_device(handle, ins, counts[0], outs, counts[1], stream)
            else: error = c.tessera_run(handle, ins, counts[0], outs, counts[1])
            if error: raise TesseraError(error.decode(errors="replace"))
        return run
