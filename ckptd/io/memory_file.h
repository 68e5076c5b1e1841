// MemoryFile: one file of the memory disk, block by block, with its durable state.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "formats/base/bytes.h"
#include "formats/base/ids.h"

namespace ckptd {

class MemoryFile {
 public:
  using Random = std::mt19937_64;

  uint64_t size() const { return size_; }
  // Blocks that take space: written ones and those preallocated, without holes.
  uint64_t allocated_bytes() const { return allocated_end_ - holes_.size() * ckpt::kBlockBytes; }
  // Writes below this offset need no new space (except writes into holes).
  uint64_t allocated_end() const { return allocated_end_; }
  void preallocate(uint64_t bytes);
  void allocate(uint64_t bytes);  // without changing the size
  void truncate(uint64_t bytes);
  void punch(uint64_t offset, uint64_t length, uint64_t sequence);

  // Offsets and lengths are whole blocks, except that a read stops at the end of the file.
  void write(uint64_t offset, ckpt::ByteView bytes, uint64_t sequence);
  uint64_t read(uint64_t offset, ckpt::MutableByteView bytes) const;
  void flip(uint64_t offset, uint8_t bits);

  // Makes writes with a sequence number up to `sequence` durable.
  void sync(uint64_t sequence);
  // The contents after a power loss: for each unsynced sector the old or the new bytes.
  MemoryFile crashed(Random& random) const;
  // The contents as the kernel has them: everything counts as durable.
  MemoryFile as_written() const;

 private:
  static constexpr uint64_t kSectorBytes = 512;
  using Block = std::array<std::byte, ckpt::kBlockBytes>;
  using BlockPointer = std::shared_ptr<const Block>;  // null: zeros
  struct Dirty {
    BlockPointer durable;   // the state that a crash may restore
    uint64_t sequence = 0;  // of the newest write
  };
  void set_block(uint64_t index, BlockPointer block, uint64_t sequence);
  static BlockPointer mixed(const BlockPointer& older, const BlockPointer& newer, Random& random);

  std::map<uint64_t, BlockPointer> blocks_;  // by offset / 4096; absent: zeros
  std::map<uint64_t, Dirty> dirty_;
  uint64_t size_ = 0;
  uint64_t durable_size_ = 0;
  uint64_t size_sequence_ = 0;
  uint64_t allocated_end_ = 0;
  std::set<uint64_t> holes_;  // punched blocks below it, by offset / 4096
  uint64_t last_sequence_ = 0;
};

}  // namespace ckptd
