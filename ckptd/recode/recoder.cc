#include "ckptd/recode/recoder.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "ckptd/limits.h"
#include "formats/base/checked.h"
#include "formats/base/counted.h"
#include "formats/base/parse.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::base::format_size;

Recoder::Recoder(const RestoreContext& context, Catalog& catalog, Persist& persist, Options options)
    : context_(context),
      catalog_(catalog),
      persist_(persist),
      options_(std::move(options)),
      reader_(context, [this](uint64_t bytes) { return may_pass(bytes); }) {
  pace_.set_rate(options_.bytes_per_second);
  if (options_.after.count() > 0) found_ = find_commits();
}

Recoder::~Recoder() {
  CKPT_ASSERT_MSG(closed_ && !reader_.busy() && !encoding_, "a recoder was not closed");
}

void Recoder::tick(Time now) {
  if (options_.after.count() == 0) return;
  now_ = now;
  pace_.tick(now, options_.others_busy());
  if (!found_) found_ = find_commits();
  go_on();
}

bool Recoder::may_pass(uint64_t bytes) { return pace_.may_read(bytes, options_.others_busy()); }

void Recoder::go_on() {
  if (closed_ || stopping_) return;
  switch (stage_) {
    case Stage::kIdle:
      return find_next();
    case Stage::kRead:
    case Stage::kCheck:
      return reader_.go_on();
    case Stage::kEncode:
      return encode();
    case Stage::kWrite:
      return write();
    case Stage::kReadBack:
      return read_back();
    case Stage::kRecord:
      return record();
    case Stage::kAway:
      return;
  }
}

// ---- choosing an extent ------------------------------------------------------------------------

void Recoder::find_next() {
  while (options_.may_begin() && load_next()) {
    if (extent_ == extents_) {
      // One commit per tick: skipped commits use no pace budget, but do use the shared loop.
      return commit_done();
    }
    const bool moves = may_gain(extent_) && may_move();
    if (!catalog_.health().ok()) return;  // others_hold() is unreliable then
    if (moves) return read();
    ++extent_;
  }
}

// Loads the next commit into commit_. A commit that lost extents starts from its first again.
bool Recoder::load_next() {
  if (commit_ && !unchanged()) commit_.reset();
  while (!commit_) {
    if (due_.empty() || !is_old(due_.front().time_ns)) {
      pass_done();
      return false;
    }
    const Due& due = due_.front();
    auto loaded = CommitCheck::load(catalog_, context_.segments.store(), due.run, due.point);
    if (!loaded.ok()) return false;
    commit_ = std::move(loaded).value();
    const bool there = commit_ && commit_->info().sequence == due.sequence;
    if (!there || commit_->info().damaged) {
      commit_.reset();
      commit_done();
      continue;
    }
    if (commit_->extents() != extents_) extent_ = 0;
    extents_ = commit_->extents();
  }
  return true;
}

// Absolute difference: a clock that was set back must not make commits young for years.
bool Recoder::is_old(uint64_t time_ns) const {
  const uint64_t now_ns = options_.wall_clock_ns();
  const uint64_t age = now_ns > time_ns ? now_ns - time_ns : time_ns - now_ns;
  return age >= static_cast<uint64_t>(std::chrono::nanoseconds(options_.after).count());
}

// Finds the commits that no daemon has examined yet. False: the catalog cannot be read, and no
// commit is due until it can.
bool Recoder::find_commits() {
  const Result<uint64_t> until = catalog_.recoded_until();
  std::deque<Due> found;
  for (const RunInfo& run : catalog_.runs()) {
    if (!until.ok()) return false;
    catalog_.visit_commits(run.id, [&](const CommitInfo& commit) {
      if (commit.sequence <= *until) return false;
      found.push_back({run.id,
                       {commit.snapshot.lineage, commit.snapshot.step},
                       commit.sequence,
                       commit.time_ns});
      return true;
    });
  }
  if (!until.ok() || !catalog_.health().ok()) return false;
  std::ranges::sort(found, {}, &Due::sequence);
  due_ = std::move(found);
  return true;
}

