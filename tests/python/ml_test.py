"""Operators of the domain ai.onnx.ml against ONNX Runtime's kernels for the CPU: random trees, machines and tables over
dtypes, odd sizes and symbolic batches, and small pipelines of strings and maps. The command runs them as test folders,
which hold what arrays do not: strings, sequences, maps."""

from __future__ import annotations

import json
import subprocess
import unittest
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import onnx
import onnxruntime
from onnx import SequenceProto, helper, numpy_helper
from support import FOLDER, ROOT

RANDOM = numpy.random.default_rng(25)
NUMBERS = (numpy.float32, numpy.float64, numpy.int64, numpy.int32)
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
DOMAINS = dict.fromkeys(("ArgMax", "Concat", "Gather", "Reshape", "Slice", "TfIdfVectorizer", "Transpose", "Where"), "")
DOMAINS |= dict.fromkeys(("MurmurHash3", "Tokenizer"), "com.microsoft")
Attributes = dict[str, Any]


def one_of(choices: Sequence[Any]) -> Any:
    return choices[int(RANDOM.integers(len(choices)))]


def reals(count: int, low: float = -1.5, high: float = 1.5) -> list[float]:
    return [float(v) for v in RANDOM.uniform(low, high, count).astype(numpy.float32)]


def rows(features: int, dtype: Any = numpy.float32, nan: bool = False) -> numpy.ndarray:
    """Halves or any numbers, one to eight rows of them."""
    shape = (int(RANDOM.integers(1, 9)), features)
    x = RANDOM.integers(-4, 5, shape) / 2 if RANDOM.random() < 0.5 else RANDOM.normal(size=shape)
    if nan and numpy.dtype(dtype).kind == "f":
        x[RANDOM.random(shape) < 0.2] = numpy.nan
    return x.astype(dtype)


def strings(*shape: int, count: int = 6) -> numpy.ndarray:
    return numpy.array([f"s{v}" for v in RANDOM.integers(0, count, shape).ravel()], object).reshape(shape)


def labels(count: int, numbers: str) -> Attributes:
    if RANDOM.random() < 0.5:
        return {numbers: [int(v) for v in RANDOM.permutation(20)[:count]]}
    return {"classlabels_strings": [f"c{i}" for i in range(count)]}


@dataclass
class Case:
    """nodes: (operator, inputs, outputs, attributes), of the domain that DOMAINS names, else of ai.onnx.ml."""

    nodes: list[tuple[str, list[str], list[str], Attributes]]
    inputs: dict[str, numpy.ndarray]
    outputs: list[str]
    version: int = 1
    weights: dict[str, numpy.ndarray] = field(default_factory=dict)

    def model(self, symbolic: bool) -> onnx.ModelProto:
        nodes = [
            helper.make_node(op, inputs, outputs, domain=DOMAINS.get(op, "ai.onnx.ml"), **attributes)
            for op, inputs, outputs, attributes in self.nodes
        ]
        infos = []
        for name, x in self.inputs.items():
            shape: list[Any] = list(x.shape)
            if symbolic and x.ndim > 1:
                shape[0] = "n"
            kind = onnx.TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype)
            infos.append(helper.make_tensor_value_info(name, kind, shape))
        weights = [numpy_helper.from_array(w, name) for name, w in self.weights.items()]
        graph = helper.make_graph(nodes, "g", infos, [onnx.ValueInfoProto(name=y) for y in self.outputs], weights)
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", self.version), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)


def of_one(op: str, x: numpy.ndarray, attributes: Attributes, outputs: int = 1, version: int = 1) -> Case:
    names = [f"y{i}" for i in range(outputs)]
    return Case([(op, ["x"], names, attributes)], {"x": x}, names, version)


