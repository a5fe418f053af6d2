#include "serving/triton/instance.h"
#include <algorithm>

namespace tessera::triton {

namespace {
size_t bytes_of(const Value& value, const Dims& dims) {
  size_t bytes = element_type(value.onnx)->bytes;
  for (int64_t d : dims) bytes *= static_cast<size_t>(d); // of sizes that the runtime computed with, which fit
  return bytes;
}

// Alignment that the C interface requires of elements.
bool is_aligned(const void* data, const Value& value) {
  const size_t alignment = std::clamp<size_t>(element_type(value.onnx)->bytes, 1, 8);
  return reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

std::byte nothing; // the address of tensors without elements
} // namespace

Error Instance::create(Model& model, TRITONBACKEND_ModelInstance* handle, std::unique_ptr<Instance>& out) {
  std::unique_ptr<Instance> instance(new Instance(model, handle));
  Place place;
  TESSERA_TRITON_TRY(model.new_context(handle, instance->session_, place));
  if (model.has_strings()) place = {}; // all values of such a model are passed in host memory
  TESSERA_TRITON_TRY(Copies::create(place, instance->copies_));
  instance->input_blocks_.resize(model.interface().inputs.size());
  instance->output_blocks_.resize(model.interface().outputs.size());
  out = std::move(instance);
  return nullptr;
}

int64_t Instance::rows_of(Group group) {
  int64_t rows = 0;
  for (const Request& r : group) rows += r.rows();
  return rows;
}

Dims Instance::group_dims(Group group, size_t index, bool batched) {
  Dims dims = group.front().inputs()[index].dims;
  if (batched) dims.front() = rows_of(group);
  return dims;
}

void Instance::execute(std::vector<Request> requests) {
  const uint64_t start = now();
  std::vector<Request> good;
  for (Request& r : requests) {
    if (Error error = guarded([&] { return r.read(model_, copies_->home()); })) {
      const uint64_t t = now();
      r.answer(std::move(error), {start, t, t});
    } else {
      good.push_back(std::move(r));
    }
  }
  for (size_t first = 0; first < good.size();) {
    size_t last = first + 1;
    while (model_.batched() && last < good.size() && good[last].joins(good[first])) ++last;
    run(Group(good).subspan(first, last - first), start);
    first = last;
  }
}

void Instance::run(Group group, uint64_t start) {
  Times times{start, 0, 0};
  Error error = guarded([&] { return compute(group, times); });
  if (error && group.size() > 1 && times.compute_end == 0) { // nothing is in a response yet
    for (size_t i = 0; i < group.size(); ++i) run(group.subspan(i, 1), start);
    return;
  }
  times.compute_start = std::max(times.compute_start, start); // where an error came before
  times.compute_end = std::max(times.compute_end, times.compute_start);
  if (!error)
    log_error(Error(TRITONBACKEND_ModelInstanceReportBatchStatistics(
        handle_, static_cast<uint64_t>(rows_of(group)), times.start, times.compute_start, times.compute_end, now())));
  for (Request& r : group) {
    Error own =
        error
            ? Error(TRITONSERVER_ErrorNew(TRITONSERVER_ErrorCode(error.get()), TRITONSERVER_ErrorMessage(error.get())))
            : nullptr;
    r.answer(std::move(own), times);
  }
}

Error Instance::compute(Group group, Times& times) {
  times.compute_start = now();
  results_.assign(model_.interface().outputs.size(), {});
  TESSERA_TRITON_TRY(model_.has_strings() ? call_with_strings(group) : call(group));
  times.compute_end = now();
  TESSERA_TRITON_TRY(deliver(group));
  return copies_->wait();
}

Error Instance::gather(Group group, size_t index, Place& place, const void** data) {
  const Value& value = model_.interface().inputs[index];
  size_t bytes = 0;
  for (const Request& r : group) bytes += r.inputs()[index].bytes;
  place = copies_->home();
  if (bytes == 0) {
    *data = &nothing;
    return nullptr;
  }
  if (const auto& buffers = group.front().inputs()[index].buffers; group.size() == 1 && buffers.size() == 1) {
    const Buffer& b = buffers.front();
    if (same_memory(place, b.place) && is_aligned(b.data, value)) {
      *data = b.data;
      return nullptr;
    }
  }
  Block& block = input_blocks_[index];
  TESSERA_TRITON_TRY(block.reserve(session_.get(), *copies_, bytes));
  std::byte* to = block.data();
  for (const Request& r : group) {
    for (const Buffer& b : r.inputs()[index].buffers) {
      TESSERA_TRITON_TRY(copies_->copy(to, place, b.data, b.place, b.bytes));
      to += b.bytes;
    }
  }
  *data = block.data();
  return nullptr;
}

Error Instance::check_rows(Group group, size_t output, const Dims& dims) const {
  if (!model_.batched()) return nullptr;
  const int64_t rows = rows_of(group);
  if (!dims.empty() && dims.front() == rows) return nullptr;
  return invalid("output '" + model_.interface().outputs[output].name + "' has " +
                 (dims.empty() ? "no dimensions" : std::to_string(dims.front()) + " rows") + " for a batch of " +
                 std::to_string(rows) + "; a model without a batch dimension has max_batch_size 0");
}

Error Instance::allocate(Group group, size_t output, const Dims& dims, void** data) {
  const Value& value = model_.interface().outputs[output];
  Produced& result = results_[output];
  TESSERA_TRITON_TRY(check_rows(group, output, dims));
  const size_t bytes = bytes_of(value, dims);
  result.place = copies_->home();
  void* memory = nullptr;
  if (group.size() == 1 && group.front().wants(output)) {
    Place there = result.place;
    TESSERA_TRITON_TRY(group.front().output(value, dims, bytes, &memory, there));
    if (!same_memory(result.place, there) || !is_aligned(memory, value)) {
      result.response = std::exchange(memory, nullptr);
      result.response_place = there;
    }
  }
  if (bytes == 0) memory = &nothing;
  if (memory == nullptr) {
    TESSERA_TRITON_TRY(output_blocks_[output].reserve(session_.get(), *copies_, bytes));
    memory = output_blocks_[output].data();
  }
  result.data = memory;
  result.dims = dims;
  result.bytes = bytes;
  *data = const_cast<void*>(result.data);
  return nullptr;
}

Error Instance::call(Group group) {
  const auto& values = model_.interface().inputs;
  std::vector<Dims> dims;
  std::vector<tessera_tensor> inputs;
  for (size_t i = 0; i < values.size(); ++i) {
    Place place;
    const void* data = nullptr;
    TESSERA_TRITON_TRY(gather(group, i, place, &data));
    dims.push_back(group_dims(group, i, model_.batched()));
    inputs.push_back({values[i].name.c_str(), values[i].onnx, static_cast<int32_t>(dims.back().size()), nullptr,
                      const_cast<void*>(data)});
  }
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i].dims = dims[i].data();
  // Inputs that lie on the host were copied at once; those of a GPU are on the stream of the call. Copies of a host's
  // model from a GPU have to be there.
  if (!copies_->home().on_gpu()) TESSERA_TRITON_TRY(copies_->wait());

