"""PyTorch's operator database at the limits: special values and indices beyond, results as eager's or eager's refusal.

    python tests/torch/op_db_limits_test.py

Operators whose rules differ from machine to machine; with TESSERA_TEST_TIER=all the whole database, static, symbolic and with gradients.
"""

from __future__ import annotations

import os
import sys

import op_db_test

DTYPES = "float32,float16,int64,int32,int8,uint8"
# Single elements, folds, positions, and what eager refuses.
OPERATORS = (
    "add", "mul", "div.trunc_rounding", "div.floor_rounding", "remainder", "fmod", "floor_divide", "abs", "neg", "sign", "clamp", "maximum", "pow", "copysign",
    "bitwise_left_shift", "nextafter", "nan_to_num", "where", "nn.functional.relu", "nn.functional.gelu", "amax", "argmax", "cummax", "sum", "prod", "logsumexp",
    "softmax", "sort", "topk", "gather", "scatter", "index_select", "index_add", "index_put", "take", "nn.functional.embedding", "nn.functional.embedding_bag",
    "nn.functional.one_hot", "nn.functional.cross_entropy", "nn.functional.nll_loss", "nn.functional.multi_margin_loss", "nn.functional.binary_cross_entropy",
    "nn.functional.max_unpool2d", "nn.functional.avg_pool2d", "_unsafe_masked_index", "grid_sampler_3d", "bernoulli",
)  # fmt: skip

if __name__ == "__main__":
    whole = os.environ.get("TESSERA_TEST_TIER") == "all"
    failed = 0
    runs = [["--dtypes", DTYPES], ["--dtypes", DTYPES, "--dynamic"], ["--dtypes", "float32,float16", "--gradients"]]
    for run in runs if whole else [["--dtypes", DTYPES.replace("int32,", "")]]:
        sys.argv[1:] = ["--limits", *run, *(("--all", "--samples", "2") if whole else ("--samples", "1", *OPERATORS))]
        failed |= op_db_test.main()
    sys.exit(failed)
