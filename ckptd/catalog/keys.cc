#include "ckptd/catalog/keys.h"

#include <cstring>

namespace ckptd::keys {
namespace {

constexpr size_t kLineageStepBytes = sizeof(ckpt::LineageId) + sizeof(ckpt::Step);

template <typename T>
std::string big_endian(T value) {
  std::string bytes(sizeof(T), '\0');
  for (size_t i = sizeof(T); i-- > 0; value = static_cast<T>(value >> 8)) {
    bytes[i] = static_cast<char>(value & 0xff);
  }
  return bytes;
}

template <typename T>
std::optional<T> big_endian_at(std::string_view text, size_t position) {
  if (position > text.size() || text.size() - position < sizeof(T)) return std::nullopt;
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value = static_cast<T>(value << 8 | static_cast<unsigned char>(text[position + i]));
  }
  return value;
}

}  // namespace

std::string number(uint32_t value) { return big_endian(value); }
std::string number(uint64_t value) { return big_endian(value); }
std::optional<uint32_t> u32_at(std::string_view text, size_t position) {
  return big_endian_at<uint32_t>(text, position);
}
std::optional<uint64_t> u64_at(std::string_view text, size_t position) {
  return big_endian_at<uint64_t>(text, position);
}

std::string opened(uint64_t sequence) { return std::string(kOpened) + number(sequence); }

std::string run(ckpt::RunId run) { return number(run); }
std::string run_grant(ckpt::RunId run, uint32_t uid) { return number(run) + 'g' + number(uid); }
std::string run_rules(ckpt::RunId run) { return number(run) + 'k'; }
std::string run_state(ckpt::RunId run) { return number(run) + 's'; }
std::string units(ckpt::RunId run, ckpt::UnitId first) { return number(run) + number(first); }
std::string lineage(ckpt::RunId run, ckpt::LineageId lineage) {
  return number(run) + number(lineage);
}
std::string tag(ckpt::RunId run, std::string_view tag) { return number(run).append(tag); }

std::string commits(ckpt::RunId run, CommitIndex index) {
  return number(run) + static_cast<char>(index);
}
std::string commits(ckpt::RunId run, CommitIndex index, ckpt::LineageId lineage) {
  return commits(run, index) + number(lineage);
}
std::string commit(ckpt::RunId run, CommitIndex index, ckpt::LineageId lineage, ckpt::Step step) {
  return commits(run, index) + lineage_step(lineage, step);
}
std::string commit_sequence(ckpt::RunId run, uint64_t sequence) {
  return commits(run, CommitIndex::kSequence) + number(sequence);
}
std::string refused(ckpt::RunId run, uint64_t sequence) {
  return commits(run, CommitIndex::kRefused) + number(sequence);
}

std::string dead(ckpt::RunId run, uint64_t sequence) {
  return commits(run, CommitIndex::kDead) + number(sequence);
}
std::string holding(ckpt::RunId run, ckpt::SegmentId segment, uint64_t offset) {
  return commits(run, CommitIndex::kHolding) + number(segment) + number(offset);
}
std::string holding(ckpt::RunId run, ckpt::SegmentId segment, uint64_t offset,
                    ckpt::LineageId lineage, ckpt::Step step) {
  return holding(run, segment, offset) + lineage_step(lineage, step);
}
std::string segment(ckpt::SegmentId segment) { return number(segment); }

std::string versions(ckpt::RunId run, ckpt::UnitId unit) { return number(run) + number(unit); }
std::string versions(ckpt::RunId run, ckpt::UnitId unit, ckpt::LineageId lineage) {
  return versions(run, unit) + number(lineage);
}
std::string version(ckpt::RunId run, ckpt::UnitId unit, ckpt::LineageId lineage, ckpt::Step step) {
  return versions(run, unit) + lineage_step(lineage, step);
}

std::string lineage_step(ckpt::LineageId lineage, ckpt::Step step) {
  return number(lineage) + number(step);
}
std::optional<LineageStep> lineage_step_at_end(std::string_view text) {
  if (text.size() < kLineageStepBytes) return std::nullopt;
  const size_t begin = text.size() - kLineageStepBytes;
  return LineageStep{*u32_at(text, begin), *u64_at(text, begin + sizeof(ckpt::LineageId))};
}

}  // namespace ckptd::keys
