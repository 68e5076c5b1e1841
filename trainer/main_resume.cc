#include "trainer/main_resume.h"

#include <fmt/format.h>

#include "formats/base/console.h"
#include "formats/base/parse.h"
#include "trainer/report/report.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

void ResumeFlags::add_to(CLI::App& command) {
  command.add_option(
      "--resume", text_,
      "Go on from a commit of the run: latest, STEP, ~LINEAGE@STEP or TAG, also with "
      "the run's name as `ckptctl log` prints it");
  command.add_flag("--new-data", new_data_,
                   "With --resume: go on with other data than the run was trained on so far");
}

Status ResumeFlags::parse(RankOptions& rank, bool run_given) {
  if (text_.empty()) {
    if (!new_data_) return {};
    return make_error(ErrorCode::kInvalidArgument,
                      "--new-data: only with --resume; a new run takes any --data");
  }
  const auto commit = ckpt::parse_commit_name(text_, rank.run);
  if (!commit.ok()) {
    return make_error(ErrorCode::kInvalidArgument, "--resume {}: {}", text_,
                      commit.error().message);
  }
  if (commit->run != rank.run && run_given) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "--resume {}: the run is {} (--run or CKPTD_RUN), and goes on from its own commits "
        "only",
        text_, rank.run);
  }
  rank.run = commit->run;
  const bool newest = commit->kind == ckpt::Selector::Kind::kLatest && commit->lineage == 0;
  rank.resume = newest ? CKPT_RESUME_LATEST : CKPT_RESUME_AT_STEP;
  commit_ = *commit;
  return {};
}

Result<SavedRun> ResumeFlags::find(const RunOptions& options, const ConfigFlags& config) const {
  const RankOptions& rank = options.rank;
  auto saved = find_saved_run(rank.socket, *commit_);
  if (!saved.ok()) {
    const bool elsewhere = saved.error().code == ErrorCode::kNotFound && !options.data_stays;
    return make_error(saved.error().code, "{}{}", saved.error().message,
                      elsewhere ? " (this store is new and temporary: name the one that has the "
                                  "run by --data-dir or --socket)"
                                : "");
  }
  CKPT_ASSIGN(const TrainConfig wanted, config.apply(saved->config));
  const std::string differs = difference(saved->config, wanted);
  if (!differs.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "run {} step {} was trained with {}", rank.run,
                      saved->step, differs);
  }
  if (saved->step > rank.steps) {
    return make_error(ErrorCode::kInvalidArgument, "--steps {}: run {} is already at step {}",
                      rank.steps, rank.run, saved->step);
  }
  return saved;
}

bool ResumeFlags::is_done(const SavedRun& saved, uint64_t steps) const {
  const bool newest = commit_->kind == ckpt::Selector::Kind::kLatest;
  return saved.step == steps && !(newest && saved.stale);
}

Status ResumeFlags::say_done(const RunOptions& options, const SavedRun& saved) const {
  ckpt::base::print_stderr(
      "moetrain: already done: {}~{}@{} is of the last step, --steps {}; nothing is trained "
      "and nothing is changed; give a larger --steps to train on\n",
      options.rank.run, saved.lineage, saved.step, options.rank.steps);
  report::Report report;
  report.ranks = options.rank.ranks;
  report.steps = saved.step;
  report.saved_step = saved.step;
  report.tokens_per_step = saved.config.tokens_per_step();
  if (!options.report_file.empty()) {
    CKPT_TRY(report::write_file(options.report_file, report::to_json(report)));
  }
  if (options.print_report) ckpt::base::write_stdout_exactly(report::to_json(report));
  return {};
}

Status ResumeFlags::check_data(const std::string& run, const TrainerState& state,
                               const Corpus& corpus) const {
  const bool same = state.corpus_crc32c == corpus.crc32c() && state.corpus_bytes == corpus.bytes();
  if (same || new_data_) return {};
  return make_error(
      ErrorCode::kInvalidArgument,
      "run {} step {} was trained on other data: {} with CRC32C {:08x}, --data now has {} with "
      "{:08x}; give the same --data, or --new-data to go on with this",
      run, state.progress.step, ckpt::base::format_size(state.corpus_bytes), state.corpus_crc32c,
      ckpt::base::format_size(corpus.bytes()), corpus.crc32c());
}

}  // namespace moetrain
