// MemoryFile: one file of the memory disk, block by block, with what of it is durable.
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
  // Writes up to here find their space taken already (those into holes are not counted).
  uint64_t allocated_end() const { return allocated_end_; }
  void preallocate(uint64_t bytes);
  void allocate(uint64_t bytes);  // without changing the size
  void truncate(uint64_t bytes);
  void punch(uint64_t offset, uint64_t length, uint64_t sequence);

  // Offsets and lengths are whole blocks, except that a read stops at the end of the file.
  void write(uint64_t offset, ckpt::ByteView bytes, uint64_t sequence);
  uint64_t read(uint64_t offset, ckpt::MutableByteView bytes) const;
  void flip(uint64_t offset, uint8_t bits);

  // Makes durable what was written with a sequence number up to `sequence`.
  void sync(uint64_t sequence);
  // The contents after power loss: of each unsynced sector the old or the new bytes.
  MemoryFile crashed(Random& random) const;
  // The contents as the kernel has them: everything counts as durable.
  MemoryFile as_written() const;

 private:
  static constexpr uint64_t kSectorBytes = 512;
  using Block = std::array<std::byte, ckpt::kBlockBytes>;
  using BlockPointer = std::shared_ptr<const Block>;  // null: zeros
  struct Dirty {
    BlockPointer durable;   // what a crash may bring back
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
  std::set<uint64_t> holes_;  // blocks below it that were given back, by offset / 4096
  uint64_t last_sequence_ = 0;
};

}  // namespace ckptd
