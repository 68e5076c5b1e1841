#include "ckptd/scrub/scrub.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "ckptd/catalog/damaged_commits.h"
#include "ckptd/catalog/whole_read.h"
#include "ckptd/limits.h"
#include "ckptd/observe/log_event.h"
#include "formats/base/counted.h"
#include "formats/base/parse.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;

Scrub::Scrub(const RestoreContext& context, const Catalog& catalog, Options options)
    : context_(context),
      catalog_(catalog),
      options_(std::move(options)),
      reader_(context, [this](uint64_t bytes) { return may_read(bytes, !commit_is_new_); }),
      journal_(context.disk, context.executor, options_.journal,
               [this](uint64_t bytes) { return may_read(bytes, true); }) {
  load_state();
}

// Loads the last daemon's scrub state from the catalog. Until that succeeds nothing is read back
// and nothing is saved, because it would overwrite recorded damage.
void Scrub::load_state() {
  const auto state = catalog_.scrub_state();
  if (!state.ok()) return;
  state_ = state->value_or(ScrubState());
  // Commits from before the first scrub are left to a pass.
  if (!*state || options_.bytes_per_second == 0) {
    state_.read_back_sequence = catalog_.applied_sequence();
  }
  // A pass at the configured rate, which is zero now.
  if (options_.bytes_per_second == 0 && state_.pass && state_.pass->bytes_per_second == 0) {
    spdlog::warn("scrub: scrub_rate is 0 now: pass {} is cancelled", state_.pass->number);
    state_.pass.reset();
    unsaved_since_ = now_;
  }
  pass_until_ = catalog_.applied_sequence();
  loaded_ = find_new_commits();
}

Scrub::~Scrub() { CKPT_ASSERT_MSG(closed_ && !reading(), "a scrub was not closed"); }

// ---- new commits -------------------------------------------------------------------------------

// Finds commits that the last daemon did not read back. False: the catalog cannot be read.
bool Scrub::find_new_commits() {
  std::vector<VerifyTargetCommit> all;
  for (const RunInfo& run : catalog_.runs()) {
    const auto of_run = verify_targets_from(catalog_, run.id, state_.read_back_sequence + 1,
                                            limits::kScrubNewCommitsMax);
    if (!of_run.ok()) return false;
    all.insert(all.end(), of_run->begin(), of_run->end());
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.sequence < b.sequence; });
  for (const auto& [run, point, sequence] : all) new_.push_back({point, {run, sequence, 0, 0}});
  keep_bound();
  return true;
}

void Scrub::committed(ckpt::RunId run, ViewPoint point, uint64_t sequence) {
  if (options_.bytes_per_second == 0 || !loaded_) return;
  others_busy_at_ = now_;
  new_begun_ = new_begun_.value_or(now_);
  new_.push_back({point, {run, sequence, 0, 0}});
  keep_bound();
  continue_reading();
}

void Scrub::doubted(const ckpt::SnapshotKey& commit) {
  if (options_.bytes_per_second == 0 || !loaded_) return;
  const auto run = catalog_.run(commit.run);
  const auto info = catalog_.commit(commit.run, commit.lineage, commit.step);
  if (!run.ok() || !info || info->snapshot != commit) return;
  const ViewPoint point{commit.lineage, commit.step};
  const bool waits = std::ranges::any_of(new_, [&](const NewCommit& one) {
    return one.cursor.run == commit.run && one.point == point;
  });
  const bool known = std::ranges::any_of(state_.damages, [&](const ScrubDamage& damage) {
    return is_of_run(damage, *run) && damage.lineage == commit.lineage &&
           damage.step == commit.step;
  });
  if (!waits && !known) committed(commit.run, point, info->sequence);
}

// Keeps the newest; the next pass covers those that have waited longest.
void Scrub::keep_bound() {
  while (new_.size() > limits::kScrubNewCommitsMax) {
    const bool at_hand = commit_ && commit_is_new_;
    new_.erase(new_.begin() + (at_hand ? 1 : 0));
  }
}

