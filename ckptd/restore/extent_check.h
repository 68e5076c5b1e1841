// ExtentCheck: checks the bytes of one extent, in order, against the journal. Pure.
//
// Takes an extent of any size in pieces; keeps only the header. Checks every byte: header,
// fragments (CRC32C each), gaps and padding (zero). The CRC of the whole payload follows from
// these.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ckptd/restore/segment_reader.h"
#include "formats/segment.h"

namespace ckptd {

class ExtentCheck {
 public:
  // kRest: space outside the expected fragments may have been reclaimed, and is not checked.
  ExtentCheck(ckpt::ExtentHeader expected, uint32_t header_bytes, uint32_t header_crc32c,
              ExtentPart part = ExtentPart::kWhole);

  uint64_t bytes() const;  // of the whole extent: header and padded payload
  // The next bytes.
  void feed(ckpt::ByteView bytes);
  // Skips the next bytes: they are lost, or the system refused to read them (is_data_loss() in
  // io/disk.h) and their state is unknown.
  enum class Missing : uint8_t { kLost, kUnchecked };
  void skip(uint64_t bytes, const std::string& reason, Missing missing);

  // One entry per unit with damaged or unchecked bytes, with the first reason. Damage takes
  // precedence over unchecked bytes. Call this after all bytes were fed or skipped.
  struct Finding {
    std::optional<ckpt::UnitId> unit;  // none only if the extent holds no fragment
    std::string reason;
    bool damage = true;  // false: could not be checked
  };
  std::vector<Finding> finish();

 private:
  void feed_payload(ckpt::ByteView bytes);
  void end_fragment();
  void next_fragment();
  void add(Finding finding);
  void damaged_outside_fragments(const std::string& what);
  std::optional<ckpt::UnitId> first_unit() const;
  std::string at(uint64_t offset_in_payload) const;

  ckpt::ExtentHeader expected_;
  const uint32_t header_bytes_;
  const uint32_t header_crc32c_;
  const ExtentPart part_;
  const uint64_t padded_payload_bytes_;

  uint64_t position_ = 0;          // in the extent
  std::vector<std::byte> header_;  // until the header is complete
  bool header_unreadable_ = false;
  size_t fragment_ = 0;  // first fragment that ends after the position
  uint32_t crc_ = 0;     // of this fragment's bytes so far
  bool fragment_unreadable_ = false;
  std::vector<Finding> findings_;
};

}  // namespace ckptd
