// --resume of moetrain run: which commit the run goes on from, and whether it may.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "formats/selector.h"
#include "trainer/checkpoint/saved_run.h"
#include "trainer/data.h"
#include "trainer/elastic/supervisor.h"
#include "trainer/main.h"

namespace moetrain {

class ResumeFlags {
 public:
  void add_to(CLI::App& command);
  bool asked() const { return commit_.has_value(); }
  // Reads --resume into rank.resume. A run that --resume names is the run to train, unless
  // `run_given` says that --run has named it.
  Status parse(RankOptions& rank, bool run_given);

  // The rest needs ckptd, and --resume.
  // The commit, whose configuration `config` must not contradict.
  Result<SavedRun> find(const RunOptions& options, const ConfigFlags& config) const;
  // True if the commit is of the last step already: there is nothing to train. The newest commit is
  // not done as long as some of its experts are older than it: the run has to save them first.
  bool is_done(const SavedRun& saved, uint64_t steps) const;
  // Says so, and writes the report that is asked for: one without a step. The run is not touched.
  Status say_done(const RunOptions& options, const SavedRun& saved) const;
  // Refuses other data than the commit was trained on, unless --new-data was given.
  Status check_data(const std::string& run, const TrainerState& state, const Corpus& corpus) const;

 private:
  std::string text_;
  bool new_data_ = false;
  std::optional<ckpt::Selector> commit_;
};

}  // namespace moetrain
