#include "inputs.h"
#include "base/hash.h"
#include "base/similar.h"
#include "graph/ir/operator.h"
#include "graph/ir/sizes.h"
#include <algorithm>
#include <cmath>
#include <dirent.h>
#include <numbers>
#include <random>

namespace tessera::command {

namespace {

constexpr int64_t kDefaultSize = 32;
constexpr int64_t kLargestIndex = 100;

std::string list(const std::vector<std::string>& names) {
  std::string out;
  for (const auto& n : names) out += (out.empty() ? "" : ", ") + n;
  return out;
}

std::vector<std::string> input_names(const std::vector<IoInfo>& inputs) {
  std::vector<std::string> out;
  for (const auto& i : inputs) out.push_back(i.name);
  return out;
}

// The error for a name that is none of `known`, with the one that was meant.
Diagnostic unknown_name(const std::string& message, const std::string& name, const std::vector<std::string>& known) {
  Diagnostic d(ErrorCode::UnknownInput, message);
  if (const auto close = similar(name, known); !close.empty()) d.note("did you mean '" + close + "'?");
  return d;
}

std::string list_inputs(const std::vector<IoInfo>& inputs) {
  const std::string all = list(input_names(inputs));
  return "the model's inputs are " + (all.empty() ? "none" : all);
}

// A size that is an input is declared as bool[n], of which no element is read: a number stands for n of them.
Result<Tensor> as_declared(const IoInfo& io, Tensor t) {
  const bool number = t.dims().empty() && is_integer(t.dtype());
  if (!number || io.dtype != DType::Bool || io.shape.size() != 1) return t;
  const int64_t n = t.get_i64(0);
  if (n < 0)
    return Diagnostic(ErrorCode::BadInput, "input '" + io.name + "' is a size, and " + std::to_string(n) +
                                               " was given; a size is 0 or more");
  return Tensor::create(DType::Bool, {n}, true);
}

const IoInfo* find_io(const std::vector<IoInfo>& ios, const std::string& name) {
  auto it = std::find_if(ios.begin(), ios.end(), [&](const IoInfo& i) { return i.name == name; });
  return it == ios.end() ? nullptr : &*it;
}

// The smallest extent that values of an input index; nullopt when they index nothing.
std::optional<int64_t> indexed_extent(const ShapeEnv& env, const IoInfo& io, const Sizes& sizes) {
  std::optional<int64_t> extent;
  for (const SymExpr& d : io.indexed)
    if (auto size = evaluate(env, sizes, d)) extent = std::min(extent.value_or(*size), *size);
  return extent;
}

// Sizes as --shape takes them, ? for any: "?x4".
std::string example(const SymShape& shape) {
  std::string out;
  for (const auto& d : shape) {
    auto fixed = d.as_const();
    out += (out.empty() ? "" : "x") + (fixed ? std::to_string(*fixed) : "?");
  }
  return out;
}

std::string sizes_text(std::span<const int64_t> sizes) {
  std::string text;
  for (const int64_t n : sizes) text += (text.empty() ? "" : "x") + (n < 0 ? std::string("?") : std::to_string(n));
  return text;
}

// The number that a variant takes an integer of an input to be, as it decides the model's structure.
std::optional<int64_t> assumed_value(const ShapeEnv& env, const std::string& symbol) {
  const auto known = env.find(symbol);
  return known ? env.simplify(*known).as_const() : std::nullopt;
}

uint64_t name_seed(uint64_t seed, const std::string& name) { return hash128(name, seed).lo; }

std::vector<std::string> symbols_of(const std::vector<IoInfo>& ios) {
  std::vector<std::string> symbols;
  for (const auto& io : ios)
    for (const auto& d : io.shape)
      for (const auto& s : d.symbols())
        if (std::find(symbols.begin(), symbols.end(), s.symbol_name()) == symbols.end())
          symbols.push_back(s.symbol_name());
  return symbols;
}

// "s77 (dimension 0 of 'x'), n (2*n is dimension 1 of 'y')": where each symbol stands first.
std::string places_of(const std::vector<IoInfo>& ios, const std::vector<std::string>& symbols) {
  std::vector<std::string> places;
  for (const std::string& name : symbols) {
    const auto place = [&]() -> std::string {
      for (const auto& io : ios)
        for (size_t d = 0; d < io.shape.size(); ++d)
          for (const auto& s : io.shape[d].symbols())
            if (s.symbol_name() == name)
              return (io.shape[d] == s ? "dimension " : io.shape[d].str() + " is dimension ") + std::to_string(d) +
                     " of '" + io.name + "'";
      return "";
    };
    places.push_back(name + " (" + place() + ")");
  }
  return list(places);
}

// Sizes of symbolic dimensions that the tensors and --shape give.
Result<Sizes> given_sizes(const std::vector<IoInfo>& ios, const Tensors& given,
                          const std::vector<ShapeArgument>& shapes) {
  Sizes out;
  std::map<std::string, std::string> given_by; // symbols
  auto set = [&](const std::string& symbol, int64_t size, const std::string& by) -> Status {
    const auto [at, fresh] = out.emplace(symbol, size);
    if (fresh) given_by.emplace(symbol, by);
    if (at->second == size) return {};
    return Diagnostic(ErrorCode::Usage, given_by.at(symbol) + " makes '" + symbol + "' " + std::to_string(at->second) +
                                            ", and " + by + " makes it " + std::to_string(size));
  };
  auto shape_option = [](const ShapeArgument& a) { return "--shape " + a.name + "=" + sizes_text(a.sizes); };
  // A dimension gives the size of its symbol: 16 of 8*s that s is 2. Whether tensors contradict each other, the model
  // decides when it is run: it may broadcast them.
  auto bind = [&](const IoInfo& io, const Dims& dims, const std::string& by, bool tensor) -> Status {
    for (size_t d = 0; d < io.shape.size() && d < dims.size(); ++d) {
      const auto in_it = io.shape[d].symbols();
      if (dims[d] < 0 || in_it.size() != 1) continue;
      const auto linear = io.shape[d].linear_in(in_it[0]);
      const auto factor = linear ? linear->first.as_const() : std::nullopt,
                 offset = linear ? linear->second.as_const() : std::nullopt;
      if (!factor || !offset || *factor <= 0 || dims[d] < *offset) continue;
      const std::string symbol = in_it[0].symbol_name();
      Status bound = set(symbol, (dims[d] - *offset) / *factor, by);
      if (!bound.ok() && !tensor) return bound;
    }
    return {};
  };
  for (const auto& io : ios)
    if (auto it = given.find(io.name); it != given.end())
      TESSERA_TRY(bind(io, it->second.dims(), "--input " + io.name + " of " + sizes_text(it->second.dims()), true));

  const std::vector<std::string> symbols = symbols_of(ios);
  for (const auto& argument : shapes) {
    if (const IoInfo* io = find_io(ios, argument.name); io != nullptr) {
      if (auto it = given.find(io->name); it != given.end()) { // the tensor says it
        const Dims& dims = it->second.dims();
        if (argument.sizes.size() != dims.size() || !std::equal(dims.begin(), dims.end(), argument.sizes.begin(),
                                                                [](int64_t a, int64_t b) { return b < 0 || a == b; }))
          return Diagnostic(ErrorCode::Usage, shape_option(argument) + " contradicts --input " + io->name +
                                                  ", which is " + sizes_text(dims));
        continue;
      }
      if (io->shape.size() != argument.sizes.size())
        return Diagnostic(ErrorCode::Usage, "input '" + io->name + "' is " + str(io->shape) + ", and --shape gives " +
                                                std::to_string(argument.sizes.size()) + " sizes")
            .note("for example --shape " + io->name + "=" + example(io->shape));
      for (size_t d = 0; d < io->shape.size(); ++d) {
        auto fixed = io->shape[d].as_const();
        if (fixed && argument.sizes[d] >= 0 && *fixed != argument.sizes[d])
          return Diagnostic(ErrorCode::Usage, "dimension " + std::to_string(d) + " of input '" + io->name +
                                                  "' is always " + std::to_string(*fixed) + ", and --shape gives " +
                                                  std::to_string(argument.sizes[d]));
      }
      TESSERA_TRY(bind(*io, argument.sizes, shape_option(argument), false));
    } else if (argument.sizes.size() == 1 &&
               std::find(symbols.begin(), symbols.end(), argument.name) != symbols.end()) {
      if (argument.sizes[0] >= 0) TESSERA_TRY(set(argument.name, argument.sizes[0], shape_option(argument)));
    } else {
      std::vector<std::string> known = input_names(ios);
      known.insert(known.end(), symbols.begin(), symbols.end());
      Diagnostic unknown =
          unknown_name("neither an input nor a dimension is called '" + argument.name + "'", argument.name, known)
              .note(list_inputs(ios))
              .note(symbols.empty() ? "it has no symbolic dimensions"
                                    : "its symbolic dimensions are " + places_of(ios, symbols));
      // Names that users gave to dimensions are not in every format.
      auto free = std::find_if(ios.begin(), ios.end(), [](const IoInfo& io) {
        return std::any_of(io.shape.begin(), io.shape.end(), [](const SymExpr& d) { return !d.is_const(); });
      });
      if (free != ios.end())
        unknown.note("sizes can be given by input: --shape " + free->name + "=" + example(free->shape) +
                     " with a number for each ?");
      return unknown;
    }
  }
  return out;
}

} // namespace

std::optional<int64_t> evaluate(const ShapeEnv& env, const Sizes& sizes, const SymExpr& e) {
  if (auto c = e.as_const()) return c;
  std::unordered_map<uint64_t, int64_t> values;
  for (const SymExpr& s : e.symbols()) {
    auto it = sizes.find(s.symbol_name());
    if (it == sizes.end() || env.find(s.symbol_name()) != s) return std::nullopt;
    values.emplace(s.symbol_id(), it->second);
  }
  auto value = e.eval(values);
  if (!value.ok()) return std::nullopt;
  return *value;
}

Result<Tensors> read_inputs(const Session& session, const std::vector<std::string>& arguments) {
  Tensors out;
  auto ios = session.inputs();
  for (const auto& text : arguments) {
    // Input names may hold '='; the split is at the first one that leaves the name of an input.
    const IoInfo* io = nullptr;
    std::string path;
    for (size_t at = text.find('='); at != std::string::npos && io == nullptr; at = text.find('=', at + 1)) {
      io = find_io(ios, text.substr(0, at));
      path = text.substr(at + 1);
    }
    if (io == nullptr && text.find('=') == std::string::npos)
      return Diagnostic(ErrorCode::Usage, "--input '" + text + "' is not of the form NAME=FILE.npy");
    if (io == nullptr) {
      const std::string name = text.substr(0, text.find('='));
      return unknown_name("the model has no input '" + name + "'", name, input_names(ios)).note(list_inputs(ios));
    }
    TESSERA_ASSIGN(Tensor t, read_npy(path, io->dtype));
    TESSERA_ASSIGN(t, as_declared(*io, std::move(t)));
    if (!out.emplace(io->name, std::move(t)).second)
      return Diagnostic(ErrorCode::Usage, "--input gives '" + io->name + "' twice");
  }
  return out;
}

Result<Tensors> read_input_folder(const Session& session, const std::string& folder) {
  Tensors out;
  auto ios = session.inputs();
  std::vector<std::string> names;
  DIR* dir = ::opendir(folder.c_str());
  if (dir == nullptr) return Diagnostic(ErrorCode::FileError, "cannot open the folder '" + folder + "'");
  while (const dirent* entry = ::readdir(dir)) names.emplace_back(entry->d_name);
  ::closedir(dir);
  std::sort(names.begin(), names.end());
  for (const auto& file : names) {
    if (!file.ends_with(".npy")) continue;
    std::string name = file.substr(0, file.size() - 4);
    const IoInfo* io = find_io(ios, name);
    for (size_t i = 0; io == nullptr && i < ios.size(); ++i)
      if (file_name(ios[i].name, ios[i].dtype) == file) io = &ios[i];
    if (io == nullptr)
      return unknown_name("'" + folder + "/" + file + "' is named like no input of the model", name, input_names(ios))
          .note(list_inputs(ios));
    TESSERA_ASSIGN(Tensor t, read_npy(folder + "/" + file, io->dtype));
    TESSERA_ASSIGN(t, as_declared(*io, std::move(t)));
    out.emplace(name, std::move(t));
  }
  return out;
}

std::string file_name(const std::string& value, DType dtype) {
  std::string out = value;
  for (char& c : out)
    if (c == '/' || c == '\0') c = '_';
  return out + (dtype == DType::List ? ".json" : ".npy");
}

Status check_shapes(const Graph& graph, const std::vector<ShapeArgument>& shapes) {
  std::vector<IoInfo> ios;
  for (ValueId v : graph.inputs()) ios.push_back({graph.value(v).name, graph.type(v).dtype, graph.type(v).shape});
  TESSERA_ASSIGN(const Sizes given, given_sizes(ios, {}, shapes));
  return {};
}

Result<Sizes> choose_sizes(const Session& session, const Tensors& given, const std::vector<ShapeArgument>& shapes,
                           std::vector<std::string>& notes) {
  const auto ios = session.inputs();
  TESSERA_ASSIGN(Sizes out, given_sizes(ios, given, shapes));
  const ShapeEnv& env = *session.variants().front()->executable->env;
  std::string chosen;
  for (const auto& name : symbols_of(ios)) {
    if (out.contains(name)) continue;
    bool first = std::any_of(ios.begin(), ios.end(), [&](const IoInfo& io) {
      return io.shape.size() > 1 && io.shape[0].is_symbol() && io.shape[0].symbol_name() == name;
    });
    int64_t size = first ? 1 : kDefaultSize;
    if (auto symbol = env.find(name)) {
      auto range = env.range(*symbol);
      int64_t divisor = std::max<int64_t>(1, env.divisor(*symbol));
      size = std::clamp(size, range.lo, range.hi);
      size = std::min((size + divisor - 1) / divisor * divisor, range.hi / divisor * divisor);
    }
    out.emplace(name, size);
    chosen += (chosen.empty() ? "" : ", ") + name + "=" + std::to_string(size);
  }
  if (!chosen.empty())
    notes.push_back("sizes not given, chosen: " + chosen + " (--shape " + chosen.substr(0, chosen.find('=')) +
                    "=N changes them)");
  return out;
}

Status make_inputs(const Session& session, const Sizes& sizes, uint64_t seed, Tensors& tensors) {
  const ShapeEnv& env = *session.variants().front()->executable->env;
  for (const auto& io : session.inputs()) {
    if (tensors.contains(io.name)) continue;
    if (io.any_rank && session.variants().front()->fits_no_call)
      return Diagnostic(ErrorCode::MissingValues, "input '" + io.name + "' has no shape in the model")
          .note("give its sizes: --shape " + io.name + "=1x128, or a tensor: --input " + io.name + "=FILE.npy");
    Dims dims;
    for (const auto& d : io.shape) {
      auto size = evaluate(env, sizes, d);
      if (!size)
        return Diagnostic(ErrorCode::BadInput,
                          "the size " + d.str() + " of input '" + io.name + "' does not follow from those given");
      dims.push_back(*size);
    }
    if (io.dtype == DType::List)
      return Diagnostic(ErrorCode::UnsupportedType,
                        "input '" + io.name +
                            "' is a list (a sequence, optional or map), which no file of this command holds")
          .note("run the model from a program, or as a test folder: tessera test --help");
    if (io.dtype == DType::String) {
      TESSERA_ASSIGN(int64_t count, element_count(dims));
      tensors[io.name] = Tensor::strings(dims, std::vector<std::string>(static_cast<size_t>(count)));
      continue;
    }
    TESSERA_ASSIGN(Tensor t, Tensor::create(io.dtype, dims, true));
    std::mt19937_64 rng(name_seed(seed, io.name));
    auto kind = info(io.dtype).kind;
    if (kind == DTypeKind::Float) {
      // Box and Muller's transform: the library's distribution differs between implementations.
      auto uniform = [&rng] { return (static_cast<double>(rng() >> 11) + 0.5) * 0x1p-53; };
      for (int64_t i = 0; i < t.count(); ++i)
        t.set_f64(i, std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform()));
    } else if (kind == DTypeKind::Signed || kind == DTypeKind::Unsigned) {
      auto extent = indexed_extent(env, io, sizes);
      auto limit = static_cast<uint64_t>(std::clamp<int64_t>(extent.value_or(1), 1, kLargestIndex));
      const std::vector<std::string> names =
          t.count() <= kContentsLimit ? read_symbols(io.name, t.count()) : std::vector<std::string>();
      for (int64_t i = 0; i < t.count(); ++i) {
        const auto drawn = extent ? static_cast<int64_t>(rng() % limit) : 1;
        const auto at = static_cast<size_t>(i);
        t.set_i64(i, (at < names.size() ? assumed_value(env, names[at]) : std::nullopt).value_or(drawn));
      }
    } else if (kind == DTypeKind::Bool) {
      for (int64_t i = 0; i < t.count(); ++i) t.set_i64(i, 1);
    } // complex numbers stay 0
    tensors[io.name] = std::move(t);
  }
  return {};
}

} // namespace tessera::command
