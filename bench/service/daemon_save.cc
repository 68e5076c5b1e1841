#include <algorithm>

#include "bench/common/daemon_process.h"
#include "bench/service/save_run.h"
#include "bench/service/trainers.h"

namespace bench {

using ckpt::Result;

namespace {

class DaemonSave final : public SaveRun {
 public:
  DaemonSave(std::string directory, const SaveShape& shape)
      : directory_(std::move(directory)), shape_(shape) {}

  bool full() const override {
    return trainers_ == nullptr || stored_bytes_ + shape_.bytes > kStoreBytesMax;
  }

  Result<double> run() override {
    CKPT_ASSIGN(const Trainers::Saved saved, trainers_->save(++step_));
    stored_bytes_ += shape_.bytes;
    return static_cast<double>(shape_.bytes) / saved.seconds;
  }

  Result<Usage> usage() const override { return usage_of(daemon_->pid()); }

  ckpt::Status renew() override {
    trainers_.reset();
    daemon_.reset();
    stored_bytes_ = 0;
    Trainers::Options trainers{.ranks = shape_.sessions,
                               .bytes = shape_.bytes,
                               .slab_bytes = shape_.slab_bytes,
                               .unit_bytes = shape_.fragment_bytes};
    CKPT_ASSIGN(daemon_, DaemonProcess::start({.directory = directory_,
                                               .arena_bytes = Trainers::arena_bytes(trainers),
                                               .engine = shape_.engine}));
    trainers.socket = daemon_->socket();
    CKPT_ASSIGN(trainers_, Trainers::open(trainers));
    // Not measured: the first save of a session includes the page faults of its arena.
    CKPT_ASSIGN([[maybe_unused]] const Trainers::Saved first, trainers_->save(++step_));
    stored_bytes_ += shape_.bytes;
    settle(directory_);
    return {};
  }

 private:
  const std::string directory_;
  const SaveShape shape_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<Trainers> trainers_;
  uint64_t step_ = 0;
  uint64_t stored_bytes_ = 0;
};

}  // namespace

Result<std::unique_ptr<SaveRun>> open_daemon_save(const std::string& directory,
                                                  const SaveShape& shape) {
  return std::unique_ptr<SaveRun>(std::make_unique<DaemonSave>(directory, shape));
}

}  // namespace bench