# ---- trees
def grown(prefix: str, targets: int, features: int, of: str, positive: bool = False, mixed: bool = False) -> Attributes:
    """Trees whose leaves have weights of "all" targets, of one for each "tree", or of one for each "leaf"; or of a number."""
    a: Attributes = {}

    def put(name: str, value: Any) -> None:
        a.setdefault(name, []).append(value)

    mode, missing = one_of(MODES), RANDOM.random() < 0.4
    for tree in range(int(RANDOM.integers(1, 6))):
        own, count = int(RANDOM.integers(targets)), 0

        def grow(depth: int) -> int:
            nonlocal count
            node, count = count, count + 1
            leaf = depth == 0 or RANDOM.random() < 0.2
            for name, value in (("treeids", tree), ("nodeids", node), ("featureids", 0 if leaf else int(RANDOM.integers(features)))):  # noqa: B023
                put(f"nodes_{name}", value)
            put("nodes_modes", "LEAF" if leaf else one_of(MODES) if mixed else mode)
            put("nodes_values", 0.0 if leaf else float(RANDOM.integers(-4, 5) / 2))
            if missing:
                put("nodes_missing_value_tracks_true", int(RANDOM.integers(2)))
            at = len(a["nodes_nodeids"]) - 1
            put("nodes_truenodeids", 0)
            put("nodes_falsenodeids", 0)
            if not leaf:
                a["nodes_truenodeids"][at] = grow(depth - 1)
                a["nodes_falsenodeids"][at] = grow(depth - 1)
                return node
            each = {"all": list(range(targets)), "tree": [own], "leaf": [int(RANDOM.integers(targets))]}.get(of) or [int(of)]  # noqa: B023
            for target in each:
                for name, value in (("treeids", tree), ("nodeids", node), ("ids", target)):  # noqa: B023
                    put(f"{prefix}_{name}", value)
                put(f"{prefix}_weights", reals(1, 0.0 if positive else -1.5, 0.5 if positive else 1.5)[0])
            return node

        grow(int(RANDOM.integers(1, 5)))
    return a


def tree_regressor() -> Case:
    features, targets = int(RANDOM.integers(1, 5)), int(RANDOM.integers(1, 4))
    of = one_of(("all", "tree", "leaf"))
    a = grown("target", targets, features, of, mixed=RANDOM.random() < 0.4)
    a |= {"n_targets": targets, "aggregate_function": one_of(("SUM", "AVERAGE", "MIN", "MAX")), "post_transform": one_of(TRANSFORMS)}
    if RANDOM.random() < 0.6:
        a["base_values"] = reals(targets)
    return of_one("TreeEnsembleRegressor", rows(features, one_of(NUMBERS[:2]), nan=True), a, version=3)


def tree_classifier() -> Case:
    features, classes = int(RANDOM.integers(1, 5)), int(RANDOM.integers(2, 5))
    of = one_of(("all", "0", "1", "tree", "leaf") if classes == 2 else ("all", "tree", "leaf"))
    a = grown("class", classes, features, of, positive=RANDOM.random() < 0.5, mixed=RANDOM.random() < 0.4)
    bases = one_of((0, 1, 2) if classes == 2 else (0, classes))
    a |= {"post_transform": one_of((*TRANSFORMS, "PROBIT"))} | labels(classes, "classlabels_int64s")
    if bases:
        a["base_values"] = reals(bases)
    case = of_one("TreeEnsembleClassifier", rows(features, one_of(NUMBERS), nan=True), a, 2, version=3)
    # ONNX Runtime writes one of two scores of a row that has none of the second class.
    if classes == 2 and (bases == 1 or a["post_transform"] == "PROBIT"):
        case.nodes.append(("Slice", ["y1", "zero", "one", "one"], ["first"], {}))
        case.outputs = ["y0", "first"]
        case.weights = {"zero": numpy.array([0], numpy.int64), "one": numpy.array([1], numpy.int64)}
    return case