// ---- passes ------------------------------------------------------------------------------------

Result<uint64_t> Scrub::begin_pass(uint64_t bytes_per_second) {
  if (bytes_per_second == 0 && options_.bytes_per_second == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "scrub_rate is 0 in ckptd's configuration: say how fast to read (--rate)");
  }
  if (bytes_per_second != 0 && bytes_per_second < limits::kScrubRateMin) {
    return make_error(ErrorCode::kInvalidArgument, "rate {}: at least {} per second",
                      ckpt::base::format_size(bytes_per_second),
                      ckpt::base::format_size(limits::kScrubRateMin));
  }
  if (!loaded_) load_state();
  if (!loaded_) return catalog_unreadable(catalog_.health().error());
  start_pass(bytes_per_second);
  const uint64_t number = state_.pass->number;
  continue_reading();
  return number;
}

void Scrub::start_pass(uint64_t bytes_per_second) {
  const uint64_t number = std::max(state_.last.number, state_.pass ? state_.pass->number : 0) + 1;
  state_.pass = ScrubPass{
      .number = number, .began_ns = options_.wall_clock_ns(), .bytes_per_second = bytes_per_second};
  state_.damages_left_out = 0;
  damage_lines_.clear();
  of_run_.clear();
  journal_due_ = true;
  pass_until_ = pass_covers_ = catalog_.applied_sequence();
  if (commit_ && !commit_is_new_) drop_extent();
  unsaved_since_ = unsaved_since_.value_or(now_);
  spdlog::info("scrub: pass {} begins", number);
}

void Scrub::begin_due_pass() {
  if (state_.pass || options_.bytes_per_second == 0 || options_.interval.count() == 0) return;
  const uint64_t now_ns = options_.wall_clock_ns();
  const uint64_t ended_ns = state_.last.ended_ns;
  const auto interval_ns =
      static_cast<uint64_t>(std::chrono::nanoseconds(options_.interval).count());
  // A clock that was set back must make a pass due, not delay it for years.
  if (ended_ns == 0 || now_ns < ended_ns || now_ns - ended_ns >= interval_ns) start_pass(0);
}

void Scrub::pass_done() {
  ScrubPass pass = *std::exchange(state_.pass, std::nullopt);
  pass.ended_ns = options_.wall_clock_ns();
  // Damage that this pass did not find again was deleted, or reads correctly now.
  std::erase_if(state_.damages,
                [&](const ScrubDamage& damage) { return damage.pass < pass.number; });
  state_.last = pass;
  // The pass has read back the commits that were new at its beginning, too.
  std::erase_if(new_, [this](const auto& one) { return one.cursor.sequence <= pass_covers_; });
  state_.read_back_sequence = std::max(state_.read_back_sequence, pass_covers_);
  ++counters_.passes;
  const size_t damages = state_.damages.size();
  log_event(damages > 0 ? spdlog::level::err : spdlog::level::info, "scrub_pass",
            {{"pass", pass.number},
             {"bytes", pass.checked_bytes},
             {"commits", pass.commits},
             {"damaged_units", damages},
             {"more_findings", state_.damages_left_out},
             {"unchecked_units", pass.unchecked}},
            "scrub: pass {} read {} in {}, {}, {}, {} could not be checked", pass.number,
            ckpt::base::format_size(pass.checked_bytes),
            ckpt::base::counted(pass.commits, "commit"),
            ckpt::base::counted(damages, "damaged unit"),
            ckpt::base::counted(state_.damages_left_out, "more finding"),
            ckpt::base::counted(pass.unchecked, "unit"));
  logged_unchecked_.clear();
  save();
}

// ---- reading -----------------------------------------------------------------------------------

void Scrub::tick(Time now) {
  now_ = now;
  const bool others_busy = options_.others_busy();
  if (others_busy) others_busy_at_ = now;
  pace_.tick(now, others_busy);
  if (!loaded_) load_state();
  continue_reading();
  if (unsaved_since_ && now - *unsaved_since_ >= limits::kScrubSaveEvery) save();
}

