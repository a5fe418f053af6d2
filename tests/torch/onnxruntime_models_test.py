"""Models that ONNX Runtime's tools made of small ones: its transformer optimizer, its graph optimizations saved, and its
quantizers. Each agrees with ONNX Runtime on the same file."""

from __future__ import annotations

import logging
import tempfile
import unittest
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnxruntime
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.transformers import optimizer
from support import ROOT  # noqa: F401  finds the package
from transformers import BertConfig, BertModel

import tessera

Feeds = dict[str, numpy.ndarray]
FOLDER = tempfile.TemporaryDirectory()
LEVELS = onnxruntime.GraphOptimizationLevel


class Encoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        config = BertConfig(
            vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=32, attn_implementation="eager"
        )
        self.model = BertModel(config, add_pooling_layer=False)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        return self.model(ids, attention_mask=mask, token_type_ids=types).last_hidden_state


def images() -> torch.nn.Module:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.LeakyReLU(0.1), nn.AvgPool2d(2),
        nn.Conv2d(8, 6, 1), nn.Sigmoid(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5), nn.Softmax(-1),
    )  # fmt: skip


def path(name: str) -> str:
    return str(Path(FOLDER.name) / name)


def export(module: torch.nn.Module, feeds: Feeds, name: str) -> str:
    dims = {key: {0: "batch", 1: "length"} if value.ndim == 2 else {0: "batch"} for key, value in feeds.items()}
    args = tuple(torch.from_numpy(value) for value in feeds.values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module.eval(), args, path(name), input_names=list(feeds), output_names=["y"], dynamic_axes=dims, opset_version=14, dynamo=False)
    return path(name)


# On processors without VNNI, ONNX Runtime adds two products of u8 and s8 in 16 bits, saturated: weights of 7 bits stay within them.
REDUCE_RANGE = True


class Calibration(CalibrationDataReader):
    def __init__(self, feeds: Feeds) -> None:
        self._feeds: Iterator[Feeds] = iter([feeds])

    def get_next(self) -> Feeds | None:
        return next(self._feeds, None)


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        logging.disable(logging.WARNING)
        torch.manual_seed(0)
        random = numpy.random.default_rng(1)
        mask = numpy.ones((2, 7), numpy.int64)
        mask[0, 5:] = 0
        cls.tokens = {"ids": random.integers(0, 100, (2, 7)), "mask": mask, "types": numpy.zeros((2, 7), numpy.int64)}
        cls.pixels = {"x": random.standard_normal((2, 3, 16, 16)).astype(numpy.float32)}
        cls.encoder, cls.images = export(Encoder(), cls.tokens, "encoder.onnx"), export(images(), cls.pixels, "images.onnx")

    @classmethod
    def tearDownClass(cls) -> None:
        logging.disable(logging.NOTSET)

    def agrees(self, file: str, feeds: Feeds, has: tuple[str, ...] = (), tolerance: float = 1e-5) -> None:
        """Against ONNX Runtime without optimizations; `has`: operators that the file holds."""
        model = onnx.load(file)
        self.assertLessEqual(set(has), {node.op_type for node in model.graph.node}, file)
        feeds = {i.name: feeds[i.name].astype(onnx.helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)) for i in model.graph.input}
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = LEVELS.ORT_DISABLE_ALL
        expected = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
        ours = tessera.load(file, "cpu")(**feeds)
        numpy.testing.assert_allclose(ours, expected, rtol=0, atol=tolerance * numpy.abs(expected).max())

    def saved(self, file: str, level: Any, name: str) -> str:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = level
        options.optimized_model_filepath = path(name)
        onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        return path(name)

    def test_transformer_optimizer(self) -> None:
        fused = ("Attention", "SkipLayerNormalization", "EmbedLayerNormalization", "BiasGelu")
        for level in (0, 1, 2):
            model = optimizer.optimize_model(self.encoder, model_type="bert", num_heads=4, hidden_size=32, opt_level=level)
            model.save_model_to_file(path("optimized.onnx"))
            self.agrees(path("optimized.onnx"), self.tokens, fused)
        model.convert_float_to_float16(keep_io_types=True)
        model.save_model_to_file(path("half.onnx"))
        self.agrees(path("half.onnx"), self.tokens, fused, 5e-3)

    def test_saved_graph_optimizations(self) -> None:
        for level in (LEVELS.ORT_ENABLE_BASIC, LEVELS.ORT_ENABLE_EXTENDED):
            extended = level == LEVELS.ORT_ENABLE_EXTENDED
            self.agrees(self.saved(self.encoder, level, "encoder_saved.onnx"), self.tokens, ("BiasGelu", "FusedMatMul") if extended else ())
            self.agrees(self.saved(self.images, level, "images_saved.onnx"), self.pixels, ("FusedConv",) if extended else ())

    def test_dynamic_quantization(self) -> None:
        for kind in (QuantType.QInt8, QuantType.QUInt8):
            quantize_dynamic(self.encoder, path("dynamic.onnx"), weight_type=kind, reduce_range=REDUCE_RANGE)
            self.agrees(path("dynamic.onnx"), self.tokens, ("MatMulInteger",), 2e-2)
        quantize_dynamic(self.images, path("dynamic.onnx"), reduce_range=REDUCE_RANGE)
        self.agrees(path("dynamic.onnx"), self.pixels, ("ConvInteger",), 2e-2)
        model = optimizer.optimize_model(self.encoder, model_type="bert", num_heads=4, hidden_size=32, opt_level=0)
        model.save_model_to_file(path("fused.onnx"))
        quantize_dynamic(path("fused.onnx"), path("dynamic.onnx"), reduce_range=REDUCE_RANGE, extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})
        self.agrees(path("dynamic.onnx"), self.tokens, ("QAttention", "QEmbedLayerNormalization"), 2e-2)
        saved = self.saved(path("dynamic.onnx"), LEVELS.ORT_ENABLE_EXTENDED, "dynamic_saved.onnx")
        self.agrees(saved, self.tokens, ("DynamicQuantizeMatMul",), 2e-2)

    def test_static_quantization(self) -> None:
        def each(file: str, feeds: Feeds, has: Callable[[Any], tuple[str, ...]]) -> None:
            for form in (QuantFormat.QDQ, QuantFormat.QOperator):
                for per_channel in (False, True):
                    quantize_static(file, path("static.onnx"), Calibration(feeds), quant_format=form, weight_type=QuantType.QInt8, per_channel=per_channel, reduce_range=REDUCE_RANGE)
                    self.agrees(path("static.onnx"), feeds, has(form), 2e-2)

        each(self.images, self.pixels, lambda form: ("QLinearConv", "QLinearAveragePool", "QGemm", "QLinearSoftmax") if form == QuantFormat.QOperator else ("QuantizeLinear",))
        each(self.encoder, self.tokens, lambda form: ("QLinearAdd", "QLinearMul") if form == QuantFormat.QOperator else ("QuantizeLinear",))

    def test_weights_of_four_bits(self) -> None:
        for symmetric in (True, False):
            quantizer = MatMulNBitsQuantizer(onnx.load(self.encoder), block_size=16, is_symmetric=symmetric)
            quantizer.process()
            onnx.save(quantizer.model.model, path("bits.onnx"))
            self.agrees(path("bits.onnx"), self.tokens, ("MatMulNBits",))


if __name__ == "__main__":
    unittest.main()