def tree_ensemble() -> Case:
    """Transforms 1 and 2 have each other's numbers in ONNX Runtime, and its sets of members take integers."""
    dtype, features, targets = one_of(NUMBERS[:2]), int(RANDOM.integers(1, 4)), int(RANDOM.integers(1, 4))
    nodes: list[dict[str, Any]] = []
    leaves: list[float] = []
    member = RANDOM.random() < 0.5

    def grow(depth: int) -> int:
        node = len(nodes)
        nodes.append({"mode": int(RANDOM.integers(7 if member else 6)), "feature": int(RANDOM.integers(features)), "split": RANDOM.integers(-4, 5) / 2})
        for way in ("true", "false"):
            leaf = depth == 0 or RANDOM.random() < 0.3
            leaves.extend(reals(1) if leaf else [])
            nodes[node][way] = (int(leaf), len(leaves) - 1 if leaf else grow(depth - 1))
        return node

    roots = [grow(int(RANDOM.integers(3))) for _ in range(int(RANDOM.integers(1, 4)))]
    members: list[float] = []
    for node in nodes:
        if node["mode"] == 6:
            members += [*RANDOM.choice(numpy.arange(0, 9), int(RANDOM.integers(1, 6)), replace=False), numpy.nan]
    tensor: Callable[[Any], onnx.TensorProto] = lambda values: numpy_helper.from_array(numpy.array(values, dtype))  # noqa: E731
    a = {
        "aggregate_function": int(RANDOM.integers(4)), "post_transform": one_of((0, 3)), "n_targets": targets, "tree_roots": roots,
        "nodes_modes": numpy_helper.from_array(numpy.array([n["mode"] for n in nodes], numpy.uint8)), "nodes_featureids": [n["feature"] for n in nodes],
        "nodes_splits": tensor([n["split"] for n in nodes]), "leaf_weights": tensor(leaves), "leaf_targetids": [int(RANDOM.integers(targets)) for _ in leaves],
    }  # fmt: skip
    for way in ("true", "false"):
        a |= {f"nodes_{way}nodeids": [n[way][1] for n in nodes], f"nodes_{way}leafs": [n[way][0] for n in nodes]}
    if members:
        a["membership_values"] = tensor(members)
    elif RANDOM.random() < 0.4:
        a["nodes_missing_value_tracks_true"] = [int(v) for v in RANDOM.integers(0, 2, len(nodes))]
    x = RANDOM.integers(-1, 9, (7, features)).astype(dtype) if member else rows(features, dtype, nan=True)
    return of_one("TreeEnsemble", x, a, version=5)


def deep_tree() -> Case:
    """A chain of 70 branches: deeper than what is written out."""
    n = 70
    ids = list(range(2 * n + 1))
    a = {
        "nodes_treeids": [0] * len(ids), "nodes_nodeids": ids, "nodes_featureids": [0] * len(ids), "n_targets": 1,
        "nodes_modes": ["BRANCH_LT"] * n + ["LEAF"] * (n + 1), "nodes_values": [float(i) for i in range(n)] + [0.0] * (n + 1),
        "nodes_truenodeids": [n + i for i in range(n)] + [0] * (n + 1), "nodes_falsenodeids": [*range(1, n), 2 * n] + [0] * (n + 1),
        "target_treeids": [0] * (n + 1), "target_nodeids": ids[n:], "target_ids": [0] * (n + 1), "target_weights": reals(n + 1),
    }  # fmt: skip
    return of_one("TreeEnsembleRegressor", numpy.array([[-1], [0.5], [33], [68.5], [100]], numpy.float32), a, version=3)


# ---- linear models and machines
def linear_regressor() -> Case:
    features, targets = int(RANDOM.integers(1, 6)), int(RANDOM.integers(1, 4))
    a = {"coefficients": reals(features * targets), "targets": targets, "post_transform": one_of(TRANSFORMS)}
    if RANDOM.random() < 0.7:
        a["intercepts"] = reals(targets)
    return of_one("LinearRegressor", rows(features), a)


def linear_classifier() -> Case:
    features, classes = int(RANDOM.integers(1, 6)), int(RANDOM.integers(1, 5))
    a = {"coefficients": reals(features * classes), "intercepts": reals(classes), "post_transform": one_of(TRANSFORMS)}
    return of_one("LinearClassifier", rows(features, one_of(NUMBERS)), a | labels(max(classes, 2), "classlabels_ints"), 2)


def kernel() -> Attributes:
    params = [float(numpy.float32(0.3 + RANDOM.random())), *reals(1), float(RANDOM.integers(2, 4))]
    return {"kernel_type": one_of(("LINEAR", "POLY", "RBF", "SIGMOID")), "kernel_params": params}


def svm_regressor() -> Case:
    features, vectors = int(RANDOM.integers(1, 5)), int(RANDOM.integers(0, 5))
    a = kernel() | {"rho": reals(1), "n_supports": vectors, "one_class": int(RANDOM.integers(2)), "coefficients": reals(vectors or features)}
    if vectors:
        a["support_vectors"] = reals(vectors * features)
    return of_one("SVMRegressor", rows(features), a)