bool Scrub::may_read(uint64_t bytes, bool of_pass) {
  const bool asked = of_pass && state_.pass && state_.pass->bytes_per_second > 0;
  pace_.set_rate(asked ? state_.pass->bytes_per_second : options_.bytes_per_second);
  return pace_.may_read(bytes, options_.others_busy());
}

void Scrub::continue_reading() {
  if (closed_ || stopping_ || !loaded_) return;
  if (reader_.busy()) return reader_.resume();
  if (journal_.busy()) return journal_.resume();
  // With an unreadable catalog everything would look deleted.
  while (options_.may_begin() && load_next() && catalog_.health().ok()) {
    const uint64_t extent = cursor().extent;
    if (extent == commit_->extents()) {
      commit_done();
      continue;
    }
    const bool passed = passes_over(extent);
    if (!catalog_.health().ok()) return;
    if (passed) {
      ++cursor().extent;
      continue;
    }
    reader_.start(commit_->position(extent), commit_->check(extent),
                  [this](const ExtentReader::Outcome& outcome) { extent_done(outcome); });
    return;
  }
  if (journal_due_ && options_.may_begin()) read_journal();
}

void Scrub::read_journal() {
  journal_due_ = false;
  journal_.start([this](const JournalCheck::Outcome& outcome) {
    if (!outcome.error.empty()) found({error_of_journal(outcome.error, outcome.damage)});
    continue_reading();
  });
}

bool Scrub::passes_over(size_t extent) {
  const auto writer = commit_->other_writer(extent);
  if (!writer || commit_is_new_) return writer.has_value();
  const auto [known, added] = writers_.try_emplace(*writer, false);
  if (added) {
    const auto commit = catalog_.commit(writer->run, writer->lineage, writer->step);
    known->second = commit && commit->snapshot == *writer && !commit->deleted;
    if (!catalog_.health().ok()) {  // looked up again once the catalog can be read
      writers_.erase(known);
      return false;
    }
  }
  return known->second;
}

// Loads the next commit to read into commit_, from cursor() on. False: there is none. New commits
// go first when they are due. After each, the pass gets as many extents, so that it finishes
// whatever the trainers write.
bool Scrub::load_next() {
  const bool turn_of_pass = state_.pass && pass_extents_ > 0;
  const bool new_due = new_is_due();
  if (commit_ && (commit_is_new_ || !new_due || turn_of_pass)) return true;
  commit_.reset();
  if (!turn_of_pass && new_due && load_new()) return true;
  if (!catalog_.health().ok()) return false;
  begin_due_pass();
  if (state_.pass && journal_due_) return false;
  if (state_.pass && load_of_pass()) return true;
  pass_extents_ = 0;
  return catalog_.health().ok() && new_due && load_new();
}

bool Scrub::new_is_due() const {
  if (new_.empty()) return false;
  const bool lull = !others_busy_at_ || now_ - *others_busy_at_ >= limits::kScrubNewAfter;
  return lull || (new_begun_ && now_ - *new_begun_ >= limits::kScrubNewEvery);
}

bool Scrub::load_new() {
  while (!new_.empty()) {
    if (load(new_.front().cursor, new_.front().point, /*is_new=*/true)) {
      new_begun_ = now_;
      return true;
    }
    if (!catalog_.health().ok()) return false;
    new_.pop_front();  // deleted in the meantime
  }
  return false;
}

// A deletion may have removed extents: the read position is then unknown.
bool Scrub::load(ScrubCursor& cursor, ViewPoint point, bool is_new) {
  auto loaded = CommitCheck::load(catalog_, context_.segments.store(), cursor.run, point);
  commit_ = loaded.ok() ? std::move(loaded).value() : std::nullopt;
  writers_.clear();
  commit_is_new_ = is_new;
  if (!commit_) return false;
  if (cursor.extents != commit_->extents()) cursor.extent = 0;
  cursor.extents = commit_->extents();
  return true;
}

