#!/usr/bin/env python3
"""Every estimator of scikit-learn that skl2onnx converts, and pipelines of them, as ONNX models in the layout of ONNX's backend tests: what
ONNX Runtime computes at two batches is expected.

    skl2onnx_models.py FOLDER [NAME...]      then: tessera test FOLDER

Needs an environment with scikit-learn, skl2onnx and onnxruntime, apart from that of the other tools; no test of ours runs it.
"""
import logging, os, shutil, sys, warnings

import numpy as np
import onnx, onnxruntime
from onnx import numpy_helper
from skl2onnx import to_onnx
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, Int64TensorType, StringTensorType
from sklearn import compose, ensemble, feature_extraction, feature_selection, linear_model, pipeline, preprocessing, svm, tree
from sklearn.utils import all_estimators

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
onnxruntime.set_default_logger_severity(4)
RNG = np.random.default_rng(5)
X = np.abs(RNG.standard_normal((60, 5))).astype(np.float32)
CLASSES = (X @ [1, -2, 0.5, 1, -1] > 0).astype(int) + (X[:, 0] > 1)
WORDS = np.array(["red", "green", "blue", "a day", "a night"])[RNG.integers(0, 5, (60, 2))]
TEXTS = np.array([" ".join(RNG.choice(["the", "cat", "sat", "on", "mats", "dogs"], 6)) for _ in range(60)])
BATCHES = ((0, 3), (20, 31))
TEXT = {kind: {"locale": "C"} for kind in (feature_extraction.text.CountVectorizer, feature_extraction.text.TfidfVectorizer)}


def made(kind):
    """An estimator with the arguments that it cannot do without."""
    base = {"estimator": tree.DecisionTreeClassifier(max_depth=3)} if "Classifier" in kind.__name__ or "Chain" in kind.__name__ else {}
    for arguments in ({}, base, {"estimator": linear_model.LogisticRegression()}, {"estimator": linear_model.Ridge()}, {"estimators": [("a", linear_model.LogisticRegression()), ("b", tree.DecisionTreeClassifier(max_depth=2))]}, {"estimators": [("a", linear_model.Ridge()), ("b", tree.DecisionTreeRegressor(max_depth=2))]}):  # fmt: skip
        try:
            estimator = kind(**arguments)
            for name, value in {"n_estimators": 6, "random_state": 0, "max_iter": 60, "n_components": 2, "probability": True}.items():
                if name in estimator.get_params(): estimator.set_params(**{name: value})
            for y in (CLASSES, X @ np.arange(1.0, 6.0, dtype=np.float32), np.stack([CLASSES, CLASSES[::-1] > 0], 1), None):
                try: return estimator.fit(X) if y is None else estimator.fit(X, y)
                except Exception: continue
        except Exception: continue
    raise ValueError("no arguments that fit were found")


def pipelines():
    """Name: (fitted pipeline, its inputs by name with their type)."""
    numbers, words = {"x": (X, FloatTensorType)}, {"w": (WORDS, StringTensorType)}
    def fitted(inputs, *steps): return pipeline.make_pipeline(*steps).fit(next(iter(inputs.values()))[0], CLASSES), inputs
    def texts(step): return fitted({"t": (TEXTS.reshape(-1, 1), StringTensorType)}, compose.ColumnTransformer([("t", step, 0)]), linear_model.LogisticRegression())
    named = np.array(["low", "middle", "high"])[CLASSES]
    columns = compose.ColumnTransformer([("scaled", preprocessing.StandardScaler(), [0, 1, 2]), ("cut", preprocessing.KBinsDiscretizer(3, encode="ordinal"), [3]), ("kept", "passthrough", [4])])
    return {
        "scaled_svc": fitted(numbers, preprocessing.StandardScaler(), svm.SVC(probability=True)),
        "polynomial_ridge": (pipeline.make_pipeline(preprocessing.PolynomialFeatures(2), linear_model.Ridge()).fit(X, X[:, 0] * X[:, 1]), numbers),
        "selected_forest": fitted(numbers, feature_selection.SelectKBest(k=3), ensemble.RandomForestClassifier(12, random_state=0)),
        "columns_boosting": fitted(numbers, columns, ensemble.GradientBoostingClassifier(n_estimators=8, random_state=0)),
        "string_labels": (ensemble.RandomForestClassifier(8, random_state=0).fit(X, named), numbers),
        "doubles": (linear_model.LogisticRegression().fit(X.astype(np.float64), CLASSES), {"x": (X.astype(np.float64), DoubleTensorType)}),
        "integers": (tree.DecisionTreeClassifier(random_state=0).fit((X * 9).astype(np.int64), CLASSES), {"x": ((X * 9).astype(np.int64), Int64TensorType)}),
        "one_hot_words": fitted(words, preprocessing.OneHotEncoder(handle_unknown="ignore"), linear_model.LogisticRegression()),
        "ordinal_words": fitted(words, preprocessing.OrdinalEncoder(), tree.DecisionTreeClassifier(random_state=0)),
        "counted_texts": texts(feature_extraction.text.CountVectorizer()), "tfidf_texts": texts(feature_extraction.text.TfidfVectorizer(ngram_range=(1, 2))),
    }  # fmt: skip


