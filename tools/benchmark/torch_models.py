#!/usr/bin/env python3
"""Architectures of torchvision, timm and transformers through torch.compile(backend="tessera") beside TorchInductor with
CUDA graphs: is it right, time of a call, time of the first call. Random weights, f16, on a GPU.

    python3 tools/benchmark/torch_models.py OUT.jsonl [--batch 1,32] [--freeze] [--jobs N] [--budget SECONDS] SOURCE:NAME ...

SOURCE is tv (torchvision), timm or hf (transformers; a key of HF below: the family's base model at its default
configuration with at most 12 layers). First every model is compiled by each, JOBS at a time: that gives the times of the
first calls. Then each runs alone on the GPU with what was cached: that gives the times of calls and the comparison with
f32. One JSON object a model and batch is appended to OUT.jsonl.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import sys
import time
import traceback

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
    if getattr(config, "layer_types", None):
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


def first_call(spec: str, batch: int, way: str, freeze: bool) -> dict:
    import torch

    module, inputs = build(spec)
    module = module.eval().half().cuda()
    x = inputs(batch).cuda()
    x = x.half() if x.is_floating_point() else x
    with torch.inference_mode():
        module(x)
        torch.cuda.synchronize()
        call = compiled(module, way, freeze)
        start = time.time()
        call(x)
        torch.cuda.synchronize()
        return {f"{way}_first_s": round(time.time() - start, 2)}


def steady(spec: str, batch: int, freeze: bool) -> dict:
    import torch
    from triton.testing import do_bench

    module, inputs = build(spec)
    module = module.eval().cuda()
    torch.manual_seed(1)
    x = inputs(batch).cuda()
    if x.is_floating_point():
        x = x.half()
    row = {}

    def distance(got):
        got = got.double()
        return float(f"{((got - want).norm() / want.norm()).item():.2e}") if got.shape == want.shape else "shape"

    with torch.inference_mode():
        want = module(x.float() if x.is_floating_point() else x).double()
        module.half()
        row["eager_rel"] = distance(module(x))
        for way in ("tessera", "inductor"):
            torch._dynamo.reset()
            try:
                call = compiled(module, way, freeze)
                for _ in range(4):
                    out = call(x)
                row[f"{way}_rel"] = distance(out)
                torch.cuda.synchronize()
                row[f"{way}_us"] = round(do_bench(lambda: call(x), warmup=40, rep=150, return_mode="median") * 1e3, 1)
                start = time.perf_counter()
                for _ in range(20):
                    call(x)
                row[f"{way}_host_us"] = round((time.perf_counter() - start) / 20 * 1e6, 1)
                torch.cuda.synchronize()
                if way == "tessera":
                    import tessera.backend

                    row["stats"] = tessera.backend.stats() if hasattr(tessera.backend, "stats") else None
            except Exception as e:  # noqa: BLE001  one row
                row[f"{way}_error"] = repr(e)[:300]
        row["eager_us"] = round(do_bench(lambda: module(x), warmup=20, rep=60, return_mode="median") * 1e3, 1)
    return row


def alone(work, *args, limit: float = 240) -> dict:
    """work(*args) in a forked process: what breaks there costs one row."""
    here, there = multiprocessing.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        try:
            out = work(*args)
        except BaseException as e:  # noqa: BLE001
            out = {"error": f"{work.__name__}: {e!r}"[:400]}
            traceback.print_exc()
        try:
            there.send(json.loads(json.dumps(out, default=str)))
        finally:
            os._exit(0)
    there.close()
    try:
        return here.recv() if here.poll(limit) else {"error": f"{work.__name__}: no answer within {limit:.0f} s"}
    except EOFError:
        return {"error": f"{work.__name__}: the process died"}
    finally:
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            pass
        os.waitpid(pid, 0)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("models", nargs="+")
    p.add_argument("--batch", default="1,32")
    p.add_argument("--jobs", type=int, default=5)
    p.add_argument("--budget", type=float, default=570)
    p.add_argument("--freeze", action="store_true", help="parameters are constants of the compiled graph")
    p.add_argument("--no-first", action="store_true", help="leave out the times of first calls")
    a = p.parse_args()
    began = time.time()
    import timm  # noqa: F401  once, before the processes part
    import torch._dynamo  # noqa: F401
    import torchvision  # noqa: F401
    import transformers  # noqa: F401

    todo = [(m, int(b)) for b in a.batch.split(",") for m in a.models]
    rows = {t: {"model": t[0], "batch": t[1], "freeze": a.freeze} for t in todo}
    if not a.no_first:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(a.jobs) as pool:
            jobs = [(t, pool.submit(alone, first_call, *t, way, a.freeze)) for t in todo for way in ("tessera", "inductor")]
            for t, job in jobs:
                rows[t].update(job.result())
        print(f"first calls: {time.time() - began:.0f} s", flush=True)
    for t in todo:
        row = rows[t]
        if time.time() - began > a.budget:
            row["skipped"] = "out of time"
        else:
            row.update(alone(steady, *t, a.freeze, limit=150))
        if "tessera_us" in row and "inductor_us" in row:
            row["ratio"] = round(row["tessera_us"] / row["inductor_us"], 3)
        with open(a.out, "a") as f:
            f.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
    ratios = [r["ratio"] for r in rows.values() if "ratio" in r]
    firsts = [r["tessera_first_s"] / r["inductor_first_s"] for r in rows.values() if "tessera_first_s" in r and "inductor_first_s" in r]
    for name, values in (("time", ratios), ("first call", firsts)):
        if values:
            mean = math.exp(sum(map(math.log, values)) / len(values))
            print(f"{name} over Inductor: {mean:.3f} of {len(values)}, worst {max(values):.2f}")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
