"""A case: a small computation with fixed sizes, as data. From it come an ONNX model, the same computation in PyTorch, and inputs.

    {"name": "softmax.8192x1024.f32",
     "inputs": {"x": {"shape": [8192, 1024], "dtype": "f32"}},
     "nodes": [["Softmax", ["x"], ["y"], {"axis": -1}]],
     "outputs": ["y"]}

Types: f32 f16 bf16 bool i32 i64. Operators: ops.py. An input's "data" is "normal" (default), "small" (a weight: normal times 0.02), "uniform"
(0 to 1), "mask" (1 nine times of ten, else 0), or a number that fills it: then it is a constant of the model and no input. "flops" counts the operations of products of
matrices; cases that have any are no memory-bound ones and stay out of those means. A case may also name a family of families.py:

    {"family": "softmax", "rows": 8192, "columns": 1024, "dtype": "f32"}
"""
import math
import numpy as np
from .ops import NUMPY_TYPES, ONNX_TYPES, OPS, SIZES, TORCH_TYPES, numpy_type


class CaseError(Exception):
    pass


class Case:
    def __init__(self, name, inputs, nodes, outputs, flops=0, family=None):
        self.name, self.family, self.flops = name, family or name.removeprefix("seed.").split(".")[0], flops
        self.inputs = {n: {"dtype": "f32", "data": "normal", **spec} for n, spec in inputs.items()}
        self.nodes = [(op, list(ins), list(outs), attrs[0] if attrs else {}) for op, ins, outs, *attrs in nodes]
        self.outputs = list(outputs)
        self.check()

    def check(self):
        known = set(self.inputs)
        for n, spec in self.inputs.items():
            if spec["dtype"] not in ONNX_TYPES: raise CaseError(f"{self.name}: input {n} has the unknown type {spec['dtype']}")
            if not all(isinstance(d, int) and d >= 0 for d in spec["shape"]): raise CaseError(f"{self.name}: input {n} has the shape {spec['shape']}")
        for op, ins, outs, _ in self.nodes:
            if op not in OPS: raise CaseError(f"{self.name}: there is no operator {op}; ops.py has {', '.join(OPS)}")
            for i in ins:
                if i not in known: raise CaseError(f"{self.name}: {op} reads {i}, which nothing makes before it")
            known.update(outs)
        for o in self.outputs:
            if o not in known: raise CaseError(f"{self.name}: nothing makes the output {o}")

    def data(self):
        """This case, as --cases reads it."""
        return {"name": self.name, "family": self.family, "inputs": self.inputs, "nodes": [list(n) for n in self.nodes], "outputs": self.outputs, "flops": self.flops}

    # ---- what is moved: every input read once, every output written once
    def arguments(self):
        """Inputs that are given at each call; the others are constants."""
        return [n for n, spec in self.inputs.items() if isinstance(spec["data"], str)]

    def input_bytes(self):
        return sum(math.prod(self.inputs[n]["shape"]) * SIZES[self.inputs[n]["dtype"]] for n in self.arguments())

    # ---- ONNX
    def save(self, path):
        """Writes the model; `path` ends in .onnx."""
        import onnx
        builder = OnnxBuilder()
        values = []
        for n, spec in self.inputs.items():
            if isinstance(spec["data"], str): values.append(onnx.helper.make_tensor_value_info(n, ONNX_TYPES[spec["dtype"]], spec["shape"]))
            else: builder.initializers.append(onnx.helper.make_tensor(n, ONNX_TYPES[spec["dtype"]], spec["shape"], [spec["data"]] * math.prod(spec["shape"])))
        for op, ins, outs, attrs in self.nodes: builder.add(op, ins, outs, attrs)
        results = [onnx.helper.make_empty_tensor_value_info(o) for o in self.outputs]
        graph = onnx.helper.make_graph(builder.nodes, "case", values, results, builder.initializers)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)], ir_version=11)
        self.results = _results(model)
        for value, (shape, dtype) in zip(model.graph.output, self.results): value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, ONNX_TYPES[dtype], shape))
        onnx.save(model, path)
        self.bytes = self.input_bytes() + sum(math.prod(s) * SIZES[t] for s, t in self.results)

    # ---- PyTorch
    def torch_function(self, constants=None, reference=False):
        """f(*arguments), returning one tensor or a tuple. `constants` by name, on the device of the arguments."""
        steps = [(OPS[op].reference if reference else OPS[op].torch, ins, outs, attrs) for op, ins, outs, attrs in self.nodes]
        names, outputs, constants = self.arguments(), self.outputs, constants or {}

        def function(*arguments):
            env = dict(constants)
            for n, a in zip(names, arguments): env[n] = a
            for apply, ins, outs, attrs in steps:
                result = apply(attrs, *[env[i] for i in ins])
                if len(outs) == 1: env[outs[0]] = result
                else:
                    for o, r in zip(outs, result): env[o] = r
            return env[outputs[0]] if len(outputs) == 1 else tuple(env[o] for o in outputs)
        return function

    def torch_constants(self, torch, device):
        """A scalar stays a number of Python's, as one writes it in PyTorch."""
        types, out = TORCH_TYPES(torch), {}
        for n, spec in self.inputs.items():
            if isinstance(spec["data"], str): continue
            out[n] = torch.full(spec["shape"], spec["data"], dtype=types[spec["dtype"]], device=device) if spec["shape"] else spec["data"]
        return out

    def torch_inputs(self, torch, device, seed=0):
        generator = torch.Generator(device=device)
        generator.manual_seed(seed)
        out = []
        for n in self.arguments():
            spec = self.inputs[n]
            shape, data = spec["shape"], spec["data"]
            if data == "mask": x = torch.rand(shape, device=device, generator=generator) > 0.1
            elif data == "uniform": x = torch.rand(shape, device=device, generator=generator)
            else: x = torch.randn(shape, device=device, generator=generator) * (0.02 if data == "small" else 1.0)
            out.append(x.to(TORCH_TYPES(torch)[spec["dtype"]]))
        return out

    # ---- without PyTorch
    def numpy_inputs(self, seed=0):
        generator, out = np.random.default_rng(seed), []
        for n in self.arguments():
            spec = self.inputs[n]
            shape, data = spec["shape"], spec["data"]
            if data == "mask": x = generator.random(shape, np.float32) > 0.1
            elif data == "uniform": x = generator.random(shape, np.float32)
            else: x = generator.standard_normal(shape, np.float32) * np.float32(0.02 if data == "small" else 1.0)
            out.append(np.ascontiguousarray(x.astype(numpy_type(spec["dtype"]))))
        return out