def svm_classifier(classes: int = 0) -> Case:
    features, classes = int(RANDOM.integers(1, 5)), classes or int(RANDOM.integers(2, 6))
    per_class = [int(v) for v in RANDOM.integers(1, 4, classes)]
    vectors, pairs = sum(per_class), classes * (classes - 1) // 2
    a = kernel()
    if RANDOM.random() < 0.8 or classes > 6:
        a |= {"rho": reals(pairs), "coefficients": reals(vectors * (classes - 1)), "support_vectors": reals(vectors * features), "vectors_per_class": per_class}
        if RANDOM.random() < 0.5 or classes > 6:
            a |= {"prob_a": reals(pairs, -1.5, -0.5), "prob_b": reals(pairs, -0.3, 0.3)}
    else:
        a |= {"rho": reals(1), "coefficients": reals(classes * features)}
    if RANDOM.random() < 0.4:
        a["post_transform"] = one_of(TRANSFORMS)
    return of_one("SVMClassifier", rows(features, one_of(NUMBERS)), a | labels(classes, "classlabels_ints"), 2)


def many_classes() -> Case:
    """More classes than a sweep over their probabilities writes out."""
    return svm_classifier(18)


# ---- features and labels
def scaler() -> Case:
    features = int(RANDOM.integers(1, 5))
    count = one_of((1, features))
    return of_one("Scaler", rows(features, one_of(NUMBERS)), {"scale": reals(count), "offset": reals(count)})


def normalizer() -> Case:
    return of_one("Normalizer", rows(int(RANDOM.integers(1, 5)), one_of(NUMBERS)), {"norm": one_of(("MAX", "L1", "L2"))})


def imputer() -> Case:
    features = int(RANDOM.integers(1, 5))
    count = one_of((1, features))
    if RANDOM.random() < 0.6:
        missing = one_of((float("nan"), 0.0, 1.0))
        return of_one("Imputer", rows(features, nan=True), {"imputed_value_floats": reals(count), "replaced_value_float": missing})
    a = {"imputed_value_int64s": [int(v) for v in RANDOM.integers(5, 9, count)], "replaced_value_int64": int(RANDOM.integers(-1, 2))}
    return of_one("Imputer", rows(features, numpy.int64), a)


def binarizer() -> Case:
    return of_one("Binarizer", rows(3), {"threshold": one_of((-0.5, 0.0, 1.0))})


def extractor() -> Case:
    features = int(RANDOM.integers(1, 6))
    x = rows(features, one_of(NUMBERS)) if RANDOM.random() < 0.7 else strings(3, features)
    if RANDOM.random() < 0.2:
        x = x[0]
    at = RANDOM.integers(0, features, one_of(((3,), (1, 2), (1,)))).astype(numpy.int64)
    return Case([("ArrayFeatureExtractor", ["x", "at"], ["y"], {})], {"x": x}, ["y"], weights={"at": at})


def vectorizer() -> Case:
    dtype, inputs, sizes = one_of(NUMBERS), {}, []
    count = int(RANDOM.integers(1, 5))
    for i in range(int(RANDOM.integers(1, 4))):
        features = int(RANDOM.integers(1, 4))
        inputs[f"x{i}"] = RANDOM.integers(-4, 5, (count, features)).astype(dtype)
        sizes.append(max(features + int(RANDOM.integers(-1, 2)), 1))
    return Case([("FeatureVectorizer", list(inputs), ["y"], {"inputdimensions": sizes})], inputs, ["y"])


def one_hot() -> Case:
    categories = [int(v) for v in RANDOM.permutation(6)[: int(RANDOM.integers(1, 5))]]
    if RANDOM.random() < 0.7:
        x = RANDOM.integers(-1, 6, one_of(((4,), (3, 2)))).astype(one_of((numpy.int64, numpy.float32, numpy.float64)))
        return of_one("OneHotEncoder", x, {"cats_int64s": categories})
    return of_one("OneHotEncoder", strings(5), {"cats_strings": [f"s{v}" for v in categories]})


def label_encoder() -> Case:
    kinds = {"int64s": numpy.int64, "strings": object, "floats": numpy.float32}
    key, value = one_of((("int64s", "int64s"), ("int64s", "strings"), ("int64s", "floats"), ("strings", "int64s"), ("strings", "strings"),
                         ("strings", "floats"), ("floats", "int64s"), ("floats", "strings"), ("floats", "floats")))  # fmt: skip

    def values(kind: str, numbers: Any) -> list[Any]:
        return [f"s{v}" if kind == "strings" else float(v) / 2 if kind == "floats" else int(v) for v in numbers]

    count = int(RANDOM.integers(1, 10))
    a: Attributes = {f"keys_{key}": values(key, RANDOM.choice(numpy.arange(-6, 12), count, replace=False)), f"values_{value}": values(value, RANDOM.integers(0, 50, count))}
    if RANDOM.random() < 0.5:
        a |= {"default_string": "none", "default_int64": 77, "default_float": 0.25}
    x = numpy.array(values(key, RANDOM.integers(-7, 13, one_of((3, 10)))), kinds[key])
    return of_one("LabelEncoder", x.reshape(-1, 1) if RANDOM.random() < 0.3 else x, a, version=2)


