// A catalog's store on a full disk: the index is kept in memory until the disk has space again.
//
// RocksDB needs space even to be opened for writing. Without a catalog no user can list, restore or
// delete anything, and so free space. The store in memory begins empty; the owner of the catalog
// fills it from the journal.
//
// The return to disk is a trial: the index in memory stays until the caller has checked the index
// on disk, which may be damaged, or belong to a journal that was replaced meanwhile.
#pragma once

#include <functional>
#include <memory>

#include "ckptd/catalog/kv_store.h"

namespace ckptd {

class StandInStore final : public KvStore {
 public:
  using Open = std::function<ckpt::Result<OpenedKvStore>()>;

  // Opens the store on disk: normally, for reading only (read_only()), or not at all and in memory
  // (in_memory()), if the disk is full. `broken` as in OpenedKvStore.
  struct Opened {
    std::unique_ptr<StandInStore> store;
    std::string broken;
  };
  static ckpt::Result<Opened> open(Open open_on_disk);

  // True if the index is in memory, because the disk is full.
  bool in_memory() const { return memory_ != nullptr; }
  // Begins an empty index in memory; the one on disk stays as it is.
  void switch_to_memory();
  // Uses the store on disk again, and sets the index in memory aside. The store on disk has a
  // prefix of the batches; a stale store is cleared first. After an error the index in memory
  // stays in use.
  ckpt::Status try_disk();
  // Ends the trial that try_disk() began: drops the index in memory, or uses it again.
  void stay_on_disk() { aside_.reset(); }
  void stay_in_memory();
  // Marks the index on disk as outdated: the next try_disk() clears it.
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
  // If the disk has no room for this, the index is emptied and moved to memory, and the index on
  // disk becomes stale. Fails while the disk is being tried.
  ckpt::Status clear() override;
  ckpt::Status reopen() override;
  ckpt::Result<std::string> set_aside(std::string_view name) override;
  bool read_only() const override;

 private:
  explicit StandInStore(Open open_on_disk) : open_on_disk_(std::move(open_on_disk)) {}
  KvStore& current() const { return memory_ ? *memory_ : *on_disk_; }

  Open open_on_disk_;
  std::unique_ptr<KvStore> on_disk_;  // null: it could not even be opened for reading
  std::unique_ptr<KvStore> memory_;
  std::unique_ptr<KvStore> aside_;  // the index in memory, while the disk is tried
  bool stale_ = false;
};

}  // namespace ckptd
