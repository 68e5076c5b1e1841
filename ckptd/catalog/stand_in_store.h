// A catalog's store on a full disk: its index is kept in memory until there is room again.
//
// RocksDB needs space even to be opened for writing, and without a catalog nobody can list, restore
// or delete anything, which is what makes room. The store in memory begins empty; whoever owns the
// catalog fills it from the journal.
//
// The way back is tried first: the index in memory stays until the caller has looked at the one on
// disk, which may be damaged, or the index of a journal that was replaced meanwhile.
#pragma once

#include <functional>
#include <memory>

#include "ckptd/catalog/kv_store.h"

namespace ckptd {

class StandInStore final : public KvStore {
 public:
  using Open = std::function<ckpt::Result<OpenedKvStore>()>;

  // Opens the store on disk: perhaps for reading only (read_only()), or not at all and in memory
  // (in_memory()), if the disk is full. `reset_reason` as of OpenedKvStore.
  struct Opened {
    std::unique_ptr<StandInStore> store;
    std::string reset_reason;
  };
  static ckpt::Result<Opened> open(Open open_on_disk);

  // True: the index is in memory, because the disk had no room.
  bool in_memory() const { return memory_ != nullptr; }
  // Begins an empty index in memory; the one on disk stays as it is.
  void go_to_memory();
  // Uses the store on disk again, and sets the index in memory aside. The store on disk has a
  // prefix of the batches; a stale one is emptied first. After an error the index in memory is in
  // use.
  ckpt::Status try_disk();
  // Ends what try_disk() began: the index in memory is dropped, or in use again.
  void stay_on_disk() { aside_.reset(); }
  void stay_in_memory();
  // The index on disk is not to be used as it is: the next try_disk() empties it.
  void set_stale() { stale_ = true; }

  ckpt::Status write(const std::vector<KvWrite>& batch) override;
  ckpt::Result<std::optional<std::string>> get(Family family, std::string_view key) const override;
  ckpt::Result<std::optional<KvEntry>> seek_for_prev(Family family, std::string_view key,
                                                     std::string_view prefix) const override;
  ckpt::Status scan(Family family, std::string_view prefix, Order order,
                    const Visit& visit) const override;
  ckpt::Status scan_on(Family family, std::string_view from, std::string_view prefix,
                       const Visit& visit) const override;
  ckpt::Status scan_back(Family family, std::string_view from, std::string_view prefix,
                         const Visit& visit) const override;
  ckpt::Status seek_each(Family family, const std::vector<std::string>& keys,
                         const VisitFound& visit) const override;
  // Where the disk has no room for that, the index is empty, too, and in memory; the one on disk is
  // stale. An error while the disk is tried.
  ckpt::Status clear() override;
  ckpt::Status reopen() override;
  ckpt::Result<std::string> set_aside(std::string_view name) override;
  bool read_only() const override;

 private:
  explicit StandInStore(Open open_on_disk) : open_on_disk_(std::move(open_on_disk)) {}
  KvStore& current() const { return memory_ ? *memory_ : *on_disk_; }

  Open open_on_disk_;
  std::unique_ptr<KvStore> on_disk_;  // none: it could not even be opened for reading
  std::unique_ptr<KvStore> memory_;
  std::unique_ptr<KvStore> aside_;  // the index in memory, while the disk is tried
  bool stale_ = false;
};

}  // namespace ckptd
