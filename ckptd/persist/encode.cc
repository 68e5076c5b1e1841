// Encodes slabs before they are written: on the executor, in memory of bounded size.
#include <algorithm>

#include "ckptd/limits.h"
#include "ckptd/persist/persist_impl.h"
#include "formats/base/checked.h"

namespace ckptd {

// Starts encodes in order of arrival, as long as there is memory for their results.
void Persist::Impl::start_encodes() {
  while (!to_encode.empty() && encodes_running < limits::kEncodesMax) {
    const WritePointer write = to_encode.front();
    const uint64_t bytes = write->slab.payload().size();
    if (encode_bytes > 0 && encode_bytes + bytes > limits::kEncodeBytesMax) return;
    to_encode.pop_front();
    ++encodes_running;
    encode_bytes += bytes;
    write->encode_bytes = bytes;
    if (!spare_buffers.empty()) {
      AlignedBuffer spare = std::move(spare_buffers.back());
      spare_buffers.pop_back();
      // A much larger buffer would hold more memory than the budget counts.
      if (spare.size() <= 2 * bytes) write->encoded = std::move(spare);
    }
    write->encoder = std::make_unique<SlabEncoder>(write->slab.bytes(), write->to_encode,
                                                   std::move(write->units));
    next_encode_step(write);
  }
}

void Persist::Impl::next_encode_step(const WritePointer& write) {
  if (write->bases == nullptr) return encode_step(write, {});
  write->bases->read(write->encoder->next_ranges(limits::kEncodeStepBytes),
                     [this, write](BasePieces bases) { encode_step(write, std::move(bases)); });
}

void Persist::Impl::encode_step(const WritePointer& write, BasePieces bases) {
  auto stepped = std::make_shared<Status>();
  executor.run(
      [write, stepped, bases = std::move(bases)] {
        const auto began = std::chrono::steady_clock::now();
        // On the executor, because the first touch of so much memory is slow.
        if (write->encoded.size() < write->encode_bytes) {
          write->encoded = AlignedBuffer(write->encode_bytes);
        }
        *stepped = write->encoder->step(limits::kEncodeStepBytes, write->encoded.bytes(), bases);
        write->encode_time += std::chrono::steady_clock::now() - began;
      },
      [this, write, stepped] { encode_stepped(write, *stepped); });
}

void Persist::Impl::encode_stepped(const WritePointer& write, const Status& status) {
  const bool continues =
      status.ok() && !write->abandoned && !snapshots.at(write->snapshot).failed.has_value();
  if (continues && !write->encoder->done()) return next_encode_step(write);
  write->bases.reset();
  --encodes_running;
  stats.encode_seconds += std::chrono::duration<double>(write->encode_time).count();
  if (continues) {
    take_encoded(*write);
    write->encoder.reset();
    queue.push_back(write);
    pump();
  } else {
    write->encoder.reset();
    stats.bytes_queued -= write->padded_bytes();
    if (!status.ok()) ++stats.payload_mismatches;
    finish(write, status);
  }
  start_encodes();
}

// A slab is written unencoded if no fragment got smaller, or if its pieces would exceed the limit
// of its snapshot's record.
void Persist::Impl::take_encoded(ExtentWrite& write) {
  const SlabEncoder& encoder = *write.encoder;
  size_t& pieces = snapshots.at(write.snapshot).fragments_encoded;
  const bool fits = pieces + encoder.fragments().size() <= limits::kFragmentsPerSnapshotMax;
  if (!encoder.any() || !fits) return release_buffer(write);
  pieces += encoder.fragments().size();
  const uint64_t raw_bytes = write.padded_bytes();
  write.extent.fragments = encoder.fragments();
  write.encoded_bytes = encoder.stored_bytes();
  write.pad();
  stats.bytes_queued -= raw_bytes - write.padded_bytes();
}

void Persist::Impl::release_buffer(ExtentWrite& write) {
  if (write.encode_bytes == 0) return;
  encode_bytes -= write.encode_bytes;
  write.encode_bytes = 0;
  uint64_t spare = write.encoded.size();
  for (const AlignedBuffer& buffer : spare_buffers) spare += buffer.size();
  if (spare + encode_bytes <= limits::kEncodeBytesMax) {
    spare_buffers.push_back(std::move(write.encoded));
  }
  write.encoded = AlignedBuffer();
}

void ExtentWrite::take_parts(const std::vector<bool>& left_out) {
  const std::vector<ckpt::ExtentFragment>& fragments = slab.fragments();
  if (std::find(left_out.begin(), left_out.end(), true) == left_out.end()) {
    parts = {{{0, slab.payload().size()}}, fragments, slab.payload_bytes()};
  } else {
    parts = parts_of_slab(fragments, left_out);
  }
  if (units == nullptr) return;
  for (size_t i = 0; i < fragments.size(); ++i) {
    if (left_out.empty() || !left_out[i]) to_encode.push_back(fragments[i]);
  }
  // Without a fragment of a planned unit left to write, the slab needs no encoding.
  if (std::any_of(to_encode.begin(), to_encode.end(),
                  [this](const auto& fragment) { return units->has(fragment.unit); })) {
    return;
  }
  units.reset();
  to_encode.clear();
}

uint64_t ExtentWrite::padded_bytes() const {
  const uint64_t bytes = encoded_bytes > 0 ? encoded_bytes : parts.payload_bytes;
  return ckpt::base::align_up(bytes, ckpt::kBlockBytes);
}

void ExtentWrite::pad() {
  const MutableByteView padding = encoded.bytes().first(padded_bytes()).subspan(encoded_bytes);
  std::fill(padding.begin(), padding.end(), std::byte{0});
}

MutableByteView ExtentWrite::next_piece(uint64_t most) {
  MutableByteView piece;
  if (encoded_bytes > 0) {
    piece = encoded.bytes().first(padded_bytes()).subspan(submitted_bytes);
  } else {
    const SlabParts::Part& part = parts.parts[part_at];
    piece = slab.payload().subspan(part.offset, part.bytes).subspan(part_submitted_bytes);
  }
  piece = piece.first(std::min<uint64_t>(most, piece.size()));
  submitted_bytes += piece.size();
  part_submitted_bytes += piece.size();
  if (encoded_bytes == 0 && part_submitted_bytes == parts.parts[part_at].bytes) {
    ++part_at;
    part_submitted_bytes = 0;
  }
  return piece;
}

}  // namespace ckptd
