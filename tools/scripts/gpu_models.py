#!/usr/bin/env python3
"""Whole models in f16 on a GPU: Tessera beside PyTorch eager and torch.compile in one run.

    gpu_models.py TESSERA MODELS_DIRECTORY WORK_DIRECTORY [NAME...] [--peers eager,compile,graphs] [--smallest] [--memory] [--json FILE] [--markdown FILE]

--smallest: the first shape of each model only. --memory: then each runs once more, alone, while another process reads how much of the GPU's
memory is taken: the most of it, context and libraries included, in MB (others must leave the GPU alone meanwhile). The peers are the architectures that the graphs in models/ were exported from (transformers, torchvision), with random weights. Times are
medians in microseconds of single calls between events, inputs and outputs on the GPU, the L2 cache overwritten before each call.
"""
import argparse, ctypes, json, os, subprocess, sys, time

SHAPES = {"bert": [(1, 128), (32, 384)], "gpt2": [(1, 128), (8, 1024)], "llama": [(1, 128), (4, 1024)], "vit": [(1, 0), (64, 0)],
          "resnet50": [(1, 0), (64, 0)], "mobilenet_v3": [(1, 0), (64, 0)]}
MODES = {"compile": {}, "graphs": {"mode": "reduce-overhead"}}

def peer(name, torch):
    import transformers as T
    def language(cls, config, pick):
        model = cls._from_config(config, attn_implementation="sdpa")
        return model, pick
    if name == "bert": return language(T.BertModel, T.BertConfig(), lambda m, i: m(input_ids=i, attention_mask=torch.ones_like(i), use_cache=False).last_hidden_state)
    if name == "gpt2": return language(T.GPT2LMHeadModel, T.GPT2Config(), lambda m, i: m(input_ids=i, use_cache=False).logits)
    if name == "llama":
        config = T.LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=8, num_attention_heads=32, num_key_value_heads=4, vocab_size=32000)
        return language(T.LlamaForCausalLM, config, lambda m, i: m(input_ids=i, use_cache=False).logits)
    if name == "vit": return language(T.ViTModel, T.ViTConfig(), lambda m, x: m(pixel_values=x).last_hidden_state)
    import torchvision
    return getattr(torchvision.models, {"mobilenet_v3": "mobilenet_v3_large"}.get(name, name))(weights=None), lambda m, x: m(x)

def free_memory():
    """A function that gives the bytes of the GPU's memory that nobody holds."""
    cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    def call(name, *arguments):
        code = getattr(cuda, name)(*arguments)
        if code: sys.exit(f"{name} fails with CUresult {code}; the memory of a GPU cannot be read")
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    def free():
        left, whole = ctypes.c_size_t(), ctypes.c_size_t()
        call("cuMemGetInfo_v2", ctypes.byref(left), ctypes.byref(whole))
        return left.value
    return free

def most_memory(free, command):
    """MB of the GPU's memory that a command takes at most, read each millisecond; None when it fails."""
    before = least = free()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while child.poll() is None:
        least = min(least, free())
        time.sleep(0.001)
    return None if child.returncode else round((before - least) / 1e6)

def alone(name, mode, b, s):
    """One model by one peer, called some times: what --memory looks at."""
    import torch
    module, call = peer(name, torch)
    module = module.eval().to("cuda", torch.float16)
    x = torch.randint(0, 1000, (b, s), device="cuda") if s else torch.randn(b, 3, 224, 224, device="cuda", dtype=torch.float16)
    with torch.inference_mode():
        f = module if mode == "eager" else torch.compile(module, dynamic=False, **MODES[mode])
        for _ in range(10): call(f, x)
        torch.cuda.synchronize()

