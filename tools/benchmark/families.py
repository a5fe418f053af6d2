"""Families of cases: a computation over `rows` by `columns` elements of a type. The suite, the sweep and files of cases take from them."""
from .case import Case

LAST = {"axis": -1}


def _matrix(rows, columns, dtype, **more):
    return {"shape": [rows, columns], "dtype": dtype, **more}


def _vector(n, dtype, data="normal"):
    return {"shape": [n], "dtype": dtype, "data": data}


def _name(family, rows, columns, dtype):
    return f"{family}.{rows}x{columns}.{dtype}"


def _one_input(family, nodes):
    """x, rows by columns, through `nodes` to y."""
    def make(rows, columns, dtype="f32"):
        return Case(_name(family, rows, columns, dtype), {"x": _matrix(rows, columns, dtype)}, nodes(columns), ["y"], family=family)
    return make


def masked_softmax(rows, columns, dtype="f32"):
    return Case(_name("masked_softmax", rows, columns, dtype),
                {"x": _matrix(rows, columns, dtype), "m": _matrix(rows, columns, "bool", data="mask"),
                 "scale": {"shape": [], "dtype": dtype, "data": 0.125}, "low": {"shape": [], "dtype": dtype, "data": -30000.0}},
                [["Mul", ["x", "scale"], ["s"]], ["Where", ["m", "s", "low"], ["w"]], ["Softmax", ["w"], ["y"], LAST]], ["y"], family="masked_softmax")


def softmax_transposed(rows, columns, dtype="f32"):
    return Case(_name("softmax_transposed", rows, columns, dtype), {"x": _matrix(columns, rows, dtype)},
                [["Transpose", ["x"], ["t"], {"perm": [1, 0]}], ["Softmax", ["t"], ["y"], LAST]], ["y"], family="softmax_transposed")


def softmax_strided(rows, columns, dtype="f32"):
    """Every second column of a wider matrix."""
    return Case(_name("softmax_strided", rows, columns, dtype), {"x": _matrix(rows, 2 * columns, dtype)},
                [["Slice", ["x"], ["t"], {"starts": [0], "ends": [2 * columns], "axes": [1], "steps": [2]}], ["Softmax", ["t"], ["y"], LAST]], ["y"], family="softmax_strided")


def layer_norm(rows, columns, dtype="f32"):
    return Case(_name("layer_norm", rows, columns, dtype), {"x": _matrix(rows, columns, dtype), "g": _vector(columns, dtype), "b": _vector(columns, dtype)},
                [["LayerNormalization", ["x", "g", "b"], ["y"], LAST]], ["y"], family="layer_norm")


def add_layernorm(rows, columns, dtype="bf16"):
    """Both the sum and its norm are results."""
    return Case(_name("add_layernorm", rows, columns, dtype),
                {"x": _matrix(rows, columns, dtype), "r": _matrix(rows, columns, dtype), "g": _vector(columns, dtype), "b": _vector(columns, dtype)},
                [["Add", ["x", "r"], ["z"]], ["LayerNormalization", ["z", "g", "b"], ["y"], LAST]], ["y", "z"], family="add_layernorm")


def add_layer_norm_gelu(rows, columns, dtype="f16"):
    return Case(_name("add_layer_norm_gelu", rows, columns, dtype),
                {"x": _matrix(rows, columns, dtype), "r": _matrix(rows, columns, dtype), "g": _vector(columns, dtype), "b": _vector(columns, dtype)},
                [["Add", ["x", "r"], ["z"]], ["LayerNormalization", ["z", "g", "b"], ["n"], LAST], ["Gelu", ["n"], ["y"]]], ["y"], family="add_layer_norm_gelu")


def rmsnorm(rows, columns, dtype="bf16"):
    return Case(_name("rmsnorm", rows, columns, dtype), {"x": _matrix(rows, columns, dtype), "g": _vector(columns, dtype)},
                [["RMSNormalization", ["x", "g"], ["y"], LAST]], ["y"], family="rmsnorm")


def add_rms_norm_silu(rows, columns, dtype="bf16"):
    return Case(_name("add_rms_norm_silu", rows, columns, dtype), {"x": _matrix(rows, columns, dtype), "r": _matrix(rows, columns, dtype), "g": _vector(columns, dtype)},
                [["Add", ["x", "r"], ["z"]], ["RMSNormalization", ["z", "g"], ["n"], LAST], ["Silu", ["n"], ["y"]]], ["y", "z"], family="add_rms_norm_silu")


