#include "test_cases.h"
#include "base/file.h"
#include <algorithm>
#include <filesystem>
#include <set>

namespace tessera::command {

namespace {

namespace fs = std::filesystem;

// Names of the model in a test folder.
constexpr const char* kModels[] = {"model.onnx", "model.pt2"};
constexpr const char* kFolderForm =
    "a test folder has model.onnx or model.pt2, and test_data_set_0 with input_0.pb, output_0.pb (or .npy); "
    "or NAME.onnx with NAME_output_0.pb; or data.json with the model's url";

// The model of a folder; empty where there is none.
std::string model_in(const fs::path& folder) {
  for (const char* name : kModels)
    if (fs::exists(folder / name)) return (folder / name).string();
  return "";
}

// Files PREFIX_0.pb, PREFIX_1.pb ... of a data set; .npy in the place of any.
std::vector<std::string> numbered(const fs::path& folder, const std::string& prefix) {
  std::vector<std::string> out;
  for (int i = 0;; ++i) {
    fs::path p = folder / (prefix + "_" + std::to_string(i) + ".pb");
    if (!fs::exists(p)) p.replace_extension(".npy");
    if (!fs::exists(p)) return out;
    out.push_back(p.string());
  }
}

DataSet counted_set(const fs::path& model) {
  return {"counted inputs", {}, numbered(model.parent_path(), model.stem().string() + "_output"), true};
}

// The file that a url's path ends with, next to the folder or one around it: "onnx/backend/test/data/light/m.onnx" of
// ".../data/real/m" is ".../data/light/m.onnx". Empty where there is none.
fs::path find_by_url(const fs::path& folder, const std::string& url) {
  constexpr int kLevels = 3;
  fs::path around = folder;
  for (int level = 0; level < kLevels; ++level) {
    for (size_t at = 0; at != std::string::npos; at = url.find('/', at)) {
      if (url[at] == '/') ++at;
      fs::path candidate = around / url.substr(at);
      if (candidate.has_filename() && fs::is_regular_file(candidate)) return candidate;
    }
    around = around.parent_path();
  }
  return {};
}

class Finder {
public:
  void look_into(const fs::path& folder) {
    Json data = read_json(folder / "data.json");
    std::string model = model_in(folder);
    if (!model.empty()) {
      ModelCase c = named(folder.filename().string(), folder, data);
      c.model = model;
      for (int i = 0;; ++i) {
        std::string set = "test_data_set_" + std::to_string(i);
        if (!fs::is_directory(folder / set)) break;
        c.sets.push_back({set, numbered(folder / set, "input"), numbered(folder / set, "output")});
      }
      cases_.push_back(std::move(c));
    } else if (data.contains("url") && data["url"].is_string()) {
      ModelCase c = named(folder.filename().string(), folder, data);
      c.missing = data["url"].get<std::string>();
      if (fs::path found = find_by_url(folder, c.missing); !found.empty()) {
        c.model = found.string();
        c.sets = {counted_set(found)};
        elsewhere_.insert(fs::weakly_canonical(found).string());
      }
      cases_.push_back(std::move(c));
    } else {
      for (const auto& file : fs::directory_iterator(folder)) {
        const fs::path& path = file.path();
        if (path.extension() != ".onnx" || counted_set(path).outputs.empty()) continue;
        ModelCase c = named(path.stem().string(), folder, Json());
        c.model = path.string();
        c.sets = {counted_set(path)};
        cases_.push_back(std::move(c));
      }
    }
  }

  [[nodiscard]] size_t found() const { return cases_.size(); }
  // Sorts the cases that were found from `since` on, by folder.
  void sort(size_t since) {
    std::stable_sort(
        cases_.begin() + static_cast<std::ptrdiff_t>(since), cases_.end(),
        [](const auto& a, const auto& b) { return std::tie(a.folder, a.name) < std::tie(b.folder, b.name); });
  }

  std::vector<ModelCase> cases() {
    std::erase_if(cases_, [&](const ModelCase& c) {
      return c.missing.empty() && elsewhere_.contains(fs::weakly_canonical(c.model).string());
    });
    return std::move(cases_);
  }

private:
  static Json read_json(const fs::path& path) {
    auto text = read_file(path.string());
    Json json = text.ok() ? Json::parse(*text, nullptr, false) : Json();
    return json.is_object() ? json : Json::object();
  }
  static ModelCase named(std::string name, const fs::path& folder, const Json& data) {
    ModelCase c;
    c.name = std::move(name);
    c.folder = folder.string();
    auto number = [&](const char* key) -> std::optional<double> {
      if (!data.is_object() || !data.contains(key) || !data[key].is_number()) return std::nullopt;
      return data[key].get<double>();
    };
    c.rtol = number("rtol");
    c.atol = number("atol");
    return c;
  }

  std::vector<ModelCase> cases_;
  std::set<std::string> elsewhere_; // models that a data.json names
};

} // namespace

Result<std::vector<ModelCase>> find_cases(const std::vector<std::string>& dirs) {
  Finder finder;
  for (const auto& dir : dirs) {
    std::error_code error;
    TESSERA_TRY(need_model(dir, "test"));
    if (!fs::is_directory(dir, error)) return Diagnostic(ErrorCode::FileError, "'" + dir + "' is not a folder");
    std::string path = dir;
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    const size_t before = finder.found();
    finder.look_into(path);
    for (auto it = fs::recursive_directory_iterator(path, error); !error && it != fs::recursive_directory_iterator();
         it.increment(error))
      if (it->is_directory(error)) finder.look_into(it->path());
    if (error) return Diagnostic(ErrorCode::FileError, "cannot read '" + dir + "': " + error.message());
    if (finder.found() == before)
      return Diagnostic(ErrorCode::FileError, "'" + dir + "' holds no folder with a model.onnx or model.pt2")
          .note(kFolderForm);
    finder.sort(before);
  }
  return finder.cases();
}

Result<Tensor> counted_input(const IoInfo& input) {
  Dims dims;
  for (const SymExpr& e : input.shape) dims.push_back(e.as_const().value_or(1));
  TESSERA_ASSIGN(Tensor out, Tensor::create(input.dtype, dims));
  const int64_t n = out.count();
  for (int64_t i = 0; i < n; ++i)
    if (is_float(input.dtype))
      out.set_f64(i, static_cast<double>(i) / static_cast<double>(n));
    else
      out.set_i64(i, 0);
  return out;
}

} // namespace tessera::command
