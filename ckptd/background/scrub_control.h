// ScrubControl: decides when the scrub may read, answers `scrub` requests, and reports.
//
// Owns the Scrub. Background reads never delay trainers: they begin only while no restore is open,
// no snapshot is compared or written, and no space is being reclaimed. Loop thread; close() stops
// the reads, and the owner reaps the disk until closed().
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "ckptd/history/history.h"
#include "ckptd/loop/turn.h"
#include "ckptd/query/query.h"
#include "ckptd/scrub/scrub.h"
#include "ckptd/sessions/session.h"

namespace ckptd {

class ScrubControl {
 public:
  struct Needs {
    History& history;
    const Turn& turn;
    uint64_t bytes_per_second;           // 0: reads only on request
    std::chrono::milliseconds interval;  // 0: no pass starts automatically
    std::function<bool()> is_draining;
    std::function<bool()> disk_wanted;  // by a restore or a snapshot
    std::function<bool()> space_wants_disk;
    std::function<QueryContext(const Session&)> query_context;
  };
  explicit ScrubControl(Needs needs) : needs_(std::move(needs)) {}
  ScrubControl(const ScrubControl&) = delete;
  ScrubControl& operator=(const ScrubControl&) = delete;

  void open(const RestoreContext& context);
  void close();
  bool closed() const { return scrub_ == nullptr || closed_; }
  void tick(Time now) { scrub_->tick(now); }

  void committed(ckpt::RunId run, ViewPoint point, uint64_t sequence) {
    scrub_->committed(run, point, sequence);
  }
  void deleted(const RunInfo& run, const std::set<ViewPoint>& points) {
    scrub_->deleted(run, points);
  }
  void doubted(const ckpt::SnapshotKey& commit) { scrub_->doubted(commit); }
  void verified(const VerifyReport& report, const std::vector<std::string>& whole_runs,
                uint64_t began_ns) {
    scrub_->verified(report, whole_runs, began_ns);
  }
  // Stops reads for other work of the disk. False: some are still in flight.
  bool pause_reads() { return scrub_->pause_reads(); }

  ScrubReport report() const;
  QueryAnswer query(const Session& session, const std::string& args);
  const Scrub& scrub() const { return *scrub_; }
  const ScrubState& state() const { return scrub_->state(); }

 private:
  const Needs needs_;
  std::unique_ptr<Scrub> scrub_;
  bool closed_ = false;
};

}  // namespace ckptd