def main():
    if sys.argv[1:2] == ["--alone"]: return alone(*sys.argv[2:4], *map(int, sys.argv[4:6]))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("tessera"); p.add_argument("models"); p.add_argument("work"); p.add_argument("names", nargs="*")
    p.add_argument("--peers", default="eager"); p.add_argument("--seconds", type=float, default=1); p.add_argument("--json"); p.add_argument("--markdown")
    p.add_argument("--profile", action="store_true"); p.add_argument("--budget", type=float, default=540, help="seconds for all")
    p.add_argument("--smallest", action="store_true"); p.add_argument("--memory", action="store_true")
    a = p.parse_args()
    os.makedirs(a.work, exist_ok=True)
    peers = [m for m in a.peers.split(",") if m]
    if peers:
        import torch
        from triton.testing import do_bench
    rows, runs, began = [], [], time.time()
    for name in a.names or list(SHAPES):
        path = os.path.join(a.work, f"{name}.dynamo.f16.onnx")
        if not os.path.exists(path): open(path, "wb").write(open(os.path.join(a.models, os.path.basename(path)), "rb").read())
        if not os.path.exists(path[:-5] + ".weights"): subprocess.run([sys.executable, os.path.join(a.models, "fill_weights.py"), path], check=True, stdout=subprocess.DEVNULL)
        module = None
        if peers:
            torch.manual_seed(0)
            module, call = peer(name, torch); module = module.eval().to("cuda", torch.float16)
        for b, s in SHAPES[name][:1 if a.smallest else None]:
            if time.time() - began > a.budget: print("out of time", flush=True); break
            row = {"model": name, "batch": b, "seq": s}
            if peers:
                x = torch.randint(0, 1000, (b, s), device="cuda") if s else torch.randn(b, 3, 224, 224, device="cuda", dtype=torch.float16)
                with torch.inference_mode():
                    for m in peers:
                        torch._dynamo.reset()
                        f = module if m == "eager" else torch.compile(module, dynamic=False, **MODES[m])
                        start = time.time(); call(f, x); torch.cuda.synchronize(); row[m + "_first_s"] = time.time() - start
                        for _ in range(3): call(f, x)
                        row[m + "_us"] = do_bench(lambda: call(f, x), warmup=50, rep=200, return_mode="median") * 1e3
                del x
            shapes = [("input_ids", f"{b}x{s}")] if s else [("pixels", f"{b}x3x224x224")]
            if name == "bert": shapes.append(("attention_mask", f"{b}x{s}"))
            of_shapes = [t for n, v in shapes for t in ("--shape", f"{n}={v}")]
            out = os.path.join(a.work, f"{name}.{b}x{s}.json")
            command = [a.tessera, "bench", path, "--device", "cuda", "--seconds", str(a.seconds), "--json", out] + of_shapes
            runs.append((row, {"tessera": [a.tessera, "run", path, "--device", "cuda", *of_shapes], **{m: [sys.executable, __file__, "--alone", name, m, str(b), str(s)] for m in peers}}))
            if a.profile: command = [*command, "--profile"]
            r = subprocess.run(command, capture_output=True, text=True)
            if r.returncode: row["error"] = (r.stdout + r.stderr).strip()[-600:]
            else:
                j = json.load(open(out)); row["tessera_us"] = j["median_ms"] * 1e3
                row.update({k: j[k] for k in ("cold_start_ms", "warm_start_ms", "first_run_ms") if k in j})
                if a.profile: print(r.stdout[:6000])
            rows.append(row)
            print(f"{name:14s} {b}x{s:<5d}" + "".join(f" {k} {row[k + '_us']:9.1f}" for k in ("tessera", *peers) if k + "_us" in row)
                  + "".join(f"  /{k} {row['tessera_us'] / row[k + '_us']:.2f}" for k in peers if "tessera_us" in row)
                  + (f"  start {row['cold_start_ms']:.0f}/{row['warm_start_ms']:.0f} ms, first run {row['first_run_ms']:.0f} ms" if "cold_start_ms" in row else "")
                  + ("  ERROR " + row["error"] if "error" in row else ""), flush=True)
        if peers: del module; torch.cuda.empty_cache()
    if a.memory:
        free = free_memory()
        for row, commands in runs:
            row.update({f"{who}_mb": most_memory(free, command) for who, command in commands.items()})
            print(f"{row['model']:14s} {row['batch']}x{row['seq']:<5d} memory of the GPU at most, MB:" + "".join(f" {w} {row[w + '_mb']}" for w in commands), flush=True)
    if a.json: json.dump(rows, open(a.json, "w"), indent=1)
    if a.markdown:
        with open(a.markdown, "w") as f:
            f.write("| model | shape | Tessera µs | " + " | ".join(f"{k} µs" for k in peers) + " | " + " | ".join(f"over {k}" for k in peers) + " |\n|" + "---|" * (3 + 2 * len(peers)) + "\n")
            for r in rows:
                if "tessera_us" not in r: continue
                f.write(f"| {r['model']} | {r['batch']}" + (f"×{r['seq']}" if r["seq"] else "") + f" | {r['tessera_us']:.0f} | " + " | ".join(f"{r[k + '_us']:.0f}" for k in peers) + " | "
                        + " | ".join(f"{r['tessera_us'] / r[k + '_us']:.2f}" for k in peers) + " |\n")
    if any("error" in r for r in rows): sys.exit(1)

if __name__ == "__main__": main()