def write(folder, model, inputs, options, opset):
    types = [(name, type_([None, value.shape[1]])) for name, (value, type_) in inputs.items()]
    proto = to_onnx(model, initial_types=types, options=options, target_opset=opset)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    os.makedirs(folder, exist_ok=True)
    onnx.save(proto, f"{folder}/model.onnx")
    for k, (begin, end) in enumerate(BATCHES):
        feeds = {name: (value[begin:end].astype(object) if value.dtype.kind == "U" else value[begin:end]) for name, (value, _) in inputs.items()}
        results = session.run(None, feeds)
        data = f"{folder}/test_data_set_{k}"
        os.makedirs(data, exist_ok=True)
        def put(name, value): open(f"{data}/{name}.pb", "wb").write(value.SerializeToString())
        for i, arg in enumerate(session.get_inputs()): put(f"input_{i}", numpy_helper.from_array(feeds[arg.name], arg.name))
        for i, (result, arg) in enumerate(zip(results, session.get_outputs())):
            if isinstance(result, list): put(f"output_{i}", list_of_maps(result, proto.graph.output[i].type.sequence_type.elem_type.map_type.key_type, arg.name))
            else: put(f"output_{i}", numpy_helper.from_array(np.asarray(result), arg.name))


def list_of_maps(maps, key_type, name):
    out = onnx.SequenceProto(name=name, elem_type=onnx.SequenceProto.MAP)
    for m in maps:
        item = out.map_values.add(key_type=key_type)
        if key_type == onnx.TensorProto.STRING: item.string_keys.extend(k.encode() for k in m)
        else: item.keys.extend(m)
        item.values.CopyFrom(numpy_helper.from_list([np.float32(v) for v in m.values()]))
    return out


def main():
    folder, names, models = sys.argv[1], sys.argv[2:], {}
    for name, kind in all_estimators():
        if not names or name in names:
            try: models[name] = (made(kind), {"x": (X, FloatTensorType)})
            except Exception as e: print(f"{name}: {e}", flush=True)
    models |= {name: made_ for name, made_ in pipelines().items() if not names or name in names}
    done, left = 0, 0
    for name, (model, inputs) in models.items():
        for opset in (11, 15, 18, 21):
            for form, options in {"": None, "_plain": {"zipmap": False}}.items():
                place = f"{folder}/{name}{form}_{opset}"
                if options and not hasattr(model, "predict_proba"): continue
                try:
                    write(place, model, inputs, TEXT | ({id(model): options} if options else {}), opset)
                    done += 1
                except Exception as e:  # what skl2onnx cannot convert, or ONNX Runtime not load
                    left += 1
                    if opset == 18: print(f"{name}{form}: {type(e).__name__}: {' '.join(str(e).split())[:160]}", flush=True)
                    shutil.rmtree(place, ignore_errors=True)
    print(f"{done} models, {left} not made")


if __name__ == "__main__": main()
