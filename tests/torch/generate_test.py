"""generate() of transformers, with the model's forward compiled: eager's tokens, and nothing compiled after the third token.

    python tests/torch/generate_test.py [--device D] [--dtype T] [--tokens N] [NAME ...]
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable

import support  # noqa: F401
import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, T5Config, T5ForConditionalGeneration

from tessera._options import statistics


def llama() -> torch.nn.Module:
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=256, pad_token_id=0, bos_token_id=1, eos_token_id=None))  # fmt: skip


def gpt2() -> torch.nn.Module:
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=256, n_embd=64, n_layer=2, n_head=4, n_positions=256, pad_token_id=0, bos_token_id=1, eos_token_id=None))  # fmt: skip


def t5() -> torch.nn.Module:
    return T5ForConditionalGeneration(T5Config(
        vocab_size=256, d_model=64, d_ff=128, num_layers=2, num_heads=4, d_kv=16, pad_token_id=0, eos_token_id=None,
        decoder_start_token_id=0))  # fmt: skip


MODELS: dict[str, Callable[[], torch.nn.Module]] = {"llama": llama, "gpt2": gpt2, "t5": t5}
CACHES = ("dynamic", "static")
NORMAL = {("llama", "static"), ("gpt2", "dynamic"), ("t5", "dynamic")}  # without TESSERA_TEST_TIER=all, and without names
LAST_COMPILED = 3  # the token from which on nothing is compiled


class Compiles(transformers.LogitsProcessor):
    """Programs compiled and graphs captured when each token is chosen."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        self.seen.append(statistics.graphs)
        return scores


def tokens_of(model: torch.nn.Module, cache: str, count: int, compiles: Compiles) -> torch.Tensor:
    device = next(model.parameters()).device
    prompt = torch.randint(2, 256, (2, 7), generator=torch.Generator().manual_seed(0)).to(device)
    return model.generate(  # type: ignore[operator,no-any-return]
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=count, do_sample=False, cache_implementation=cache,
        disable_compile=True, logits_processor=transformers.LogitsProcessorList([compiles]))  # fmt: skip


def check(name: str, cache: str, options: argparse.Namespace) -> list[str]:
    """The errors that were found."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = MODELS[name]().eval().to(options.device, getattr(torch, options.dtype))
    begin = time.perf_counter()
    want = tokens_of(model, cache, options.tokens, Compiles())
    eager = time.perf_counter()
    model.forward = torch.compile(model.forward, backend="tessera")  # type: ignore[method-assign]
    failed, left, compiles = statistics.fallback_calls, statistics.operators_left, Compiles()
    try:
        got = tokens_of(model, cache, options.tokens, compiles)
    except Exception as e:
        return [f"{type(e).__name__}: {' '.join(str(e).split())[:600]}"]
    end = time.perf_counter()
    at = [i + 1 for i, (a, b) in enumerate(zip([0, *compiles.seen], compiles.seen)) if i and a != b]
    print(f"{name:6} {cache:8} eager {eager - begin:.2f} s, compiled {end - eager:.2f} s; graphs at tokens {[1, *at]}; "
          f"{statistics.operators_left - left} operators left", flush=True)  # fmt: skip
    wrong = []
    if not torch.equal(got, want):
        wrong.append(f"other tokens from {int((got != want).any(0).nonzero()[0])} on")
    if any(i > LAST_COMPILED for i in at):
        wrong.append(f"compiles at tokens {at}")
    if statistics.fallback_calls != failed:
        wrong.append(f"{statistics.fallback_calls - failed} calls failed")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--tokens", type=int, default=24)
    options = parser.parse_args()
    torch._dynamo.config.automatic_dynamic_shapes = True
    logging.getLogger("transformers").setLevel(logging.ERROR)
    failed = 0
    for name in options.names or MODELS:
        for cache in CACHES:
            if not options.names and os.environ.get("TESSERA_TEST_TIER") != "all" and (name, cache) not in NORMAL:
                continue
            for what in check(name, cache, options):
                print(f"FAIL {name} {cache}: {what}", flush=True)
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