def old_label_encoder() -> Case:
    x = strings(6) if RANDOM.random() < 0.5 else RANDOM.integers(-1, 5, 6).astype(numpy.int64)
    return of_one("LabelEncoder", x, {"classes_strings": [f"s{i}" for i in RANDOM.permutation(5)[:4]], "default_int64": 9})


def category_mapper() -> Case:
    x = strings(6) if RANDOM.random() < 0.5 else RANDOM.integers(-1, 5, 6).astype(numpy.int64)
    a = {"cats_strings": [f"s{i}" for i in range(4)], "cats_int64s": [int(v) for v in RANDOM.permutation(5)[:4]], "default_string": "none"}
    return of_one("CategoryMapper", x, a)


def zip_map() -> Case:
    count = int(RANDOM.integers(1, 4))
    return of_one("ZipMap", rows(count), labels(count, "classlabels_int64s"))


# ---- pipelines
def columns() -> Case:
    """Numbers imputed and scaled, strings encoded, joined; a forest; probabilities as maps."""
    forest = grown("class", 3, 5, "all", positive=True) | {"classlabels_strings": ["no", "maybe", "yes"]}
    return Case(
        [
            ("Imputer", ["numbers"], ["whole"], {"imputed_value_floats": reals(2), "replaced_value_float": float("nan")}),
            ("Scaler", ["whole"], ["scaled"], {"scale": reals(2), "offset": reals(2)}),
            ("ArrayFeatureExtractor", ["words", "second"], ["word"], {}),
            ("OneHotEncoder", ["word"], ["hot"], {"cats_strings": ["s1", "s2", "s4"]}),
            ("Reshape", ["hot", "flat"], ["flags"], {}),
            ("Concat", ["scaled", "flags"], ["features"], {"axis": 1}),
            ("TreeEnsembleClassifier", ["features"], ["label", "scores"], forest),
            ("ZipMap", ["scores"], ["probabilities"], {"classlabels_strings": forest["classlabels_strings"]}),
        ],
        {"numbers": numpy.array([[0.5, numpy.nan], [1, 2], [-1, 0], [numpy.nan, numpy.nan]], numpy.float32), "words": strings(4, 2)},
        ["label", "probabilities"],
        version=3,
        weights={"second": numpy.array([1], numpy.int64), "flat": numpy.array([-1, 3], numpy.int64)},
    )


def machine() -> Case:
    """Rows normalised, a machine with probabilities, its label as an integer."""
    a = kernel() | {"rho": reals(3), "coefficients": reals(10), "support_vectors": reals(15), "vectors_per_class": [2, 1, 2]}
    a |= {"prob_a": reals(3, -1.5, -0.5), "prob_b": reals(3, -0.3, 0.3), "classlabels_strings": ["a", "b", "c"]}
    return Case(
        [
            ("Normalizer", ["x"], ["unit"], {"norm": "L2"}),
            ("SVMClassifier", ["unit"], ["text", "scores"], a),
            ("LabelEncoder", ["text"], ["label"], {"keys_strings": ["c", "b", "a"], "values_int64s": [2, 1, 0]}),
            ("ArgMax", ["scores"], ["best"], {"axis": 1, "keepdims": 0}),
        ],
        {"x": rows(3)},
        ["label", "scores", "best"],
        version=2,
    )


def moved_strings() -> Case:
    """Operators that move elements move strings."""
    return Case(
        [
            ("Concat", ["a", "b"], ["joined"], {"axis": 1}),
            ("Transpose", ["joined"], ["turned"], {}),
            ("Slice", ["turned", "one", "three"], ["cut"], {}),
            ("Gather", ["cut", "at"], ["picked"], {"axis": 1}),
            ("Reshape", ["picked", "flat"], ["y"], {}),
        ],
        {"a": strings(3, 2), "b": strings(3, 2)},
        ["y", "turned"],
        weights={n: numpy.array(v, numpy.int64) for n, v in {"one": [1], "three": [3], "at": [2, 0], "flat": [-1]}.items()},
    )


