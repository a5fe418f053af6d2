"""The suite: memory-bound computations, those that a matrix product feeds or follows, and attention, at sizes for a GPU or for a CPU."""
from .case import Case
from .families import FAMILIES


def _renamed(name, case):
    case.name = name
    return case


def seed_gemms(M, N, K, dtype):
    size, flops = f"{M}x{N}x{K}.{dtype}", 2 * M * N * K
    m = lambda *shape, data="normal": {"shape": list(shape), "dtype": dtype, "data": data}
    yield Case(f"seed.gemm_bias_gelu_mask.{size}", {"x": m(M, K), "w": m(K, N, data="small"), "b": m(N), "m": m(M, N, data="mask")},
               [["MatMul", ["x", "w"], ["p"]], ["Add", ["p", "b"], ["s"]], ["Gelu", ["s"], ["g"]], ["Mul", ["g", "m"], ["y"]]], ["y"], flops)
    yield Case(f"seed.relu_layernorm_linear.{size}", {"x": m(M, K), "w": m(K, N, data="small"), "b": m(N), "g": m(N), "be": m(N)},
               [["MatMul", ["x", "w"], ["p"]], ["Add", ["p", "b"], ["s"]], ["LayerNormalization", ["s", "g", "be"], ["n"], {"axis": -1}], ["Relu", ["n"], ["y"]]], ["y"], flops)
    yield Case(f"seed.layernorm_linear.{size}", {"x": m(M, K), "w": m(N, K, data="small"), "b": m(N), "g": m(K), "be": m(K)},
               [["LayerNormalization", ["x", "g", "be"], ["n"], {"axis": -1}], ["Transpose", ["w"], ["t"], {"perm": [1, 0]}], ["MatMul", ["n", "t"], ["p"]], ["Add", ["p", "b"], ["y"]]], ["y"], flops)


def rope(batch, heads, length, size, dtype):
    return Case(f"rope.{batch}x{heads}x{length}x{size}.{dtype}",
                {"x": {"shape": [batch, heads, length, size], "dtype": dtype}, "c": {"shape": [length, size], "dtype": dtype}, "s": {"shape": [length, size], "dtype": dtype}},
                [["Split", ["x"], ["a", "b"], {"axis": -1, "num_outputs": 2}], ["Neg", ["b"], ["nb"]], ["Concat", ["nb", "a"], ["r"], {"axis": -1}],
                 ["Mul", ["x", "c"], ["p"]], ["Mul", ["r", "s"], ["q"]], ["Add", ["p", "q"], ["y"]]], ["y"])


def sdpa(batch, heads, length, size, causal, dtype):
    x = {"shape": [batch, heads, length, size], "dtype": dtype}
    return Case(f"sdpa.{batch}x{heads}x{length}x{size}.{'causal' if causal else 'full'}.{dtype}", {"q": x, "k": x, "v": x},
                [["Attention", ["q", "k", "v"], ["y"], {"is_causal": int(causal)}]], ["y"], 4 * batch * heads * length * length * size // (2 if causal else 1))


def sum_all(n, dtype):
    return Case(f"sum_all.{n}.{dtype}", {"x": {"shape": [n], "dtype": dtype}}, [["Mul", ["x", "x"], ["q"]], ["ReduceSum", ["q"], ["y"], {"keepdims": 0}]], ["y"])


def gpu():
    yield from seed_gemms(8192, 4096, 4096, "bf16")
    yield _renamed("seed.tail_bias_gelu_mask.8192x4096.bf16", FAMILIES["tail_bias_gelu_mask"](8192, 4096, "bf16"))
    for rows, columns in ((8192, 1024), (8192, 4096), (2048, 32768), (65536, 256), (16, 1048576)):
        for dtype in ("f32", "bf16"): yield FAMILIES["softmax"](rows, columns, dtype)
    for rows, columns in ((8192, 1024), (8192, 4096), (16384, 8192)):
        for family in ("add_layernorm", "rmsnorm"): yield FAMILIES[family](rows, columns, "bf16")
    yield FAMILIES["swiglu"](16384, 11008, "bf16")
    yield sum_all(67108864, "f32")
    yield FAMILIES["colsum"](65536, 1024, "f32")
    yield FAMILIES["transpose_add"](8192, 8192, "f32")
    yield rope(8, 32, 2048, 128, "bf16")
    for shape in ((8, 16, 2048, 64), (4, 16, 4096, 128), (32, 12, 512, 64)):
        for causal in (False, True): yield sdpa(*shape, causal, "bf16")


def cpu():
    """The same computations in f32, with 17 to 67 MB moved (products and attention: so that a call takes tens of milliseconds)."""
    yield from seed_gemms(1024, 1024, 1024, "f32")
    yield _renamed("seed.tail_bias_gelu_mask.2048x2048.f32", FAMILIES["tail_bias_gelu_mask"](2048, 2048, "f32"))
    for rows, columns in ((4096, 1024), (2048, 4096), (128, 32768), (16384, 256), (4, 1048576)): yield FAMILIES["softmax"](rows, columns, "f32")
    for rows, columns in ((4096, 1024), (1024, 4096), (512, 8192)):
        for family in ("add_layernorm", "rmsnorm"): yield FAMILIES[family](rows, columns, "f32")
    yield FAMILIES["swiglu"](1024, 4096, "f32")
    yield sum_all(8388608, "f32")
    yield FAMILIES["colsum"](8192, 1024, "f32")
    yield FAMILIES["transpose_add"](2048, 2048, "f32")
    yield rope(1, 32, 1024, 128, "f32")
    for causal in (False, True): yield sdpa(1, 12, 512, 64, causal, "f32")
