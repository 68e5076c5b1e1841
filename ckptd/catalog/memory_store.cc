// The in-memory counterpart of the RocksDB store: ordered maps, and a log of batches for simulated
// crashes.
#include <array>
#include <map>

#include "ckptd/catalog/kv_store.h"
#include "formats/base/assert.h"

namespace ckptd {

using ckpt::Result;
using ckpt::Status;

struct MemoryKvImage::Impl {
  using Table = std::map<std::string, std::string, std::less<>>;

  // nullopt: clear() was called.
  using LoggedBatch = std::optional<std::vector<KvWrite>>;

  std::array<Table, kFamilyCount> tables;
  bool keep_log = true;
  bool full = false;
  Status reads;    // the error that every read returns
  Status opening;  // the error of opening the store
  size_t opens = 0;
  size_t writes_when_closed = 0;
  std::vector<LoggedBatch> log;

  const Table& table(Family family) const { return tables[static_cast<size_t>(family)]; }

  void apply(const LoggedBatch& batch) {
    if (!batch) {
      for (Table& table : tables) table.clear();
      return;
    }
    for (const KvWrite& write : *batch) {
      Table& table = tables[static_cast<size_t>(write.family)];
      if (write.value) {
        table.insert_or_assign(write.key, *write.value);
      } else if (write.prefix) {
        auto end = table.lower_bound(write.key);
        const auto begin = end;
        while (end != table.end() && end->first.starts_with(write.key)) ++end;
        table.erase(begin, end);
      } else {
        table.erase(write.key);
      }
    }
  }
  void append(LoggedBatch batch) {
    apply(batch);
    if (keep_log) log.push_back(std::move(batch));
  }
};

MemoryKvImage::MemoryKvImage() : impl_(std::make_unique<Impl>()) {}
MemoryKvImage::~MemoryKvImage() = default;

size_t MemoryKvImage::batches() const { return impl_->log.size(); }

void MemoryKvImage::keep_prefix(size_t batches) {
  CKPT_ASSERT(batches <= impl_->log.size());
  impl_->log.resize(batches);
  impl_->apply(std::nullopt);
  for (const auto& batch : impl_->log) impl_->apply(batch);
}

void MemoryKvImage::set_full(bool full) { impl_->full = full; }
void MemoryKvImage::set_reads(Status reads) { impl_->reads = std::move(reads); }
void MemoryKvImage::set_open(Status opening) { impl_->opening = std::move(opening); }
Status MemoryKvImage::open() {
  ++impl_->opens;
  return impl_->opening;
}
size_t MemoryKvImage::opens() const { return impl_->opens; }
size_t MemoryKvImage::writes_when_closed() const { return impl_->writes_when_closed; }

class MemoryKvStore final : public KvStore {
 public:
  explicit MemoryKvStore(std::shared_ptr<MemoryKvImage> image)
      : image_(std::move(image)), read_only_(impl().full) {}

  static std::unique_ptr<MemoryKvStore> without_log() {
    auto image = std::make_shared<MemoryKvImage>();
    image->impl_->keep_log = false;
    return std::make_unique<MemoryKvStore>(std::move(image));
  }

  Status write(const std::vector<KvWrite>& batch) override {
    if (closed_) ++impl().writes_when_closed;
    CKPT_TRY(usable());
    closed_ = impl().full;
    CKPT_TRY(usable());
    impl().append(batch);
    return {};
  }

  Result<std::optional<std::string>> get(Family family, std::string_view key) const override {
    CKPT_TRY(readable());
    const auto& table = impl().table(family);
    const auto found = table.find(key);
    if (found == table.end()) return std::optional<std::string>();
    return std::optional<std::string>(found->second);
  }

  Result<std::optional<KvEntry>> seek_for_prev(Family family, std::string_view key,
                                               std::string_view prefix) const override {
    CKPT_TRY(readable());
    const auto& table = impl().table(family);
    auto after = table.upper_bound(key);
    if (after == table.begin()) return std::optional<KvEntry>();
    --after;
    if (!after->first.starts_with(prefix)) return std::optional<KvEntry>();
    return std::optional<KvEntry>(KvEntry{after->first, after->second});
  }

  Status scan(Family family, std::string_view prefix, Order order,
              const Visit& visit) const override {
    CKPT_TRY(readable());
    const auto& table = impl().table(family);
    const auto first = table.lower_bound(prefix);
    auto last = first;
    while (last != table.end() && last->first.starts_with(prefix)) {
      if (order == Order::kAscending && !visit(last->first, last->second)) return {};
      ++last;
    }
    if (order == Order::kAscending) return {};
    while (last != first) {
      --last;
      if (!visit(last->first, last->second)) return {};
    }
    return {};
  }

  Status scan_on(Family family, std::string_view from, std::string_view prefix,
                 const Visit& visit) const override {
    CKPT_TRY(readable());
    const auto& table = impl().table(family);
    for (auto at = table.lower_bound(from); at != table.end(); ++at) {
      if (!at->first.starts_with(prefix) || !visit(at->first, at->second)) break;
    }
    return {};
  }

  Status scan_back(Family family, std::string_view from, std::string_view prefix,
                   const Visit& visit) const override {
    CKPT_TRY(readable());
    const auto& table = impl().table(family);
    for (auto after = table.upper_bound(from); after != table.begin();) {
      --after;
      if (!after->first.starts_with(prefix) || !visit(after->first, after->second)) break;
    }
    return {};
  }

  Status seek_each(Family family, const std::vector<std::string>& keys,
                   const VisitFound& visit) const override {
    CKPT_TRY(readable());
    const auto& table = impl().table(family);
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto after = table.upper_bound(keys[i]);
      if (after == table.begin()) continue;
      visit(i, std::prev(after)->first, std::prev(after)->second);
    }
    return {};
  }

  Status clear() override {
    CKPT_TRY(reopen());
    impl().append(std::nullopt);
    if (is_catalog_damage(impl().reads)) impl().reads = {};
    return {};
  }

  Status reopen() override {
    read_only_ = false;
    closed_ = impl().full;
    return usable();
  }

  bool read_only() const override { return read_only_; }

 private:
  Status readable() const {
    CKPT_TRY(usable());
    return impl().reads;
  }
  Status usable() const {
    if (!closed_) return {};
    return ckpt::make_error(ckpt::ErrorCode::kResourceExhausted,
                            "catalog in memory: no space left on device");
  }
  MemoryKvImage::Impl& impl() const { return *image_->impl_; }
  std::shared_ptr<MemoryKvImage> image_;
  bool read_only_ = false;
  bool closed_ = false;
};

std::unique_ptr<KvStore> make_memory_store() { return MemoryKvStore::without_log(); }

std::unique_ptr<KvStore> make_memory_store(std::shared_ptr<MemoryKvImage> image) {
  return std::make_unique<MemoryKvStore>(std::move(image));
}

}  // namespace ckptd
