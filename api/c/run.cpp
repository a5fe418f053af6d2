// Runs through the C interface, and the sizes of what they yield.
#include "api/c/struct.h"
#include "api/c/tensors.h"

namespace tessera {
namespace {

bool is_same(const DeviceTensor& known, const tessera_tensor& t) {
  return known.data == t.data && info(known.dtype).onnx == t.dtype && t.dims != nullptr &&
         std::equal(known.dims.begin(), known.dims.end(), t.dims, t.dims + std::max(t.rank, 0));
}

// All inputs in order, as called_with. Those that the last call gave, as weights are, were looked at then.
Status take_inputs(tessera_session& s, const tessera_tensor* inputs) {
  auto last = std::exchange(s.called_with, {});
  last.resize(s.inputs.size());
  for (size_t i = 0; i < last.size(); ++i) {
    if (is_same(last[i], inputs[i]) && last[i].data != nullptr) continue;
    TESSERA_ASSIGN(auto checked, check(inputs[i], s.inputs[i], "input '" + s.inputs[i].name + "'", DataUse::Needed));
    last[i] = on_device(checked);
  }
  s.called_with = std::move(last);
  return {};
}

void show_outputs(tessera_session& s, std::vector<DeviceTensor> outputs) {
  s.yields = std::move(outputs);
  s.sizes.clear();
  for (size_t i = 0; i < s.yields.size(); ++i) {
    const DeviceTensor& t = s.yields[i];
    s.sizes.push_back(
        {s.outputs[i].name.c_str(), info(t.dtype).onnx, static_cast<int32_t>(t.dims.size()), t.dims.data(), t.data});
  }
}

Status output_sizes(tessera_session& s, const tessera_tensor* inputs, int32_t input_count, RunStats& stats) {
  TESSERA_ASSIGN(auto in, check_all(s, Side::Input, inputs, input_count, DataUse::Ignored));
  const auto given = by_name(in, on_device);
  TESSERA_ASSIGN(auto sizes, on_executor(s, [&](auto& e) { return e.output_sizes(given, &stats); }));
  show_outputs(s, std::move(sizes));
  return {};
}

Status run_fresh(tessera_session& s, const tessera_tensor* inputs, int32_t input_count, RunStats& stats) {
  TESSERA_ASSIGN(auto in, check_all(s, Side::Input, inputs, input_count, DataUse::Needed));
  const auto given = by_name(in, view);
  s.sizes.clear();
  s.fresh.clear();
  TESSERA_ASSIGN(s.fresh, on_executor(s, [&](auto& e) { return e.run(given, &stats); }));
  std::vector<DeviceTensor> outputs;
  for (const Tensor& t : s.fresh) {
    if (!has_bytes(t.dtype()))
      return Diagnostic(ErrorCode::UnsupportedType, "output '" + s.outputs[outputs.size()].name + "' holds " +
                                                        std::string(name(t.dtype())) +
                                                        "s, which are no memory of a fixed layout");
    outputs.push_back({t.dtype(), t.dims(), const_cast<std::byte*>(t.data())});
  }
  show_outputs(s, std::move(outputs));
  return {};
}

Status call_with(tessera_session& s, const tessera_tensor* inputs, int32_t input_count,
                 const tessera_call_options& options, RunStats& stats) {
  if (options.allocate == nullptr) return usage("the function that gives memory for outputs is null");
  if (input_count < 0 || static_cast<size_t>(input_count) != s.inputs.size())
    return usage("the model has " + std::to_string(s.inputs.size()) + " inputs, and the number given is " +
                 std::to_string(input_count));
  if (input_count > 0 && inputs == nullptr) return usage("the inputs are null");
  TESSERA_TRY(take_inputs(s, inputs));
  const OutputAllocator give = [&](size_t output, DType dtype, const Dims& dims) -> Result<void*> {
    const OutsideLibrary callback;
    return options.allocate(options.context, static_cast<int32_t>(output), info(dtype).onnx,
                            static_cast<int32_t>(dims.size()), dims.data());
  };
  const ScratchAllocator scratch = [&](int64_t bytes) -> Result<void*> {
    const OutsideLibrary callback;
    return options.scratch(options.context, static_cast<size_t>(bytes));
  };
  DonatedInputs donated;
  if (options.donated) donated.flags = {options.donated, s.inputs.size()};
  Status called = on_executor(s, [&](auto& e) {
    return e.call(s.called_with, give, options.stream, &stats, options.scratch ? &scratch : nullptr, &donated);
  });
  if (options.overwritten) *options.overwritten = donated.overwritten ? 1 : 0;
  return called;
}

std::string text_of(const Dims& dims) {
  std::string text;
  for (const int64_t d : dims) text += (text.empty() ? "" : ", ") + std::to_string(d);
  return "[" + text + "]";
}
Diagnostic other_sizes(const std::string& output, const Dims& bound, const Dims& made) {
  return {ErrorCode::BadInput, "output '" + output + "' has the sizes " + text_of(made) +
                                   ", and the memory bound to it has the sizes " + text_of(bound)};
}

// Memory of an output that overlaps any other.
Status check_overlaps(const std::vector<Checked>& inputs, const std::vector<Checked>& outputs) {
  auto overlap = [](const Checked& a, const Checked& b) {
    const auto at = reinterpret_cast<uintptr_t>(a.data), other = reinterpret_cast<uintptr_t>(b.data);
    return a.bytes > 0 && b.bytes > 0 && at < other + b.bytes && other < at + a.bytes;
  };
  auto error = [](const Checked& output, const char* kind, const Checked& other) {
    return Diagnostic(ErrorCode::BadInput, "the memory given for output '" + output.io->name + "' overlaps that of " +
                                               kind + " '" + other.io->name + "'")
        .note("give each output memory of its own");
  };
  for (size_t o = 0; o < outputs.size(); ++o) {
    for (const Checked& in : inputs)
      if (overlap(outputs[o], in)) return error(outputs[o], "input", in);
    for (size_t p = 0; p < o; ++p)
      if (overlap(outputs[o], outputs[p])) return error(outputs[o], "output", outputs[p]);
  }
  return {};
}

// Everything that can be known before a run.
Result<tessera_session::Bound> bind(tessera_session& s, const tessera_tensor* inputs, int32_t input_count,
                                    const tessera_tensor* outputs, int32_t output_count, RunStats& stats) {
  TESSERA_ASSIGN(auto in, check_all(s, Side::Input, inputs, input_count, DataUse::Needed));
  TESSERA_ASSIGN(auto out, check_all(s, Side::Output, outputs, output_count, DataUse::Needed));
  TESSERA_TRY(check_overlaps(in, out));
  tessera_session::Bound bound;
  std::map<std::string, DeviceTensor> named;
  for (const Checked& t : in) named.emplace(t.io->name, DeviceTensor{t.dtype, t.dims, t.data});
  for (const IoInfo& io : s.inputs) {
    auto given = named.find(io.name);
    if (given == named.end()) return Diagnostic(ErrorCode::MissingInput, "input '" + io.name + "' was not given");
    bound.inputs.push_back(given->second);
  }
  bound.outputs = in_order(out, on_device);
  for (size_t o = 0; o < bound.outputs.size(); ++o)
    if (bound.outputs[o].dtype != s.outputs[o].dtype)
      return Diagnostic(ErrorCode::BadInput,
                        "output '" + s.outputs[o].name + "' is " + std::string(name(s.outputs[o].dtype)) +
                            ", and the memory bound to it is " + std::string(name(bound.outputs[o].dtype)));
  if (!s.sizes_known) return bound;
  TESSERA_ASSIGN(auto sizes, on_executor(s, [&](auto& e) { return e.output_sizes(named, &stats); }));
  for (size_t o = 0; o < bound.outputs.size(); ++o)
    if (bound.outputs[o].dims != sizes[o].dims)
      return other_sizes(s.outputs[o].name, bound.outputs[o].dims, sizes[o].dims);
  return bound;
}

} // namespace
} // namespace tessera

