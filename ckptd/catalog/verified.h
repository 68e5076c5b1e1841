// Private to this folder: verified reading and writing of the tables of values.fbs.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "ckptd/catalog/values_generated.h"
#include "formats/base/bytes.h"
#include "formats/wire/unpacked.h"

namespace ckptd::values {

// FlatBuffers reads in place and requires alignment; keys and values of a store are unaligned.
template <typename Table>
class Verified {
 public:
  explicit Verified(std::string_view value) : copy_(value.size() / sizeof(uint64_t) + 1) {
    if (value.empty()) return;
    std::memcpy(copy_.data(), value.data(), value.size());
    const auto* bytes = reinterpret_cast<const uint8_t*>(copy_.data());
    flatbuffers::Verifier verifier(bytes, value.size());
    if (!verifier.VerifyBuffer<Table>(nullptr)) return;
    const ckpt::ByteView buffer(reinterpret_cast<const std::byte*>(bytes), value.size());
    if (!ckpt::wire::unpacks_safely(buffer, *Table::MiniReflectTypeTable())) return;
    table_ = flatbuffers::GetRoot<Table>(bytes);
  }
  explicit operator bool() const { return table_ != nullptr; }
  const Table* operator->() const { return table_; }
  const Table& operator*() const { return *table_; }

 private:
  std::vector<uint64_t> copy_;
  const Table* table_ = nullptr;
};

template <typename Offset>
std::string finish(flatbuffers::FlatBufferBuilder& builder, Offset root) {
  builder.Finish(root);
  return {reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize()};
}

}  // namespace ckptd::values
