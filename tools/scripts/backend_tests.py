#!/usr/bin/env python3
"""Write ONNX's backend tests, all folders, as model.onnx with test_data_set_*/input_*.pb and output_*.pb.

    backend_tests.py DIRECTORY     # made once; a finished directory is left alone
The package generates the node tests from code; the others lie in it as files. Data, names and tolerances (data.json) are ONNX's own.
"""
import json, os, shutil, sys, warnings
import onnx
from onnx import TensorProto, numpy_helper

def write_value(path, value, info):
    if isinstance(value, TensorProto): proto = value
    elif info.type.HasField("map_type"): proto = numpy_helper.from_dict(value, info.name)
    elif info.type.HasField("sequence_type"): proto = numpy_helper.from_list(value, info.name)
    elif info.type.HasField("optional_type"): proto = numpy_helper.from_optional(value, info.name)
    else: proto = numpy_helper.from_array(value, info.name)
    with open(path, "wb") as f: f.write(proto.SerializeToString())

def main():
    if len(sys.argv) != 2: sys.exit(__doc__)
    out = sys.argv[1]
    done = os.path.join(out, ".done-" + onnx.__version__)
    if os.path.exists(done): return
    warnings.simplefilter("ignore")
    import numpy as np; np.seterr(all="ignore")
    from onnx.backend.test.case.node import collect_testcases
    part = out + ".part"
    shutil.rmtree(part, ignore_errors=True); shutil.rmtree(out, ignore_errors=True)
    data = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data")
    for folder in sorted(os.listdir(data)):
        if os.path.isdir(os.path.join(data, folder)): shutil.copytree(os.path.join(data, folder), os.path.join(part, folder))
    cases = collect_testcases(None)
    for n, case in enumerate(cases):
        if n % 400 == 0: print(f"   backend tests: {n} of {len(cases)}", flush=True)
        d = os.path.join(part, "node", case.name)
        os.makedirs(d, exist_ok=True)
        with open(os.path.join(d, "model.onnx"), "wb") as f: f.write(case.model.SerializeToString())
        with open(os.path.join(d, "data.json"), "w") as f: json.dump({"rtol": case.rtol, "atol": case.atol}, f)
        for i, (inputs, outputs) in enumerate(case.data_sets):
            s = os.path.join(d, f"test_data_set_{i}"); os.makedirs(s, exist_ok=True)
            for k, v in enumerate(inputs): write_value(os.path.join(s, f"input_{k}.pb"), v, case.model.graph.input[k])
            for k, v in enumerate(outputs): write_value(os.path.join(s, f"output_{k}.pb"), v, case.model.graph.output[k])
    os.rename(part, out)
    open(done, "w").close()
    print(f"   backend tests: {len(cases)} node tests and the package's folders in {out}")

if __name__ == "__main__": main()