def _results(model):
    """Shape and type of each output."""
    import onnx
    typed = onnx.ModelProto()
    typed.CopyFrom(model)
    for n in typed.graph.node:  # onnx infers no types for it: a function of other operators
        if n.op_type == "GroupNormalization": n.CopyFrom(onnx.helper.make_node("Identity", n.input[:1], n.output))
    typed = onnx.shape_inference.infer_shapes(typed, strict_mode=True, data_prop=True)
    short = {v: k for k, v in ONNX_TYPES.items()}
    types = [o.type.tensor_type for o in typed.graph.output]
    return [([d.dim_value for d in t.shape.dim], short[t.elem_type]) for t in types]


class OnnxBuilder:
    def __init__(self):
        self.nodes, self.initializers, self.made = [], [], 0

    def temporary(self):
        self.made += 1
        return f"_{self.made}"

    def node(self, op, ins, outs, **attrs):
        import onnx
        self.nodes.append(onnx.helper.make_node(op, ins, outs, **attrs))

    def constant(self, name, values):
        import onnx
        self.initializers.append(onnx.numpy_helper.from_array(np.array(values, np.int64), name))

    def add(self, op, ins, outs, attrs):
        row = OPS[op]
        if row.emit: return row.emit(self, ins, outs, attrs)
        rest = {k: v for k, v in attrs.items() if k not in row.constants}
        operands = list(ins)
        for key in row.constants:
            if attrs.get(key) is None: continue
            operands.append(self.temporary())
            self.constant(operands[-1], attrs[key])
        self.node(op, operands, outs, **rest)


def parse(entry):
    """A case from what --cases holds."""
    if not isinstance(entry, dict): raise CaseError(f"a case is an object, not {entry!r}")
    if "nodes" not in entry:
        from .families import FAMILIES
        family = entry.get("family")
        if family not in FAMILIES: raise CaseError(f"there is no family {family!r}; there are {', '.join(FAMILIES)}")
        rest = {k: v for k, v in entry.items() if k not in ("family", "name")}
        try: case = FAMILIES[family](**rest)
        except TypeError as e: raise CaseError(f"family {family}: {e}") from e
        if "name" in entry: case.name = entry["name"]
        return case
    missing = [k for k in ("name", "inputs", "outputs") if k not in entry]
    if missing: raise CaseError(f"case {entry.get('name', '')!r} lacks {', '.join(missing)}")
    return Case(entry["name"], entry["inputs"], entry["nodes"], entry["outputs"], entry.get("flops", 0), entry.get("family"))
