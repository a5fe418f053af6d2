"""Twenty-five architectures of torchvision, timm and transformers in small configurations, for tests.

Weights are random, seeded by the architecture's name. `build(name)` gives the module in evaluation mode, inputs that it takes,
and the dynamic shapes under which torch.export takes any batch. Batches of any size are made by `inputs(name, batch)`.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "python" / "benchmarks"))
from random_weights import set_statistics, wake  # noqa: E402

IMAGE = 64  # height and width of images, in pixels
TOKENS = 24  # tokens of a text
VOCABULARY = 500
BATCH = 2  # of the example inputs


class Chosen(torch.nn.Module):
    """A module of transformers whose one output is a field of the model's: a tensor."""

    def __init__(self, model: torch.nn.Module, field: str):
        super().__init__()
        self.model = model
        self.field = field

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x)[self.field]


@dataclass(frozen=True)
class Architecture:
    """How a module is made, and what it takes: `image`, `tokens`, `mel` or `wave`."""

    library: str
    make: Callable[[], torch.nn.Module]
    takes: str = "image"
    size: int = IMAGE  # of images
    static: tuple[int, ...] = ()  # dimensions that stay static under dynamic=True


def _torchvision(name: str, **options: Any) -> Callable[[], torch.nn.Module]:
    def make() -> torch.nn.Module:
        import torchvision

        return getattr(torchvision.models, name)(weights=None, **options)

    return make


def _resnet() -> torch.nn.Module:
    from torchvision.models.resnet import Bottleneck, ResNet

    return ResNet(Bottleneck, [1, 2, 1, 1], num_classes=100, width_per_group=32)


def _densenet() -> torch.nn.Module:
    from torchvision.models import DenseNet

    return DenseNet(growth_rate=16, block_config=(3, 4, 3), num_init_features=32, num_classes=100)


def _swin() -> torch.nn.Module:
    from torchvision.models import SwinTransformer

    return SwinTransformer(
        patch_size=[4, 4], embed_dim=48, depths=[2, 2], num_heads=[3, 6], window_size=[4, 4], num_classes=100
    )


def _mixer() -> torch.nn.Module:
    from timm.models.mlp_mixer import MlpMixer

    return MlpMixer(num_classes=100, img_size=IMAGE, patch_size=8, num_blocks=2, embed_dim=128)


def _timm(name: str, **options: Any) -> Callable[[], torch.nn.Module]:
    def make() -> torch.nn.Module:
        import timm

        return timm.create_model(name, pretrained=False, num_classes=100, **options)

    return make


def _transformers(model: str, config: str, field: str, **options: Any) -> Callable[[], torch.nn.Module]:
    def make() -> torch.nn.Module:
        import transformers

        made = getattr(transformers, config)(**options)
        made._attn_implementation = "sdpa"
        try:
            return Chosen(getattr(transformers, model)(made), field)
        except ValueError:  # a model without scaled_dot_product_attention
            made._attn_implementation = "eager"
            return Chosen(getattr(transformers, model)(made), field)

    return make


_ENCODER = dict(
    vocab_size=VOCABULARY, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256,
    max_position_embeddings=64,
)  # fmt: skip
_DECODER = dict(_ENCODER, num_key_value_heads=2, use_cache=False)

