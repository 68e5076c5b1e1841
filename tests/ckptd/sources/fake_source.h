// FakeSource: a source that is asked for places, and never read.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "ckptd/sources/sources.h"

namespace ckptd {

class FakeSource : public Source {
 public:
  using Serves = std::function<bool(const FragmentName&)>;
  FakeSource(SourceId id, std::string_view name, Serves serves)
      : Source({.id = id, .name = name}), serves_(std::move(serves)) {}

  std::string describe(const Address& address) const override {
    return fmt::format("{} {}", name(), address.container);
  }
  std::optional<Address> can_serve(const FragmentName& fragment) const override {
    if (!serves_(fragment)) return std::nullopt;
    return Address{fragment.stored.segment, fragment.stored.payload_offset};
  }

 private:
  const Serves serves_;
};

// "memory" has some fragments, "segment" has all of them.
inline void add_fake_sources(Sources& sources, FakeSource::Serves in_memory) {
  sources.add(std::make_unique<FakeSource>(SourceId::kMemory, "memory", std::move(in_memory)));
  sources.add(std::make_unique<FakeSource>(SourceId::kSegment, "segment",
                                           [](const FragmentName&) { return true; }));
}

}  // namespace ckptd