using namespace tessera;

const char* tessera_output_sizes(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                                 const tessera_tensor** outputs, int32_t* output_count) {
  if (outputs == nullptr || output_count == nullptr) return record_error(usage("nowhere to put the outputs"));
  return counted_call(session, ContextMetrics::Kind::Sizes, "finding the outputs' sizes",
                      [&](tessera_session& s, RunStats& stats) -> Status {
                        TESSERA_TRY(output_sizes(s, inputs, input_count, stats));
                        show(s.sizes, outputs, output_count);
                        return {};
                      });
}

const char* tessera_run_fresh(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                              const tessera_tensor** outputs, int32_t* output_count) {
  if (outputs == nullptr || output_count == nullptr) return record_error(usage("nowhere to put the outputs"));
  return run_call(session, [&](tessera_session& s, RunStats& stats) -> Status {
    TESSERA_TRY(run_fresh(s, inputs, input_count, stats));
    show(s.sizes, outputs, output_count);
    return {};
  });
}

const char* tessera_run(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                        const tessera_tensor* outputs, int32_t output_count) {
  return run_call(session, [&](tessera_session& s, RunStats& stats) -> Status {
    TESSERA_ASSIGN(auto in, check_all(s, Side::Input, inputs, input_count, DataUse::Needed));
    TESSERA_ASSIGN(auto out, check_all(s, Side::Output, outputs, output_count, DataUse::Needed));
    auto given = in_order(out, view);
    const auto named = by_name(in, view);
    TESSERA_TRY(on_executor(s, [&](auto& e) { return e.run(named, &stats, &given); }));
    return {};
  });
}

