#include "base/file.h"
#include "base/json_document.h"
#include "runtime/load_plan.h"
#include "runtime/variant.h"

namespace tessera {
namespace file {
namespace {

// Nothing behind the header is looked at before the hash is known to be right.
Header header(const OpenedFile& f) {
  Header h;
  if (f.bytes.bytes < sizeof h) corrupt("it is shorter than a header");
  std::memcpy(&h, f.bytes.data, sizeof h);
  if (std::memcmp(h.magic, kMagic, sizeof h.magic) != 0) corrupt("it is not a compiled model");
  if (h.version != kVersion)
    corrupt("it has format version " + std::to_string(h.version) + ", this program reads version " +
            std::to_string(kVersion));
  if (h.file_bytes != f.bytes.bytes)
    corrupt("it has " + std::to_string(f.bytes.bytes) + " bytes, its header says " + std::to_string(h.file_bytes));
  if (h.hashed_bytes > f.bytes.bytes - sizeof h || h.plan_bytes > h.hashed_bytes ||
      h.code_bytes > h.hashed_bytes - h.plan_bytes)
    corrupt("the sizes in its header contradict each other");
  if (contents_hash(h, {f.chars(sizeof h), h.hashed_bytes}) != h.hash)
    corrupt("bytes 0 to " + std::to_string(sizeof h + h.hashed_bytes) + " do not match their hash: they were changed");
  return h;
}

// Sections lie one after the other at aligned places. Returns their offsets and sizes.
std::vector<std::pair<size_t, size_t>> sections(const JsonValue& sizes, size_t at, size_t end) {
  std::vector<std::pair<size_t, size_t>> all;
  sizes.each([&](const JsonValue& size) {
    at = aligned(at);
    auto bytes = size.word();
    if (at > end || bytes > end - at) size.wrong("a section that lies in the file");
    all.emplace_back(at, bytes);
    at += bytes;
  });
  return all;
}

// Reads the fields of a launch.
struct LaunchReader {
  const Symbols& symbols;
  size_t buffers;