def group_norm_silu(rows, columns, dtype="f16"):
    """`rows` groups of `columns` elements: images of 8 groups of 4 channels where that divides, else one group and channel each."""
    groups = 8 if rows % 8 == 0 else 1
    channels = groups * (4 if columns % 4 == 0 else 1)
    shape = [rows // groups, channels, columns * groups // channels]
    return Case(_name("group_norm_silu", rows, columns, dtype), {"x": {"shape": shape, "dtype": dtype}, "g": _vector(channels, dtype), "b": _vector(channels, dtype)},
                [["GroupNormalization", ["x", "g", "b"], ["n"], {"num_groups": groups}], ["Silu", ["n"], ["y"]]], ["y"], family="group_norm_silu")


def swiglu(rows, columns, dtype="bf16"):
    return Case(_name("swiglu", rows, columns, dtype), {"g": _matrix(rows, columns, dtype), "u": _matrix(rows, columns, dtype)},
                [["Silu", ["g"], ["s"]], ["Mul", ["s", "u"], ["y"]]], ["y"], family="swiglu")


def tail_bias_gelu_mask(rows, columns, dtype="bf16"):
    return Case(_name("tail_bias_gelu_mask", rows, columns, dtype),
                {"z": _matrix(rows, columns, dtype), "b": _vector(columns, dtype), "m": _matrix(rows, columns, dtype, data="mask")},
                [["Add", ["z", "b"], ["s"]], ["Gelu", ["s"], ["g"]], ["Mul", ["g", "m"], ["y"]]], ["y"], family="tail_bias_gelu_mask")


def row_broadcast(rows, columns, dtype="f32"):
    """A number a row and one a column, both over the matrix."""
    return Case(_name("row_broadcast", rows, columns, dtype), {"x": _matrix(rows, columns, dtype), "a": _matrix(rows, 1, dtype), "b": _vector(columns, dtype)},
                [["Mul", ["x", "a"], ["s"]], ["Add", ["s", "b"], ["t"]], ["Tanh", ["t"], ["y"]]], ["y"], family="row_broadcast")


def mixed_types(rows, columns, dtype="f16"):
    """A half-wide matrix, and a wide one that is half-wide again afterwards."""
    return Case(_name("mixed_types", rows, columns, dtype), {"x": _matrix(rows, columns, dtype), "r": _matrix(rows, columns, "f32"), "m": _matrix(rows, columns, "bool", data="mask"),
                                                             "none": {"shape": [], "dtype": "f32", "data": 0.0}},
                [["Cast", ["x"], ["w"], {"to": "f32"}], ["Add", ["w", "r"], ["s"]], ["Where", ["m", "s", "none"], ["k"]], ["Cast", ["k"], ["y"], {"to": dtype}]], ["y"], family="mixed_types")


def transpose_add(rows, columns, dtype="f32"):
    return Case(_name("transpose_add", rows, columns, dtype),
                {"x": _matrix(rows, columns, dtype), "y": _matrix(columns, rows, dtype), "two": {"shape": [], "dtype": dtype, "data": 2.0}},
                [["Transpose", ["y"], ["t"], {"perm": [1, 0]}], ["Mul", ["t", "two"], ["d"]], ["Add", ["x", "d"], ["o"]]], ["o"], family="transpose_add")


def _compared(name, reduce):
    def make(rows, columns, dtype="f32"):
        return Case(_name(name, rows, columns, dtype), {"x": _matrix(rows, columns, dtype), "t": {"shape": [], "dtype": dtype, "data": 3.0 if name == "any" else -3.0}},
                    [["Greater", ["x", "t"], ["c"]], [reduce, ["c"], ["y"], {"axes": [1], "keepdims": 0}]], ["y"], family=name)
    return make


def sum_all(rows, columns, dtype="f32"):
    """The sum of squares of everything: one number."""
    return Case(_name("sum_all", rows, columns, dtype), {"x": _matrix(rows, columns, dtype)},
                [["Mul", ["x", "x"], ["q"]], ["ReduceSum", ["q"], ["y"], {"keepdims": 0}]], ["y"], family="sum_all")


FAMILIES = {
    "softmax": _one_input("softmax", lambda n: [["Softmax", ["x"], ["y"], LAST]]),
    "log_softmax": _one_input("log_softmax", lambda n: [["LogSoftmax", ["x"], ["y"], LAST]]),
    "masked_softmax": masked_softmax, "softmax_transposed": softmax_transposed, "softmax_strided": softmax_strided,
    "layer_norm": layer_norm, "add_layernorm": add_layernorm, "add_layer_norm_gelu": add_layer_norm_gelu,
    "rmsnorm": rmsnorm, "add_rms_norm_silu": add_rms_norm_silu, "group_norm_silu": group_norm_silu,
    "argmax": _one_input("argmax", lambda n: [["ArgMax", ["x"], ["y"], {"axis": 1, "keepdims": 0}]]),
    "variance": _one_input("variance", lambda n: [["Variance", ["x"], ["y"], {"axes": [1], "keepdims": 0}]]),
    "any": _compared("any", "ReduceMax"), "all": _compared("all", "ReduceMin"),
    "cumsum": _one_input("cumsum", lambda n: [["CumSum", ["x"], ["y"], {"axis": 1}]]),
    "colsum": _one_input("colsum", lambda n: [["Tanh", ["x"], ["t"]], ["ReduceSum", ["t"], ["y"], {"axes": [0], "keepdims": 0}]]),
    "sum_all": sum_all, "swiglu": swiglu, "tail_bias_gelu_mask": tail_bias_gelu_mask, "row_broadcast": row_broadcast, "mixed_types": mixed_types,
    "transpose_add": transpose_add,
}
