// ParcelSource: a source for tests, added as any source is: one class, and one registration. It
// delivers the bytes of any version, in reads without blocks, and can misbehave.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ckptd/io/executor.h"
#include "ckptd/sources/source.h"

namespace ckptd {

class ParcelSource : public Source {
 public:
  enum class Mode : uint8_t {
    kTrue,
    kLies,     // wrong bytes
    kFails,    // the bytes are lost
    kRefuses,  // the bytes may be intact
    kSilent,   // no answer before cancel()
  };
  // All bytes of a unit as of a commit.
  using Content = std::function<std::vector<std::byte>(ckpt::UnitId, ViewPoint)>;

  ParcelSource(Executor& executor, Content content);
  ~ParcelSource() override;  // asserts that every read has ended

  std::string describe(const Address& address) const override;
  std::optional<Address> can_serve(const FragmentName& fragment) const override;
  void open(const Address& address, std::function<void(Result<SourceLease>)> then) override;
  ReadTicket read(const SourceLease& lease, SourceRead read) override;
  void cancel(ReadTicket read) override;

  Mode mode = Mode::kTrue;
  size_t reads = 0;
  size_t cancels = 0;

 private:
  // Container of the addresses: the position of this version in the list.
  struct Version {
    ckpt::UnitId unit = 0;
    ViewPoint point;
    auto operator<=>(const Version&) const = default;
  };
  uint64_t answer(const std::vector<std::byte>& all, const SourceRead& read) const;

  Executor& executor_;
  const Content content_;
  mutable std::vector<Version> versions_;
  std::map<ReadTicket, SourceRead> silent_;
  ReadTicket last_ = 0;
};

}  // namespace ckptd