  struct Context {
    Instance* instance;
    Group group;
    Error error;
  } context{this, group, nullptr};
  tessera_allocate allocate = [](void* c, int32_t output, int32_t, int32_t rank, const int64_t* sizes) -> void* {
    auto& at = *static_cast<Context*>(c);
    void* data = nullptr;
    at.error = guarded(
        [&] { return at.instance->allocate(at.group, static_cast<size_t>(output), Dims(sizes, sizes + rank), &data); });
    return at.error ? nullptr : data;
  };
  Error failed = from_tessera(tessera_call(session_.get(), inputs.data(), static_cast<int32_t>(inputs.size()), allocate,
                                           &context, copies_->stream()));
  return context.error ? std::move(context.error) : std::move(failed);
}

Error Instance::deliver(Group group) {
  for (size_t o = 0; o < results_.size(); ++o) {
    const Value& value = model_.interface().outputs[o];
    const Produced& result = results_[o];
    if (value.onnx == TESSERA_STRING) {
      TESSERA_TRITON_TRY(deliver_strings(group, o));
      continue;
    }
    if (result.response != nullptr)
      TESSERA_TRITON_TRY(
          copies_->copy(result.response, result.response_place, result.data, result.place, result.bytes));
    // allocate() has put those of a group of one into the response.
    if (group.size() == 1 && !model_.has_strings()) continue;
    const auto* from = static_cast<const std::byte*>(result.data);
    for (Request& r : group) {
      Dims dims = result.dims;
      if (model_.batched()) dims.front() = r.rows();
      const size_t bytes = bytes_of(value, dims);
      if (r.wants(o)) {
        void* to = nullptr;
        Place place = result.place;
        TESSERA_TRITON_TRY(r.output(value, dims, bytes, &to, place));
        TESSERA_TRITON_TRY(copies_->copy(to, place, from, result.place, bytes));
      }
      from += bytes;
    }
  }
  return nullptr;
}

} // namespace tessera::triton
