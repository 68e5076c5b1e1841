// VerifyJob: commit by commit, extent by extent.
#include "ckptd/restore/verify.h"

#include <set>
#include <utility>

#include "ckptd/limits.h"

namespace ckptd {

struct VerifyJob::Impl {
  Impl(const RestoreContext& with, std::vector<ckpt::RunId> of_runs,
       const std::optional<ViewPoint>& at_point, std::function<void(VerifyReport)> callback,
       std::optional<JournalSource> of_journal)
      : context(with),
        runs(std::move(of_runs)),
        point(at_point),
        on_done(std::move(callback)),
        reader(with) {
    if (of_journal) journal.emplace(with.disk, with.executor, *std::move(of_journal));
  }

  void find_targets();
  bool load_next();
  void begin();
  void read_next();
  void extent_done(const ExtentReader::Outcome& outcome);
  void add(std::vector<VerifyError> errors);
  void finish();
  void finish_close();

  const RestoreContext context;
  const std::vector<ckpt::RunId> runs;
  const std::optional<ViewPoint> point;
  std::function<void(VerifyReport)> on_done;
  VerifyReport result;

  std::vector<VerifyTargetCommit> targets;
  size_t target = 0;                  // the next one
  std::optional<CommitCheck> commit;  // the current commit, loaded in its turn
  size_t extent = 0;                  // the next one of the commit
  std::set<ckpt::SegmentId> opened;   // in this job
  ExtentReader reader;
  std::optional<JournalCheck> journal;

  bool starting = false;
  bool done = false;
  bool closed = false;
  bool reader_stopped = false;
  std::function<void()> on_closed;
};

VerifyJob::VerifyJob(const RestoreContext& context, std::vector<ckpt::RunId> runs,
                     const std::optional<ViewPoint>& point,
                     std::function<void(VerifyReport)> on_done,
                     std::optional<JournalSource> journal)
    : impl_(std::make_unique<Impl>(context, std::move(runs), point, std::move(on_done),
                                   std::move(journal))) {}

VerifyJob::~VerifyJob() {
  const bool over = (impl_->done || impl_->closed) && !impl_->starting;
  CKPT_ASSERT_MSG(over && !impl_->reader.busy(), "a verify was not closed");
}

void VerifyJob::start() {
  impl_->find_targets();
  impl_->starting = true;
  impl_->context.executor.run([] {},
                              [impl = impl_.get()] {
                                impl->starting = false;
                                impl->closed ? impl->finish_close() : impl->begin();
                              });
}

void VerifyJob::Impl::find_targets() {
  auto found = read_whole(context.catalog, context.heal_catalog,
                          [this] { return verify_targets(context.catalog, runs, point); });
  if (found.ok()) {
    targets = std::move(found).value();
  } else {
    add({unchecked_without_catalog(found.error())});
  }
}

// Loads the next commit; none: it was deleted in the meantime. False: there is no next one.
bool VerifyJob::Impl::load_next() {
  if (target == targets.size()) return false;
  const VerifyTargetCommit& next = targets[target++];
  extent = 0;
  auto loaded = read_whole(context.catalog, context.heal_catalog, [&] {
    return CommitCheck::load(context.catalog, context.segments.store(), next.run, next.point);
  });
  if (loaded.ok()) {
    commit = std::move(loaded).value();
    return true;
  }
  add({unchecked_without_catalog(loaded.error())});  // the remaining commits are unknown, too
  target = targets.size();
  return false;
}

void VerifyJob::Impl::begin() {
  if (!journal) return read_next();
  journal->start([this](const JournalCheck::Outcome& outcome) {
    if (!outcome.error.empty()) add({error_of_journal(outcome.error, outcome.damage)});
    read_next();
  });
}

void VerifyJob::close(std::function<void()> on_closed) {
  CKPT_ASSERT_MSG(!impl_->closed, "a verify is closed twice");
  impl_->closed = true;
  impl_->on_closed = std::move(on_closed);
  const auto stopped = [impl = impl_.get()] {
    impl->reader_stopped = true;
    impl->finish_close();
  };
  impl_->reader.stop([impl = impl_.get(), stopped] {
    if (!impl->journal) return stopped();
    impl->journal->stop(stopped);
  });
}

void VerifyJob::Impl::finish_close() {
  if (starting || !reader_stopped) return;
  const auto callback = std::exchange(on_closed, nullptr);
  callback();  // may destroy this job
}

// Starts reading the next extent.
void VerifyJob::Impl::read_next() {
  for (;;) {
    if (commit && extent < commit->extents()) {
      const ExtentPosition position = commit->position(extent);
      // A file's header is checked when the file is opened. Files that other jobs opened earlier
      // are closed once first, because their headers may have been damaged since.
      if (opened.insert(position.segment).second) context.segments.close(position.segment);
      reader.start(position, commit->check(extent),
                   [this](const ExtentReader::Outcome& outcome) { extent_done(outcome); });
      return;
    }
    if (commit) {
      add(commit->last_errors());
      result.commits += 1;
      commit.reset();
    }
    if (!load_next()) return finish();
  }
}

void VerifyJob::Impl::extent_done(const ExtentReader::Outcome& outcome) {
  result.checked_bytes += outcome.bytes;
  add(commit->errors(extent, outcome));
  extent += 1;
  read_next();
}

void VerifyJob::Impl::add(std::vector<VerifyError> errors) {
  for (VerifyError& error : errors) {
    auto& list = error.damage ? result.errors : result.unchecked;
    if (list.size() >= limits::kVerifyErrorsMax) {
      ++(error.damage ? result.errors_left_out : result.unchecked_left_out);
    } else {
      list.push_back(std::move(error));
    }
  }
}

void VerifyJob::Impl::finish() {
  done = true;
  const auto callback = std::move(on_done);
  callback(std::move(result));  // may destroy this job
}

}  // namespace ckptd