bool Scrub::load_of_pass() {
  ScrubCursor& cursor = state_.pass->cursor;
  for (;;) {
    while (!of_run_.empty()) {
      const VerifyTargetCommit& target = of_run_.front();
      if (cursor.sequence != target.sequence) cursor = {target.run, target.sequence, 0, 0};
      if (load(cursor, target.point, /*is_new=*/false)) return true;
      if (!catalog_.health().ok()) return false;
      of_run_.pop_front();
    }
    // The rest of the cursor's run, or the next run.
    const std::vector<RunInfo> runs = catalog_.runs();
    const auto next = std::find_if(runs.begin(), runs.end(),
                                   [&](const RunInfo& run) { return run.id >= cursor.run; });
    if (next == runs.end()) {
      pass_done();
      return false;
    }
    if (next->id != cursor.run) cursor = {next->id, 0, 0, 0};
    auto targets = verify_targets_from(catalog_, cursor.run, cursor.sequence, SIZE_MAX);
    if (!targets.ok()) return false;
    // Newer commits are read back as new ones, or left to the next pass.
    std::erase_if(*targets, [&](const auto& target) { return target.sequence > pass_until_; });
    of_run_.assign(targets->begin(), targets->end());
    if (of_run_.empty()) cursor = {cursor.run + 1, 0, 0, 0};
  }
}

void Scrub::extent_done(const ExtentReader::Outcome& outcome) {
  counters_.bytes += outcome.bytes;
  found(commit_->errors(cursor().extent, outcome));
  ++cursor().extent;
  if (!commit_is_new_) {
    state_.pass->checked_bytes += outcome.bytes;
    pass_extents_ -= std::min<uint64_t>(pass_extents_, 1);
  }
  unsaved_since_ = unsaved_since_.value_or(now_);
  continue_reading();
}

void Scrub::commit_done() {
  found(commit_->last_errors());
  if (commit_is_new_) pass_extents_ = std::max<uint64_t>(1, commit_->extents());
  commit_.reset();
  unsaved_since_ = unsaved_since_.value_or(now_);
  if (commit_is_new_) {
    state_.read_back_sequence = std::max(state_.read_back_sequence,
                                         new_.front().cursor.sequence);  // a doubted one is older
    new_.pop_front();
    return;
  }
  state_.pass->commits += 1;
  state_.pass->cursor = {of_run_.front().run, of_run_.front().sequence + 1, 0, 0};
  of_run_.pop_front();
}

// ---- stopping ----------------------------------------------------------------------------------

// Drops the current extent. It is read again as the catalog has it then: deletions may change it.
void Scrub::drop_extent() {
  if (!reader_.busy()) return commit_.reset();
  if (std::exchange(stopping_, true)) return;
  reader_.stop([this] {
    stopping_ = false;
    commit_.reset();
    if (on_closed_) return std::exchange(on_closed_, nullptr)();
    continue_reading();
  });
}

bool Scrub::pause_reads() {
  drop_extent();
  return !stopping_;
}

void Scrub::close(std::function<void()> on_closed) {
  CKPT_ASSERT_MSG(!closed_, "a scrub is closed twice");
  closed_ = true;
  save();
  auto stop_journal = [this, on_closed = std::move(on_closed)] { journal_.stop(on_closed); };
  if (stopping_) {
    on_closed_ = std::move(stop_journal);
  } else {
    reader_.stop(std::move(stop_journal));
  }
}

// Skipped on a nearly full disk: a catalog without space closes, and must be repaired.
void Scrub::save() {
  if (!loaded_) return;
  const auto space = context_.disk.space();
  if (!space.ok() || space->free_bytes < limits::kScrubSaveSpaceMin) return;
  unsaved_since_.reset();
  const Status saved = options_.save_state(state_);
  if (!saved.ok()) spdlog::warn("scrub: where it stands is not kept: {}", saved.error().message);
}

}  // namespace ckptd