const char* tessera_run_on_device(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                                  const tessera_tensor* outputs, int32_t output_count, void* stream) {
  return run_call(session, [&](tessera_session& s, RunStats& stats) -> Status {
    TESSERA_ASSIGN(auto in, check_all(s, Side::Input, inputs, input_count, DataUse::Needed));
    TESSERA_ASSIGN(auto out, check_all(s, Side::Output, outputs, output_count, DataUse::Needed));
    const auto named = by_name(in, on_device);
    const auto made = in_order(out, on_device);
    return on_executor(s, [&](auto& e) { return e.run_on_device(named, made, stream, &stats); });
  });
}

const char* tessera_call(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                         tessera_allocate allocate, void* context, void* stream) {
  const tessera_call_options options{sizeof options, allocate, nullptr, context, stream};
  return run_call(
      session, [&](tessera_session& s, RunStats& stats) { return call_with(s, inputs, input_count, options, stats); });
}

const char* tessera_call_with(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                              const tessera_call_options* options) {
  return run_call(session, [&](tessera_session& s, RunStats& stats) -> Status {
    if (options == nullptr) return usage("the options of the call are null");
    TESSERA_ASSIGN(const auto taken,
                   take_struct("tessera_call_options", *options, TESSERA_BYTES_WITH(tessera_call_options, stream)));
    return call_with(s, inputs, input_count, taken, stats);
  });
}

const char* tessera_bind(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                         const tessera_tensor* outputs, int32_t output_count) {
  return counted_call(session, ContextMetrics::Kind::Sizes, "binding memory",
                      [&](tessera_session& s, RunStats& stats) -> Status {
                        s.bound.reset();
                        TESSERA_ASSIGN(auto bound, bind(s, inputs, input_count, outputs, output_count, stats));
                        s.bound = std::move(bound);
                        return {};
                      });
}

const char* tessera_run_bound(tessera_session* session, void* stream) {
  return run_call(session, [&](tessera_session& s, RunStats& stats) -> Status {
    if (!s.bound) return usage("nothing is bound: tessera_bind() comes before tessera_run_bound()");
    const OutputAllocator give = [&s](size_t output, DType, const Dims& dims) -> Result<void*> {
      const DeviceTensor& t = s.bound->outputs[output];
      if (t.dims != dims) return other_sizes(s.outputs[output].name, t.dims, dims);
      return t.data;
    };
    return on_executor(s, [&](auto& e) { return e.call(s.bound->inputs, give, stream, &stats); });
  });
}

void tessera_unbind(tessera_session* session) {
  if (session != nullptr)
    (void)call(session, "unbinding memory", [](tessera_session& s) -> Status {
      s.bound.reset();
      return {};
    });
}

const char* tessera_warmup(tessera_session* session, const tessera_tensor* inputs, int32_t input_count) {
  return counted_call(session, ContextMetrics::Kind::WarmUp, "warming up",
                      [&](tessera_session& s, RunStats& stats) -> Status {
                        TESSERA_ASSIGN(auto in, check_all(s, Side::Input, inputs, input_count, DataUse::Optional));
                        std::map<std::string, Tensor> given;
                        for (Checked& t : in) {
                          if (t.data != nullptr) {
                            given.emplace(t.io->name, view(t));
                            continue;
                          }
                          TESSERA_ASSIGN(Tensor zeros, Tensor::create(t.dtype, std::move(t.dims), true));
                          given.emplace(t.io->name, std::move(zeros));
                        }
                        return on_executor(s, [&](auto& e) -> Status {
                          Status outcome = e.warm_up(given, &stats);
                          if (outcome.ok() || outcome.error().code != ErrorCode::BadInput) return outcome;
                          Diagnostic error = std::move(outcome).take_error();
                          error.note("where inputs of zeros are not valid, give tessera_warmup() data");
                          return error;
                        });
                      });
}

const char* tessera_warmup_ranges(tessera_session* session, const char* ranges, const tessera_tensor* inputs,
                                  int32_t input_count) {
  return counted_call(
      session, ContextMetrics::Kind::WarmUp, "warming up", [&](tessera_session& s, RunStats&) -> Status {
        if (ranges == nullptr) return usage("the ranges are null");
        if (input_count < 0 || (input_count > 0 && inputs == nullptr)) return usage("the inputs are null");
        TESSERA_ASSIGN(const SizeRanges parsed, parse_size_ranges(ranges));
        std::map<std::string, Tensor> given;
        for (int32_t i = 0; i < input_count; ++i) {
          const char* name = inputs[i].name;
          const auto known = name ? s.input_named.find(std::string_view(name)) : s.input_named.end();
          if (known == s.input_named.end())
            return usage("value " + std::to_string(i) + " is of no input of the model: " + (name ? name : "null"));
          TESSERA_ASSIGN(Checked t, check(inputs[i], s.inputs[known->second],
                                          "input '" + s.inputs[known->second].name + "'", DataUse::Needed));
          given.insert_or_assign(known->first, view(t));
        }
        return s.session->warm_up_ranges(parsed, given, s.executor.get());
      });
}

const char* tessera_trim(tessera_session* session) {
  return call(session, "giving memory back",
              [](tessera_session& s) -> Status { return on_executor(s, [](auto& e) { return e.trim(); }); });
}
