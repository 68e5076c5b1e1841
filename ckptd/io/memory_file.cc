#include "ckptd/io/memory_file.h"

#include <algorithm>

#include "formats/base/assert.h"
#include "formats/base/checked.h"

namespace ckptd {

using ckpt::kBlockBytes;

void MemoryFile::preallocate(uint64_t bytes) {
  size_ = std::max(size_, bytes);
  allocate(bytes);
  size_sequence_ = last_sequence_;
}

void MemoryFile::allocate(uint64_t bytes) {
  allocated_end_ = std::max(allocated_end_, ckpt::base::align_up(bytes, kBlockBytes));
}

void MemoryFile::truncate(uint64_t bytes) {
  const uint64_t first_gone = ckpt::base::align_up(bytes, kBlockBytes) / kBlockBytes;
  for (auto block = blocks_.lower_bound(first_gone); block != blocks_.end();) {
    const uint64_t index = block->first;
    ++block;
    set_block(index, nullptr, last_sequence_);
  }
  size_ = bytes;
  size_sequence_ = last_sequence_;
  allocated_end_ = std::min(allocated_end_, ckpt::base::align_up(bytes, kBlockBytes));
  holes_.erase(holes_.lower_bound(first_gone), holes_.end());
}

void MemoryFile::punch(uint64_t offset, uint64_t length, uint64_t sequence) {
  const uint64_t end = std::min(offset + length, allocated_end_);
  for (uint64_t at = offset; at < end; at += kBlockBytes) {
    holes_.insert(at / kBlockBytes);
    if (blocks_.count(at / kBlockBytes) > 0) set_block(at / kBlockBytes, nullptr, sequence);
  }
  last_sequence_ = sequence;
}

void MemoryFile::set_block(uint64_t index, BlockPointer block, uint64_t sequence) {
  auto& current = blocks_[index];
  const auto [dirty, inserted] = dirty_.try_emplace(index, Dirty{current, sequence});
  if (!inserted) dirty->second.sequence = sequence;
  current = std::move(block);
  if (current == nullptr) blocks_.erase(index);
}

void MemoryFile::write(uint64_t offset, ckpt::ByteView bytes, uint64_t sequence) {
  for (uint64_t at = 0; at < bytes.size(); at += kBlockBytes) {
    auto block = std::make_shared<Block>();
    std::copy_n(bytes.data() + at, kBlockBytes, block->data());
    holes_.erase((offset + at) / kBlockBytes);
    set_block((offset + at) / kBlockBytes, std::move(block), sequence);
  }
  last_sequence_ = sequence;
  if (offset + bytes.size() > size_) {
    size_ = offset + bytes.size();
    size_sequence_ = sequence;
  }
  allocated_end_ = std::max(allocated_end_, ckpt::base::align_up(size_, kBlockBytes));
}

uint64_t MemoryFile::read(uint64_t offset, ckpt::MutableByteView bytes) const {
  if (offset >= size_) return 0;
  const uint64_t length = std::min<uint64_t>(bytes.size(), size_ - offset);
  for (uint64_t at = 0; at < length; at += kBlockBytes) {
    const uint64_t piece = std::min(kBlockBytes, length - at);
    const auto found = blocks_.find((offset + at) / kBlockBytes);
    if (found == blocks_.end()) {
      std::fill_n(bytes.data() + at, piece, std::byte{0});
    } else {
      std::copy_n(found->second->data(), piece, bytes.data() + at);
    }
  }
  return length;
}

void MemoryFile::flip(uint64_t offset, uint8_t bits) {
  CKPT_ASSERT_MSG(offset < size_, "flipping a byte beyond the end of the file");
  auto block = std::make_shared<Block>();
  auto& slot = blocks_[offset / kBlockBytes];
  if (slot != nullptr) *block = *slot;
  (*block)[offset % kBlockBytes] ^= std::byte{bits};
  slot = std::move(block);
}

void MemoryFile::sync(uint64_t sequence) {
  for (auto dirty = dirty_.begin(); dirty != dirty_.end();) {
    // A block that was written again after the submit of the sync may still tear: it stays dirty.
    dirty = dirty->second.sequence <= sequence ? dirty_.erase(dirty) : std::next(dirty);
  }
  if (size_sequence_ <= sequence) durable_size_ = size_;
}

MemoryFile::BlockPointer MemoryFile::mixed(const BlockPointer& older, const BlockPointer& newer,
                                           Random& random) {
  auto block = std::make_shared<Block>();
  block->fill(std::byte{0});
  for (uint64_t sector = 0; sector < kBlockBytes; sector += kSectorBytes) {
    const BlockPointer& source = random() % 2 == 0 ? older : newer;
    if (source == nullptr) continue;
    std::copy_n(source->data() + sector, kSectorBytes, block->data() + sector);
  }
  return block;
}

MemoryFile MemoryFile::crashed(Random& random) const {
  MemoryFile image;
  image.blocks_ = blocks_;
  for (const auto& [index, dirty] : dirty_) {
    const auto current = blocks_.find(index);
    const BlockPointer newer = current == blocks_.end() ? nullptr : current->second;
    const uint64_t choice = random() % 4;  // lost, kept, kept, torn
    BlockPointer block = choice == 0   ? dirty.durable
                         : choice == 3 ? mixed(dirty.durable, newer, random)
                                       : newer;
    if (block == nullptr) {
      image.blocks_.erase(index);
    } else {
      image.blocks_[index] = std::move(block);
    }
  }
  image.size_ = random() % 2 == 0 ? durable_size_ : size_;
  while (!image.blocks_.empty() && image.blocks_.rbegin()->first * kBlockBytes >= image.size_) {
    image.blocks_.erase(std::prev(image.blocks_.end()));
  }
  image.durable_size_ = image.size_;
  image.allocated_end_ = std::min(allocated_end_, ckpt::base::align_up(image.size_, kBlockBytes));
  for (const uint64_t hole : holes_) {
    const bool there = hole * kBlockBytes >= image.allocated_end_ || image.blocks_.count(hole) > 0;
    if (!there) image.holes_.insert(hole);
  }
  return image;
}

MemoryFile MemoryFile::as_written() const {
  MemoryFile image = *this;
  image.dirty_.clear();
  image.durable_size_ = image.size_;
  image.size_sequence_ = 0;
  image.last_sequence_ = 0;
  return image;
}

}  // namespace ckptd
