// tessera tune --corpus.
#pragma once
#include "command.h"
#include <functional>

namespace tessera::command {

struct CorpusOptions {
  std::vector<std::string> places; // model files, and folders with such
  std::string output;              // file of records; what it has stays, but for what is measured anew
  std::string log;                 // file for all that was measured (tools/fit); empty: none
  int jobs = 4;                    // models that are compiled at a time
  double budget = 60;              // seconds of a model
};
// `tune` tunes one model in a process of its own and writes its log, if it has a name; its result is that of `tessera tune --json`. Errors: Usage, FileError, CorruptFile; a model that
// fails is reported, and the others go on.
[[nodiscard]] Result<Json>
tune_corpus(const CorpusOptions& options,
            const std::function<Result<Json>(const std::string& model, const std::string& log)>& tune);
[[nodiscard]] std::string corpus_text(const Json& report);

} // namespace tessera::command