  void read(const JsonValue& j, std::string& value) const { value = j.text(); }
  template <std::integral Int>
  void read(const JsonValue& j, Int& value) const {
    value = j.integer<Int>(0, INT32_MAX);
  }
  void read(const JsonValue& j, SymExpr& size) const { size = read_expr(j, symbols); }
  void read(const JsonValue& j, Workspace& w) const {
    w.dtype = j.at(size_t{0}).dtype();
    read(j.at(1), w.count);
  }
  void read(const JsonValue& j, TensorMapOf<SymExpr>& m) const {
    m.buffer = read_index<int>(j.at(size_t{0}), buffers);
    m.dtype = j.at(1).dtype();
    read(j.at(2), m.offset);
    read(j.at(3), m.dims);
    read(j.at(4), m.strides);
    read(j.at(5), m.box);
    m.swizzle = static_cast<Swizzle>(j.at(6).integer(0, static_cast<int>(Swizzle::Bytes128)));
    read(j.at(7), m.steps);
  }
  void read(const JsonValue& j, SizeCondition& c) const {
    read(j.at(size_t{0}), c.value);
    c.multiple_of = j.at(1).integer<int64_t>(1, INT64_MAX);
    c.min = j.at(2).integer();
    c.max = j.at(3).integer();
  }
  void read(const JsonValue& j, KernelAccess& a) const { // j.at(2) is `written`
    a.dtype = j.at(size_t{0}).dtype();
    read(j.at(1), a.elements);
    a.may_overwrite = j.at(3).list([&](const JsonValue& b) { return read_index<int>(b, buffers); });
  }
  template <class T>
  void read(const JsonValue& j, std::vector<T>& list) const {
    j.each([&](const JsonValue& one) { read(one, list.emplace_back()); });
  }
};

// A launch over parameters of its own.
Contract contract(const JsonValue& j, size_t objects) {
  Contract c;
  Symbols symbols;
  constexpr int kMaxParameters = 1 << 16;
  for (int p = 0, n = j.at("parameters").integer(0, kMaxParameters); p < n; ++p) {
    c.parameters.push_back(parameter(static_cast<size_t>(p)));
    symbols.emplace(c.parameters.back().symbol_name(), c.parameters.back());
  }
  c.launch.object = read_index<int>(j.at("object"), objects);
  const LaunchReader reader{symbols, j.at("access").size()};
  each_launch_field(c.launch, [&](const LaunchField& field, auto& value) {
    if constexpr (std::is_same_v<decltype(value), bool&>)
      value = j.has(field.key) && j.at(field.key).flag();
    else if constexpr (std::is_same_v<decltype(value), int&>)
      value = j.has(field.key) ? j.at(field.key).integer(0, INT32_MAX) : 0;
    else if (!std::is_same_v<decltype(value), std::vector<TensorMapOf<SymExpr>>&> || j.has(field.key))
      reader.read(j.at(field.key), value);
  });
  j.at("access").each([&](const JsonValue& a) { c.launch.written.push_back(a.at(2).flag()); });
  return c;
}

} // namespace

std::vector<UnlinkedExecutable> read_file(const std::string& path, Storage bytes, const ModelParts* parts, int depth) {
  OpenedFile f{path, std::move(bytes), depth};
  f.parts = parts;
  const Header h = header(f);
  JsonDocument code_json, plan_json;
  const char* text = f.chars(sizeof h);
  if (!code_json.parse(text + h.plan_bytes, text + h.plan_bytes + h.code_bytes) ||
      !plan_json.parse(text, text + h.plan_bytes))
    corrupt("it is not written as a compiled file is");
  const JsonValue code(code_json.json, "code"), plan(plan_json.json, "plan");
  const size_t hashed_end = sizeof h + h.hashed_bytes;
  f.target = code.at("target").text();
  f.objects = sections(code.at("objects"), sizeof h + h.plan_bytes + h.code_bytes, hashed_end);
  code.at("kernels").each([&](const JsonValue& k) { f.contracts.push_back(contract(k, f.objects.size())); });
  f.sections = sections(plan.at("sections"), hashed_end, f.bytes.bytes);
  std::vector<UnlinkedExecutable> variants;
  plan.at("variants").each([&](const JsonValue& v) {
    variants.push_back({v.at("label").text(), v.at("conditions").integer(0, INT32_MAX), read_plan(f, v)});
  });
  if (variants.empty()) plan.at("variants").wrong("at least one variant");
  return variants;
}

} // namespace file

namespace {
Result<std::vector<file::UnlinkedExecutable>> load(Storage file, const std::string& path, const ModelParts* parts,
                                                   const LinkFn& link, const ResolveHostStepFn& resolve) {
  auto damaged = [&](const std::string& what) {
    return Diagnostic(ErrorCode::CorruptFile, "'" + path + "' cannot be loaded: " + what)
        .note("compile the model again with `tessera compile`");
  };
  std::vector<file::UnlinkedExecutable> loaded;
  try {
    loaded = file::read_file(path, std::move(file), parts);
  } catch (const file::Corrupt& c) {
    return damaged(c.what);
  } catch (file::Failed& f) {
    return std::move(f.error);
  } catch (const std::bad_alloc&) {
    return Diagnostic(ErrorCode::OutOfMemory, "not enough memory to load '" + path + "'");
  }
  for (auto& v : loaded) {
    TESSERA_TRY(check_target(v.executable->target));
    auto consistent = verify(*v.executable);
    if (!consistent.ok()) return damaged(consistent.error().message);
    TESSERA_TRY(link_executable(*v.executable, link, resolve));
  }
  return loaded;
}
} // namespace

Result<std::vector<FileExecutable>> load_executables(const std::string& path, const LinkFn& link,
                                                     const ResolveHostStepFn& resolve) {
  TESSERA_ASSIGN(auto file, map_file(path));
  return load_executables(std::move(file), path, link, resolve);
}

Result<std::vector<FileExecutable>> load_executables(Storage file, const std::string& path, const LinkFn& link,
                                                     const ResolveHostStepFn& resolve) {
  TESSERA_ASSIGN(auto loaded, load(std::move(file), path, nullptr, link, resolve));
  std::vector<FileExecutable> variants;
  for (auto& v : loaded) variants.push_back({std::move(v.label), v.conditions, std::move(v.executable)});
  return variants;
}

Result<std::shared_ptr<Executable>> load_plan_bytes(Storage plan, const std::string& name, const ModelParts& parts,
                                                    const LinkFn& link, const ResolveHostStepFn& resolve) {
  TESSERA_ASSIGN(auto loaded, load(std::move(plan), name, &parts, link, resolve));
  return std::move(loaded.front().executable);
}

Result<std::shared_ptr<const Executable>> load_executable(const std::string& path, const LinkFn& link,
                                                          const ResolveHostStepFn& resolve) {
  TESSERA_ASSIGN(auto variants, load_executables(path, link, resolve));
  return variants.front().executable;
}

} // namespace tessera
