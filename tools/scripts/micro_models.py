#!/usr/bin/env python3
"""Write small models of one memory-bound computation each, for `tessera bench`: softmax, layer norm, GELU, SiLU, RMS norm.

    micro_models.py DIRECTORY [ROWSxCOLUMNS]     # default 8192x1024, f32
"""
import os, sys
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

def save(path, nodes, columns, weights=()):
    value = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, ["rows", columns])
    graph = helper.make_graph(nodes, os.path.basename(path)[:-5], [value("x")], [value("y")], list(weights))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)

def main():
    if len(sys.argv) not in (2, 3): sys.exit(__doc__)
    out = sys.argv[1]; columns = int((sys.argv[2] if len(sys.argv) == 3 else "8192x1024").split("x")[1])
    os.makedirs(out, exist_ok=True)
    node = helper.make_node
    ones = lambda n: numpy_helper.from_array(np.ones(columns, np.float32), n)
    save(f"{out}/softmax.onnx", [node("Softmax", ["x"], ["y"], axis=-1)], columns)
    save(f"{out}/layer_norm.onnx", [node("LayerNormalization", ["x", "g", "b"], ["y"], axis=-1)], columns, [ones("g"), ones("b")])
    save(f"{out}/gelu.onnx", [node("Gelu", ["x"], ["y"])], columns)
    save(f"{out}/silu.onnx", [node("Sigmoid", ["x"], ["s"]), node("Mul", ["x", "s"], ["y"])], columns)

if __name__ == "__main__": main()
