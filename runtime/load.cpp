#include "graph/support/file.h"
#include "graph/support/json_document.h"
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

// A launch over parameters of its own.
Contract contract(const JsonValue& j, size_t objects) {
  Contract c;
  Symbols symbols;
  constexpr int kMostParameters = 1 << 16;
  for (int p = 0, n = j.at("parameters").integer(0, kMostParameters); p < n; ++p) {
    c.parameters.push_back(parameter(static_cast<size_t>(p)));
    symbols.emplace(c.parameters.back().symbol_name(), c.parameters.back());
  }
  auto number = [&](const JsonValue& e) { return read_expr(e, symbols); };
  auto conditions = [&](const JsonValue& list) {
    return list.list([&](const JsonValue& v) {
      return SizeCondition{number(v.at(size_t{0})), v.at(1).integer<int64_t>(1, INT64_MAX), v.at(2).integer(),
                           v.at(3).integer()};
    });
  };
  KernelLaunch& k = c.launch;
  k.symbol = j.at("symbol").text();
  k.object = read_index<int>(j.at("object"), objects);
  k.sizes = j.at("sizes").list(number);
  k.grid = number(j.at("grid"));
  k.work_per_program = number(j.at("work"));
  k.scratch_bytes = number(j.at("scratch"));
  const auto buffers = j.at("access").size();
  j.at("access").each([&](const JsonValue& a) {
    auto shared = a.at(3).list([&](const JsonValue& b) { return read_index<int>(b, buffers); });
    k.access.push_back({a.at(size_t{0}).dtype(), number(a.at(1)), std::move(shared)});
    k.written.push_back(a.at(2).flag());
  });
  j.at("workspaces").each([&](const JsonValue& w) {
    k.workspaces.push_back({w.at(size_t{0}).dtype(), number(w.at(1))});
  });
  k.counters = number(j.at("counters"));
  k.boxes = number(j.at("boxes"));
  k.team = number(j.at("team"));
  k.threads = j.at("threads").integer(0, INT32_MAX);
  k.shared_bytes = j.at("shared").integer<int64_t>(0, INT32_MAX);
  k.conditions = conditions(j.at("conditions"));
  k.facts = conditions(j.at("facts"));
  return c;
}

} // namespace

std::vector<LoadedVariant> read_file(const std::string& path, Storage bytes, const ModelParts* parts, int depth) {
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
  std::vector<LoadedVariant> variants;
  plan.at("variants").each([&](const JsonValue& v) {
    variants.push_back({v.at("label").text(), v.at("conditions").integer(0, INT32_MAX), read_plan(f, v)});
  });
  if (variants.empty()) plan.at("variants").wrong("at least one variant");
  return variants;
}

} // namespace file

namespace {
Result<std::vector<file::LoadedVariant>> load(Storage file, const std::string& path, const ModelParts* parts,
                                              const LinkFn& link, const ResolveHostStepFn& resolve) {
  auto damaged = [&](const std::string& what) {
    return Diagnostic(ErrorCode::CorruptFile, "'" + path + "' cannot be loaded: " + what)
        .note("compile the model again with `tessera compile`");
  };
  std::vector<file::LoadedVariant> loaded;
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

Result<std::vector<FileVariant>> load_executables(const std::string& path, const LinkFn& link,
                                                  const ResolveHostStepFn& resolve) {
  TESSERA_ASSIGN(auto file, map_file(path));
  return load_executables(std::move(file), path, link, resolve);
}

Result<std::vector<FileVariant>> load_executables(Storage file, const std::string& path, const LinkFn& link,
                                                  const ResolveHostStepFn& resolve) {
  TESSERA_ASSIGN(auto loaded, load(std::move(file), path, nullptr, link, resolve));
  std::vector<FileVariant> variants;
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
