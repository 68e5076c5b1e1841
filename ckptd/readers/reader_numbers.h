// ReaderNumbers: numbers of the jobs that read commits, in the order of their start. Garbage
// collection frees dead space once every job that began before its record has ended. Pure.
#pragma once

#include <cstdint>
#include <set>
#include <utility>

namespace ckptd {

class ReaderNumbers {
 public:
  // A job counts as a reader while this value lives. ReaderNumbers outlives it.
  class Reading {
   public:
    Reading() = default;
    Reading(Reading&& other) noexcept { *this = std::move(other); }
    Reading& operator=(Reading&& other) noexcept {
      std::swap(numbers_, other.numbers_);
      std::swap(number_, other.number_);
      return *this;
    }
    ~Reading() { end(); }
    void end() {
      if (numbers_ != nullptr) numbers_->open_.erase(number_);
      numbers_ = nullptr;
    }

   private:
    friend class ReaderNumbers;
    Reading(ReaderNumbers* numbers, uint64_t number) : numbers_(numbers), number_(number) {}
    ReaderNumbers* numbers_ = nullptr;
    uint64_t number_ = 0;
  };

  ReaderNumbers() = default;
  ReaderNumbers(const ReaderNumbers&) = delete;
  ReaderNumbers& operator=(const ReaderNumbers&) = delete;

  Reading begin() {
    open_.insert(next_);
    return {this, next_++};
  }
  // Number of the job that begins next.
  uint64_t next() const { return next_; }
  // The oldest job that still reads; next() if there is none.
  uint64_t oldest() const { return open_.empty() ? next_ : *open_.begin(); }

 private:
  uint64_t next_ = 1;
  std::set<uint64_t> open_;
};

}  // namespace ckptd
