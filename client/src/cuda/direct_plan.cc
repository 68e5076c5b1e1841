#include "client/src/cuda/direct_plan.h"

#include <algorithm>

#include "formats/base/checked.h"
#include "formats/base/ids.h"

namespace ckpt::lib {
namespace {

uint64_t end_of(const ckpt_restore_fragment& fragment) {
  return fragment.file_offset + fragment.length;
}

// Appends reads of [begin, end) of the file, none larger than read_bytes_max.
void add_reads(uint64_t begin, uint64_t end, uint64_t at, uint64_t read_bytes_max,
               std::vector<DirectRead>& reads) {
  for (uint64_t from = begin; from < end; from += read_bytes_max) {
    reads.push_back({from, std::min(read_bytes_max, end - from), at + (from - begin)});
  }
}

}  // namespace

DirectPlan plan_direct(std::span<const ckpt_restore_fragment> fragments, uint64_t read_bytes_max) {
  DirectPlan plan;
  plan.fragment_at.reserve(fragments.size());
  uint64_t begin = 0;  // current run of blocks: [begin, end) of the file
  uint64_t end = 0;
  uint64_t at = 0;  // start of the run in the scratch
  for (const ckpt_restore_fragment& fragment : fragments) {
    const uint64_t first = base::align_down(fragment.file_offset, kBlockBytes);
    if (first > end || plan.fragment_at.empty()) {
      add_reads(begin, end, at, read_bytes_max, plan.reads);
      at += end - begin;
      begin = first;
    }
    end = base::align_up(end_of(fragment), kBlockBytes);
    plan.fragment_at.push_back(at + (fragment.file_offset - begin));
  }
  add_reads(begin, end, at, read_bytes_max, plan.reads);
  plan.bytes = at + (end - begin);
  return plan;
}

std::vector<bool> incomplete_fragments(const DirectPlan& plan,
                                       std::span<const ckpt_restore_fragment> fragments,
                                       std::span<const uint64_t> got) {
  std::vector<bool> incomplete(fragments.size());
  for (size_t i = 0; i < plan.reads.size(); ++i) {
    if (got[i] >= plan.reads[i].bytes) continue;
    const uint64_t missing = plan.reads[i].file_offset + got[i];
    const uint64_t end = plan.reads[i].file_offset + plan.reads[i].bytes;
    for (size_t k = 0; k < fragments.size(); ++k) {
      if (fragments[k].file_offset < end && missing < end_of(fragments[k])) incomplete[k] = true;
    }
  }
  return incomplete;
}

ScatterPlan plan_scatter(const DirectPlan& plan, std::span<const ckpt_restore_fragment> fragments,
                         std::span<const ckpt_restore_piece> pieces,
                         std::span<const ckpt_cuda_destination> destinations,
                         const std::vector<bool>& left_out) {
  ScatterPlan scatter;
  for (size_t number = 0; number < fragments.size(); ++number) {
    if (left_out[number]) continue;
    const ckpt_restore_fragment& fragment = fragments[number];
    const auto of_fragment = pieces.subspan(fragment.first_piece, fragment.piece_count);
    std::vector<ckpt_restore_piece> parts(of_fragment.begin(), of_fragment.end());
    std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
    const auto begin_in = [&](size_t index) {
      if (index == scatter.calls.size()) scatter.calls.emplace_back();
      UnpackCall& call = scatter.calls[index];
      call.ranges.push_back({plan.fragment_at[number], fragment.length});
      call.expected.push_back(fragment.crc32c);
      call.numbers.push_back(number);
      ++scatter.ranges;
    };
    begin_in(0);
    std::vector<uint64_t> ends{0};  // by call with this fragment: end of its last part
    for (const ckpt_restore_piece& part : parts) {
      size_t index = 0;
      while (index < ends.size() && ends[index] > part.at) ++index;
      if (index == ends.size()) {
        begin_in(index);
        ends.push_back(0);
      }
      ends[index] = part.at + part.length;
      auto* to = static_cast<std::byte*>(destinations[part.range].data) + part.offset;
      const uint64_t at = plan.fragment_at[number] + (part.at - fragment.file_offset);
      scatter.calls[index].pieces.push_back({to, at, part.length});
    }
  }
  return scatter;
}

}  // namespace ckpt::lib
