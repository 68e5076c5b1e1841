// A store in memory that counts its reads: the cost of an answer, without a clock.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ckptd/catalog/kv_store.h"

namespace ckptd {

class CountingStore final : public KvStore {
 public:
  // Keys sought, and entries looked at, since the counter was last set.
  explicit CountingStore(std::shared_ptr<size_t> reads) : reads_(std::move(reads)) {}

  ckpt::Status write(const std::vector<KvWrite>& batch) override { return store_->write(batch); }
  ckpt::Result<std::optional<std::string>> get(Family family, std::string_view key) const override {
    ++*reads_;
    return store_->get(family, key);
  }
  ckpt::Result<std::optional<KvEntry>> seek_for_prev(Family family, std::string_view key,
                                                     std::string_view prefix) const override {
    ++*reads_;
    return store_->seek_for_prev(family, key, prefix);
  }
  ckpt::Status scan(Family family, std::string_view prefix, Order order,
                    const Visit& visit) const override {
    ++*reads_;
    return store_->scan(family, prefix, order, counted(visit));
  }
  ckpt::Status scan_on(Family family, std::string_view from, std::string_view prefix,
                       const Visit& visit) const override {
    ++*reads_;
    return store_->scan_on(family, from, prefix, counted(visit));
  }
  ckpt::Status scan_back(Family family, std::string_view from, std::string_view prefix,
                         const Visit& visit) const override {
    ++*reads_;
    return store_->scan_back(family, from, prefix, counted(visit));
  }
  ckpt::Status seek_each(Family family, const std::vector<std::string>& keys,
                         const VisitFound& visit) const override {
    *reads_ += keys.size();
    return store_->seek_each(family, keys, visit);
  }
  ckpt::Status clear() override { return store_->clear(); }
  ckpt::Status reopen() override { return store_->reopen(); }

 private:
  Visit counted(const Visit& visit) const {
    return [this, &visit](std::string_view key, std::string_view value) {
      ++*reads_;
      return visit(key, value);
    };
  }

  std::unique_ptr<KvStore> store_ = make_memory_store();
  std::shared_ptr<size_t> reads_;
};

}  // namespace ckptd
