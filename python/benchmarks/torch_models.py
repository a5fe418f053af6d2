#!/usr/bin/env python3
"""Architectures of torchvision, timm and transformers through torch.compile(backend="tessera") beside TorchInductor with
CUDA graphs: is it right, time of a call, time of the first call. Random weights, on a GPU.

    python3 python/benchmarks/torch_models.py OUT.jsonl [--batch 1,32] [--dtype NAME] [--freeze] [--jobs N] [--budget SECONDS] SOURCE:NAME ...
    python3 python/benchmarks/torch_models.py OUT.jsonl --table

SOURCE is tv (torchvision), timm or hf (transformers; a key of HF below: the family's base model at its default
configuration with at most 12 layers). JOBS models at a time are compiled by both, each in a process with its share of the
cores: that gives the times of the first calls. Then one process after the other measures, alone on the GPU. Errors are
‖out−ref‖/‖ref‖ of results in --dtype (float16, bfloat16 or float32) against those of f32, or of f64 for float32. One JSON
object a model and batch is appended to OUT.jsonl; --table prints that file as a table in Markdown.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time

from random_weights import set_statistics, wake
from turns import waves

HF = {
    "bert": "BertModel", "distilbert": "DistilBertModel", "roberta": "RobertaModel", "albert": "AlbertModel",
    "electra": "ElectraModel", "mpnet": "MPNetModel", "deberta_v2": "DebertaV2Model", "squeezebert": "SqueezeBertModel",
    "mobilebert": "MobileBertModel", "esm": "EsmModel", "modernbert": "ModernBertModel", "fnet": "FNetModel",
    "roformer": "RoFormerModel", "gpt2": "GPT2LMHeadModel", "opt": "OPTForCausalLM", "bloom": "BloomForCausalLM",
    "gpt_neo": "GPTNeoForCausalLM", "gpt_neox": "GPTNeoXForCausalLM", "phi": "PhiForCausalLM",
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM", "gemma": "GemmaForCausalLM", "gemma2": "Gemma2ForCausalLM",
    "falcon": "FalconForCausalLM", "stablelm": "StableLmForCausalLM", "olmo": "OlmoForCausalLM",
    "granite": "GraniteForCausalLM", "cohere": "CohereForCausalLM", "mamba": "MambaForCausalLM",
    "t5": "T5EncoderModel", "vit": "ViTModel", "deit": "DeiTModel", "beit": "BeitModel", "dinov2": "Dinov2Model",
    "swin": "SwinModel", "convnextv2": "ConvNextV2Model", "segformer": "SegformerModel", "mobilevit": "MobileViTModel",
    "poolformer": "PoolFormerModel", "regnet": "RegNetModel", "levit": "LevitModel", "pvt": "PvtModel",
    "focalnet": "FocalNetModel", "clip_vision": "CLIPVisionModel", "clip_text": "CLIPTextModel",
    "wav2vec2": "Wav2Vec2Model", "hubert": "HubertModel", "ast": "ASTModel",
}  # fmt: skip
FEW_LAYERS = {  # families whose default is billions of parameters: 4 layers
    "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi", "falcon", "stablelm", "olmo", "granite", "cohere",
    "gpt_neox", "opt", "bloom", "mamba",
}  # fmt: skip
WAYS = ("tessera", "inductor")
LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")


def build(spec: str):
    """(module on the CPU in f32, batch -> its input)"""
    import torch

    source, name = spec.split(":")
    torch.manual_seed(0)

    class First(torch.nn.Module):
        """The first tensor of what a module yields."""

        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, x):
            out = self.module(x)
            if hasattr(out, "keys"):
                out = next((out[k] for k in ("last_hidden_state", "logits", "out") if k in out), None) or next(iter(out.values()))
            while isinstance(out, (tuple, list)):
                out = out[0]
            return out

    if source == "tv":
        import torchvision

        kw = {"weights": None}
        if name in ("googlenet", "inception_v3"):
            kw |= {"aux_logits": False, "init_weights": False}
        if name.startswith(("deeplab", "fcn", "lraspp")):
            kw |= {"weights_backbone": None}
        n = 299 if name == "inception_v3" else 224
        return First(torchvision.models.get_model(name, **kw)), lambda b: torch.randn(b, 3, n, n)
    if source == "timm":
        import timm

        module = timm.create_model(name, pretrained=False)
        return First(module), lambda b: torch.randn(b, *module.default_cfg["input_size"])
    import transformers

    cls = getattr(transformers, HF[name])
    config = cls.config_class()
    for key in LAYERS:
        if isinstance(getattr(config, key, None), int):
            setattr(config, key, min(getattr(config, key), 4 if name in FEW_LAYERS else 12))
    if "layer_types" in vars(config) and config.layer_types:
        config.layer_types = config.layer_types[: config.num_hidden_layers]
    if hasattr(config, "use_cache"):
        config.use_cache = False
    module = cls(config)
    main = getattr(module, "main_input_name", "input_ids")

    class Call(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.module = module

        def forward(self, x):
            out = self.module(**{main: x}, return_dict=True)
            return out["last_hidden_state"] if "last_hidden_state" in out else out["logits"]

    if main == "input_ids":
        return Call(), lambda b: torch.randint(5, 1000, (b, 64 if name == "clip_text" else 128))
    if name in ("wav2vec2", "hubert"):
        return Call(), lambda b: torch.randn(b, 16000)
    if name == "ast":
        return Call(), lambda b: torch.randn(b, 1024, 128)
    n = getattr(config, "image_size", 224)
    n = n if isinstance(n, int) else n[0]
    return Call(), lambda b: torch.randn(b, getattr(config, "num_channels", 3), n, n)


def compiled(module, way: str, freeze: bool):
    import torch

    if way == "inductor":
        return torch.compile(module, mode="reduce-overhead")
    import tessera.backend  # noqa: F401  registers the backend where no wheel does

    return torch.compile(module, backend="tessera", options={"freeze": True} if freeze else None)


def distance(got, want) -> float | str:
    if got.shape != want.shape:
        return f"shape {list(got.shape)}, expected {list(want.shape)}"
    return float(f"{((got.double() - want).norm() / want.norm()).item():.2e}")


def on_gpu(x, dtype):
    return (x.to(dtype) if x.is_floating_point() else x).cuda()


class Compiled:
    """One architecture on the GPU, compiled by each way for each batch; what it takes and what it yields."""

    def __init__(self, spec: str, batches: list[int], freeze: bool, dtype: str):
        import torch

        torch._dynamo.config.automatic_dynamic_shapes = False
        torch._dynamo.config.cache_size_limit = torch._dynamo.config.recompile_limit = 64
        self.spec, self.batches, self.freeze = spec, batches, freeze
        module, inputs = build(spec)
        torch.manual_seed(1)
        module = module.eval().cuda()
        wake(module)
        set_statistics(module, (inputs(8).cuda(),))
        own = getattr(torch, dtype)
        exact = torch.float64 if own == torch.float32 else torch.float32
        self.inputs = {b: on_gpu(inputs(b), own) for b in batches}
        self.rows = {b: {"model": spec, "batch": b, "dtype": dtype, "freeze": freeze, "card": torch.cuda.get_device_name()} for b in batches}
        self.want = {}
        with torch.inference_mode():
            module = module.to(exact)
            for b, x in self.inputs.items():
                self.want[b] = module(on_gpu(x, exact)).double()
            self.module = module.to(own)
            for b, x in self.inputs.items():
                self.rows[b]["eager_rel"] = distance(self.module(x), self.want[b])
            self.calls = {way: compiled(self.module, way, freeze) for way in WAYS}
            for b in batches:
                for way in WAYS:
                    self.first(b, way)

    def first(self, batch: int, way: str) -> None:
        import torch

        row, x = self.rows[batch], self.inputs[batch]
        try:
            torch.cuda.synchronize()
            start = time.time()
            self.calls[way](x)
            torch.cuda.synchronize()
            row[f"{way}_first_s"] = round(time.time() - start, 2)
            for _ in range(4):
                out = self.calls[way](x)
            row[f"{way}_rel"] = distance(out, self.want[batch])
        except Exception as e:  # noqa: BLE001  one row
            row[f"{way}_error"] = repr(e)[:300]

    def measure(self, _: object = None) -> list[dict]:
        import torch
        from triton.testing import do_bench

        with torch.inference_mode():
            for b, row in self.rows.items():
                x = self.inputs[b]
                for way in WAYS:
                    if f"{way}_error" in row:
                        continue
                    call = self.calls[way]
                    for _ in range(3):
                        call(x)
                    row[f"{way}_us"] = round(do_bench(lambda: call(x), warmup=40, rep=150, return_mode="median") * 1e3, 1)
                    torch.cuda.synchronize()
                    start = time.perf_counter()
                    for _ in range(20):
                        call(x)
                    row[f"{way}_host_us"] = round((time.perf_counter() - start) / 20 * 1e6, 1)
                    torch.cuda.synchronize()
                row["eager_us"] = round(do_bench(lambda: self.module(x), warmup=20, rep=60, return_mode="median") * 1e3, 1)
                if all(f"{w}_us" in row for w in WAYS):
                    row["ratio"] = round(row["tessera_us"] / row["inductor_us"], 3)
        from tessera._options import stats

        self.rows[self.batches[0]]["stats"] = stats()
        return list(self.rows.values())


def summary(rows: list[dict]) -> str:
    """Geometric means over the rows that have both ways."""
    out = []
    for name, key in (("time", "us"), ("first call", "first_s")):
        values = [r[f"tessera_{key}"] / r[f"inductor_{key}"] for r in rows if f"tessera_{key}" in r and f"inductor_{key}" in r]
        if values:
            mean = math.exp(sum(map(math.log, values)) / len(values))
            out.append(f"{name} over Inductor: {mean:.3f} of {len(values)}, worst {max(values):.2f}")
    return "\n".join(out)


def table(rows: list[dict]) -> str:
    """The rows in Markdown: µs of a call, seconds of the first one, errors against f32."""
    out = ["| model | batch | Tessera µs | over Inductor | error (eager's) | first call s | over Inductor |", "|---|---:|---:|---:|---:|---:|---:|"]
    for r in rows:
        if "ratio" not in r:
            continue
        first = r["tessera_first_s"] / r["inductor_first_s"]
        out.append(
            f"| {r['model']} | {r['batch']} | {r['tessera_us']:.0f} | {r['ratio']:.2f} | {r['tessera_rel']:.1e} ({r['eager_rel']:.1e}) "
            f"| {r['tessera_first_s']:.1f} | {first:.2f} |"
        )
    return "\n".join(out)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("models", nargs="*")
    p.add_argument("--table", action="store_true", help="print OUT as a table, measure nothing")
    p.add_argument("--batch", default="1,32")
    p.add_argument("--dtype", default="float16", choices=("float16", "bfloat16", "float32"), help="of parameters and images")
    p.add_argument("--jobs", type=int, default=6, help="architectures that are compiled at a time")
    p.add_argument("--budget", type=float, default=570, help="seconds for everything")
    p.add_argument("--freeze", action="store_true", help="parameters are constants of the compiled graph")
    a = p.parse_intermixed_args()
    if a.table:
        with open(a.out) as f:
            rows = [json.loads(line) for line in f]
        print(table(rows) + "\n\n" + summary(rows))
        return
    end = time.time() + a.budget
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(max(1, (os.cpu_count() or 1) // a.jobs)))
    import timm  # noqa: F401  once, before the processes part
    import torch._dynamo  # noqa: F401
    import torchvision  # noqa: F401
    import transformers  # noqa: F401

    batches = [int(b) for b in a.batch.split(",")]
    rows = []
    subjects = [(spec, lambda spec=spec: Compiled(spec, batches, a.freeze, a.dtype).measure) for spec in a.models]
    for spec, measure in waves(subjects, a.jobs, end):
        state, out = measure(None, 60) if callable(measure) else ("failed", measure)
        for row in out if state == "measured" else [{"model": spec, "error": out}]:
            rows.append(row)
            with open(a.out, "a") as f:
                f.write(json.dumps(row, default=str) + "\n")
            print(json.dumps(row, default=str), flush=True)
    print(summary(rows))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
