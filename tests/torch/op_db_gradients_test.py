"""PyTorch's operator database with gradients and symbolic sizes: forward and backward graphs, results as eager's, nothing raises.

    python tests/torch/op_db_gradients_test.py

Operators whose results have sizes that are expressions, and one of each family; with TESSERA_TEST_TIER=all the whole database.
"""

from __future__ import annotations

import os
import sys

import op_db_test

# Sizes that are expressions, then families.
OPERATORS = (
    "narrow", "cat", "repeat", "tile", "nn.functional.pad.circular", "nn.functional.pad.constant", "nn.functional.conv2d",
    "nn.functional.conv_transpose1d", "nn.functional.max_pool2d", "nn.functional.avg_pool2d", "nn.functional.interpolate.bilinear", "unfold", "diff",
    "nn.functional.pixel_unshuffle", "take", "index_select", "gather", "index_add", "nn.functional.cross_entropy", "nn.functional.embedding",
    "nn.functional.layer_norm", "nn.functional.scaled_dot_product_attention", "matmul", "cumsum", "var_mean", "sort", "max.reduction_with_dim", "where",
    "masked.softmax", "linalg.norm", "fft.rfft", "nn.functional.dropout",
)  # fmt: skip

if __name__ == "__main__":
    whole = os.environ.get("TESSERA_TEST_TIER") == "all"
    # Roundings within the operator are not what this is about: f32 alone.
    sys.argv[1:] = ["--gradients", "--dynamic", "--dtypes", "float32", *(("--all", "--samples", "3") if whole else ("--samples", "1", *OPERATORS))]
    sys.exit(op_db_test.main())