void Recoder::committed(ckpt::RunId run, ViewPoint point, uint64_t sequence) {
  if (options_.after.count() == 0 || !found_) return;  // otherwise find_commits() finds it
  due_.push_back({run, point, sequence, options_.wall_clock_ns()});
}

// Estimate from the journal alone.
bool Recoder::may_gain(size_t extent) const {
  const fb::ExtentT& place = *commit_->record().extents[extent];
  const auto& fragments = commit_->expected(extent).fragments;
  const uint64_t bytes =
      place.header_bytes + ckpt::base::align_up(place.payload_bytes, ckpt::kBlockBytes);
  const bool all_raw = std::ranges::all_of(
      fragments, [](const ckpt::ExtentFragment& fragment) { return fragment.codec == 0; });
  return place.lineage == 0 && !fragments.empty() && all_raw &&
         place.payload_bytes > ckpt::kBlockBytes && bytes <= limits::kRecodeExtentBytesMax;
}

// True if only its own commit references the extent, now and in the near future.
bool Recoder::may_move() const {
  const ExtentPosition at = commit_->position(extent_);
  const ViewPoint point{key().lineage, key().step};
  // An unreadable catalog must not count as "no other holder".
  return !options_.held(key().run, point) &&
         !catalog_.others_hold(key().run, at.segment, at.offset, point) && catalog_.health().ok();
}

// Saves no position on a nearly full disk: see Scrub::save().
void Recoder::commit_done() {
  const uint64_t sequence = due_.front().sequence;
  due_.pop_front();
  commit_.reset();
  extent_ = extents_ = 0;
  ++commits_of_pass_;
  const auto space = context_.disk.space();
  if (space.ok() && space->free_bytes >= limits::kScrubSaveSpaceMin) {
    const Status saved = catalog_.set_recoded_until(sequence);
    if (!saved.ok()) spdlog::warn("recode: where it stands is not kept: {}", saved.error().message);
  }
}

// Ends the pass for now; the next commit may be old enough soon.
void Recoder::pass_done() {
  if (commits_of_pass_ == 0) return;
  spdlog::info("recode: {} looked at: {} read, {} written, {} saved",
               ckpt::base::counted(commits_of_pass_, "commit"),
               format_size(counters_.read_bytes - of_pass_.read_bytes),
               format_size(counters_.written_bytes - of_pass_.written_bytes),
               format_size(counters_.saved_bytes - of_pass_.saved_bytes));
  of_pass_ = counters_;
  commits_of_pass_ = 0;
}

void Recoder::leave(const std::string& why) {
  if (!why.empty()) {
    ++counters_.errors;
    spdlog::error("recode: run {} step {} segment {} offset {}: it stays as it is: {}",
                  commit_->run_name(), key().step, at_hand_.from.segment, at_hand_.from.offset,
                  why);
  }
  next_extent();
}

void Recoder::next_extent() {
  ++extent_;
  at_hand_ = {};
  stage_ = Stage::kIdle;
  go_on();
}

// Loads the commit again later, because history may have changed.
void Recoder::drop_commit() {
  at_hand_ = {};
  commit_.reset();
  stage_ = Stage::kIdle;
}

// ---- stopping ----------------------------------------------------------------------------------

bool Recoder::step_aside() {
  if (stage_ != Stage::kRead) return true;
  if (std::exchange(stopping_, true)) return false;
  reader_.stop([this] {
    stopping_ = false;
    drop_commit();
    if (on_closed_) return std::exchange(on_closed_, nullptr)();
    go_on();
  });
  return false;
}

void Recoder::close(std::function<void()> on_closed) {
  CKPT_ASSERT_MSG(!closed_, "a recoder is closed twice");
  closed_ = true;
  if (stopping_ || encoding_) {
    on_closed_ = std::move(on_closed);
  } else {
    reader_.stop(std::move(on_closed));
  }
}

}  // namespace ckptd