def words() -> Case:
    """Tokens of texts, their hashes, and how often words stand in a text."""
    text = numpy.array([" ".join(f"w{v}," if v % 3 else f"\u00e9{v}" for v in RANDOM.integers(0, 9, count)) for count in (4, 0, 7, 1)], object)
    expression = one_of(({"tokenexp": "[a-z0-9]+"}, {"separators": [" ", ","]}, {"separators": [""]}, {"separators": ["[ ,]+"]}))
    counts = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0, "ngram_counts": [0, 2], "ngram_indexes": [2, 0, 1]}
    return Case(
        [
            ("Tokenizer", ["x"], ["tokens"], {"mark": int(RANDOM.integers(2)), "pad_value": "", "mincharnum": int(RANDOM.integers(1, 3))} | expression),
            ("MurmurHash3", ["tokens"], ["hashes"], {"seed": int(RANDOM.integers(99)), "positive": int(RANDOM.integers(2))}),
            ("TfIdfVectorizer", ["tokens"], ["counts"], counts | {"pool_strings": ["w1", "w2", "w4", "w5"]}),
        ],
        {"x": text},
        ["tokens", "hashes", "counts"],
    )


# ---- running them
def proto_of(value: Any, name: str) -> Any:
    if isinstance(value, list):
        maps = SequenceProto(name=name, elem_type=SequenceProto.MAP)
        for entries in value:
            one = maps.map_values.add()
            keys = list(entries)
            if isinstance(keys[0], str):
                one.key_type = onnx.TensorProto.STRING
                one.string_keys.extend(k.encode() for k in keys)
            else:
                one.key_type = onnx.TensorProto.INT64
                one.keys.extend(keys)
            one.values.elem_type = SequenceProto.TENSOR
            one.values.tensor_values.extend(numpy_helper.from_array(numpy.array(entries[k], numpy.float32)) for k in keys)
        return maps
    return numpy_helper.from_array(value, name)


class AgainstOnnxRuntime(unittest.TestCase):
    def check(self, makers: dict[Callable[[], Case], int]) -> None:
        """Runs as many cases of each maker."""
        folder = FOLDER / self.id()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        for number, make in enumerate(m for m, times in makers.items() for _ in range(times)):
            case = make()
            model = case.model(symbolic=number % 2 == 1)
            session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            place = folder / f"{number:03}_{make.__name__}" / "test_data_set_0"
            place.mkdir(parents=True)
            onnx.save(model, place.parent / "model.onnx")
            (place.parent / "data.json").write_text(json.dumps({"rtol": 1e-4, "atol": 1e-5}))
            for i, (name, x) in enumerate(case.inputs.items()):
                (place / f"input_{i}.pb").write_bytes(proto_of(x, name).SerializeToString())
            for i, (name, y) in enumerate(zip(case.outputs, session.run(None, case.inputs), strict=True)):
                (place / f"output_{i}.pb").write_bytes(proto_of(y, name).SerializeToString())
        command = [str(ROOT / "build" / "bin" / "tessera"), "test", str(folder), "--jobs", "2", "--json", str(folder / "report.json")]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        counts = json.loads((folder / "report.json").read_text())["counts"]
        self.assertEqual(counts["pass"], sum(makers.values()), run.stdout)

    def test_trees(self) -> None:
        self.check({tree_regressor: 25, tree_classifier: 25, tree_ensemble: 25, deep_tree: 1})

    def test_linear_models(self) -> None:
        self.check({linear_regressor: 8, linear_classifier: 12})

    def test_machines(self) -> None:
        self.check({svm_regressor: 10, svm_classifier: 25, many_classes: 1})

    def test_features(self) -> None:
        self.check(dict.fromkeys((scaler, normalizer, imputer, binarizer, extractor, vectorizer, one_hot), 8))

    def test_labels(self) -> None:
        self.check({label_encoder: 24, old_label_encoder: 6, category_mapper: 6, zip_map: 8})

    def test_pipelines(self) -> None:
        self.check({columns: 4, machine: 4, moved_strings: 2, words: 10})


if __name__ == "__main__":
    unittest.main()