ARCHITECTURES: dict[str, Architecture] = {
    # convolutions
    "resnet": Architecture("torchvision", _resnet),
    "mobilenet_v3": Architecture("torchvision", _torchvision("mobilenet_v3_small", num_classes=100)),
    "shufflenet": Architecture("torchvision", _torchvision("shufflenet_v2_x0_5", num_classes=100)),
    "densenet": Architecture("torchvision", _densenet),
    "efficientnet": Architecture("timm", _timm("efficientnet_lite0")),
    "regnet": Architecture("timm", _timm("regnety_002")),
    "convnext": Architecture("timm", _timm("convnext_atto")),
    "inception_next": Architecture("timm", _timm("inception_next_atto")),
    # images, with attention or without convolutions
    "vit": Architecture(
        "timm", _timm("vit_tiny_patch16_224", img_size=IMAGE, patch_size=8, embed_dim=96, depth=3, num_heads=3)
    ),
    # PyTorch's own analysis of shifted windows over an image of any size takes minutes.
    "swin": Architecture("torchvision", _swin, static=(1, 2, 3)),
    "levit": Architecture("timm", _timm("levit_128s", img_size=IMAGE)),
    "mixer": Architecture("timm", _mixer),
    "mobilevit": Architecture("timm", _timm("mobilevit_xxs")),
    # texts
    "bert": Architecture("transformers", _transformers("BertModel", "BertConfig", "last_hidden_state", **_ENCODER), "tokens"),
    "distilbert": Architecture(
        "transformers",
        _transformers(
            "DistilBertModel", "DistilBertConfig", "last_hidden_state",
            vocab_size=VOCABULARY, dim=128, n_layers=2, n_heads=4, hidden_dim=256, max_position_embeddings=64,
        ),
        "tokens",
    ),
    "deberta": Architecture(
        "transformers",
        _transformers(
            "DebertaV2Model", "DebertaV2Config", "last_hidden_state",
            **_ENCODER, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=16,
        ),
        "tokens",
    ),
    "t5_encoder": Architecture(
        "transformers",
        _transformers(
            "T5EncoderModel", "T5Config", "last_hidden_state",
            vocab_size=VOCABULARY, d_model=128, d_kv=32, d_ff=256, num_layers=2, num_heads=4,
        ),
        "tokens",
    ),
    "gpt2": Architecture(
        "transformers",
        _transformers(
            "GPT2LMHeadModel", "GPT2Config", "logits",
            vocab_size=VOCABULARY, n_positions=64, n_embd=128, n_layer=2, n_head=4, use_cache=False,
        ),
        "tokens",
    ),
    "llama": Architecture("transformers", _transformers("LlamaForCausalLM", "LlamaConfig", "logits", **_DECODER), "tokens"),
    "qwen3": Architecture(
        "transformers", _transformers("Qwen3ForCausalLM", "Qwen3Config", "logits", **_DECODER, head_dim=32), "tokens"
    ),
    "gemma2": Architecture(
        "transformers", _transformers("Gemma2ForCausalLM", "Gemma2Config", "logits", **_DECODER, head_dim=32), "tokens"
    ),
    "mixtral": Architecture(
        "transformers",
        _transformers(
            "MixtralForCausalLM", "MixtralConfig", "logits",
            **_DECODER, num_local_experts=4, num_experts_per_tok=2, experts_implementation="batched_mm",
        ),
        "tokens",
    ),
    "mamba": Architecture(
        "transformers",
        _transformers(
            "MambaForCausalLM", "MambaConfig", "logits",
            vocab_size=VOCABULARY, hidden_size=96, state_size=8, num_hidden_layers=2, use_cache=False,
        ),
        "tokens",
    ),
    # speech
    "whisper_encoder": Architecture(
        "transformers",
        _transformers(
            "WhisperForAudioClassification", "WhisperConfig", "logits",
            d_model=128, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=256, num_mel_bins=40,
            max_source_positions=48, decoder_layers=1, vocab_size=VOCABULARY, pad_token_id=0,
        ),
        "mel",
    ),
    "wav2vec2": Architecture(
        "transformers",
        _transformers(
            "Wav2Vec2Model", "Wav2Vec2Config", "last_hidden_state",
            hidden_size=96, num_hidden_layers=2, num_attention_heads=4, intermediate_size=192, vocab_size=32,
            conv_dim=(64, 64, 64), conv_stride=(5, 4, 2), conv_kernel=(10, 8, 4), num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=4, layerdrop=0.0, mask_time_prob=0.0, apply_spec_augment=False,
        ),
        "wave",
    ),
}  # fmt: skip

NAMES = list(ARCHITECTURES)


def inputs(name: str, batch: int = BATCH, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Random inputs: images f32 [batch, 3, size, size], tokens i64 [batch, TOKENS], mel spectra f32 [batch, 40, 96] or
    waves f32 [batch, 1600]."""
    a = ARCHITECTURES[name]
    generator = torch.Generator().manual_seed(seed + zlib.crc32(name.encode()))
    if a.takes == "image":
        return (torch.randn(batch, 3, a.size, a.size, generator=generator),)
    if a.takes == "tokens":
        return (torch.randint(1, VOCABULARY, (batch, TOKENS), generator=generator),)
    if a.takes == "mel":
        return (torch.randn(batch, 40, 96, generator=generator),)
    return (torch.randn(batch, 1600, generator=generator),)


def build(name: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...], tuple[dict[int, torch.export.Dim], ...]]:
    """The module in evaluation mode, example inputs of a batch of BATCH, and dynamic shapes of a free batch, one
    dictionary an input. Raises KeyError for a name that is not in NAMES."""
    with torch.random.fork_rng():
        torch.manual_seed(zlib.crc32(name.encode()))
        module = ARCHITECTURES[name].make().eval()
        wake(module)
        set_statistics(module, inputs(name, 8, seed=1))
    batch = torch.export.Dim("batch", min=1, max=64)
    example = inputs(name)
    return module, example, tuple({0: batch} for _ in example)
