// Files of records include this header: everything that a record may hold, and the functions that register records.
#pragma once
#include "graph/infer/infer.h"
#include "graph/reference/context.h"

namespace tessera {

// ---- samples: what every test over operators runs
struct Sample {
  std::vector<Tensor> operands; // undefined tensor = left out
  Attributes attributes;
  int result_count = 1;
  int opset = 0;
  double tolerance = 1e-5; // ||out-ref|| / ||ref||
  Sample();
  Sample(const Sample&);
  Sample(Sample&&) noexcept;
  Sample& operator=(const Sample&);
  Sample& operator=(Sample&&) noexcept;
  ~Sample();
};
struct ErrorSample {
  Sample sample;
  ErrorCode code;
  std::string_view message_part;
};

// Registering functions, one per file of ops/.
void register_constant_ops(OpTable&);   // constant, weight, iota, shape-like composites
void register_pointwise_ops(OpTable&);  // add ... erf, comparisons, logic, cast, select
void register_activation_ops(OpTable&); // Relu, Gelu, Selu, HardSwish, Softmax family composites
void register_reduction_ops(OpTable&);
void register_indexing_ops(OpTable&);  // reshape ... gather, concat, pad, and their ONNX composites
void register_norm_ops(OpTable&);      // LayerNormalization, BatchNormalization ...
void register_rotary_ops(OpTable&);    // RotaryEmbedding
void register_matmul_ops(OpTable&);    // matmul, Gemm, Einsum, quantised products, attention composites
void register_conv_ops(OpTable&);      // conv, pooling, Resize ...
void register_sort_scan_ops(OpTable&); // TopK, CumSum, NonZero, Unique, Scatter, NMS ...
void register_recurrent_ops(OpTable&); // RNN, LSTM, GRU
void register_quant_ops(OpTable&);     // QuantizeLinear ...
void register_misc_ops(OpTable&);      // losses, windows, DFT, random, Det ...
void register_control_ops(OpTable&);   // If, Loop, Scan

} // namespace tessera
