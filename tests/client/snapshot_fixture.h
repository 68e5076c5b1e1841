// A session of one rank with a fake daemon, and the snapshots it takes as that daemon sees them.
#pragma once

#include <algorithm>

#include "formats/base/checked.h"
#include "formats/base/crc32c.h"
#include "formats/base/ids.h"
#include "tests/client/client_fixture.h"
#include "tests/client/fake_daemon.h"

namespace ckpt::test {

using client::Session;
using client::Snapshot;
using client::SnapshotOptions;

inline constexpr uint64_t kSlabBytes = 256 << 10;

class SnapshotTest : public testing::Test {
 protected:
  void start(FakeDaemon::Options options = {}, FakeDaemon::Override answer = {}) {
    daemon_ = std::make_unique<FakeDaemon>(socket_, options, std::move(answer));
  }
  // Opens a session of the only rank; the plan has one fragment for each unit.
  void open(const std::vector<uint64_t>& unit_bytes) {
    client::OpenOptions options;
    options.socket = socket_;
    options.run = "tiny";
    options.alarms = alarms_;
    options.interrupted = interrupted_;
    options.interrupted_context = this;
    auto opened = Session::open(options);
    ASSERT_OK(opened);
    session_.emplace(std::move(opened).value());
    std::vector<client::UnitInfo> units;
    for (uint64_t bytes : unit_bytes) {
      const auto id = static_cast<uint32_t>(units.size());
      units.push_back(flat_unit("unit" + std::to_string(id), bytes));
      plan_.units.push_back(id);
      plan_.fragments.push_back({0, id, 0, bytes});
      data_.push_back(random_bytes(bytes, id));
    }
    plan_.step = 1200;
    ASSERT_OK(session_->register_units(units));
    ASSERT_OK(session_->join({.rank = 0, .size = 1}));
  }
  Snapshot begin() {
    auto begun = session_->begin(plan_);
    EXPECT_TRUE(begun.ok()) << begun.error().message;
    return std::move(begun).value();
  }
  void write(Snapshot& snapshot, uint32_t unit) {
    ASSERT_OK(snapshot.write(unit, 0, data_[unit].data(), data_[unit].size()));
  }
  std::vector<fb::SealSlabT> seals(size_t count) {
    std::vector<fb::SealSlabT> seals;
    for (auto& message : daemon_->wait_for(fb::MessageBody::SealSlab, count)) {
      seals.push_back(std::move(*message.body.AsSealSlab()));
    }
    return seals;
  }
  void announce(FakeDaemon::Peer& peer, fb::SnapshotLevel level,
                const std::string& reason = "slab 0 was changed after its seal") const {
    fb::SnapshotStateT state;
    state.epoch = 1;
    state.step = 1200;
    state.level = level;
    state.code = static_cast<int>(ErrorCode::kCorrupt);
    state.reason = reason;
    peer.send(std::move(state));
  }
  // Joins the sealed bytes and compares them with the written state.
  void expect_payload(const std::vector<fb::SealSlabT>& seals);

  TempFolder folder_;
  std::string socket_ = folder_.path("ckptd.sock");
  std::unique_ptr<FakeDaemon> daemon_;
  std::optional<Session> session_;
  ckpt_alarms alarms_ = CKPT_ALARMS_DEFAULT;
  int (*interrupted_)(void* test) = nullptr;
  SnapshotOptions plan_;
  std::vector<std::vector<char>> data_;
};

inline void SnapshotTest::expect_payload(const std::vector<fb::SealSlabT>& seals) {
  std::vector<std::vector<char>> found;
  for (const auto& bytes : data_) found.emplace_back(bytes.size());
  for (const fb::SealSlabT& seal : seals) {
    const MutableByteView slab = daemon_->slab(seal.slab);
    uint64_t end = 0;
    for (const fb::SealedFragment& fragment : seal.fragments) {
      ASSERT_GE(fragment.payload_offset(), end);
      EXPECT_TRUE(base::all_zero(slab.subspan(end, fragment.payload_offset() - end)));
      if (fragment.length() >= kAlignedFragmentBytes) {
        EXPECT_EQ(fragment.payload_offset() % kBlockBytes, 0u);
      }
      const auto bytes = slab.subspan(fragment.payload_offset(), fragment.length());
      EXPECT_EQ(base::crc32c(bytes), fragment.crc32c());
      std::memcpy(found[fragment.unit()].data() + fragment.offset(), bytes.data(), bytes.size());
      end = fragment.payload_offset() + fragment.length();
    }
    EXPECT_EQ(seal.payload_bytes, end);
    const uint64_t padded = base::align_up(end, kBlockBytes);
    EXPECT_TRUE(base::all_zero(slab.subspan(end, padded - end)));
  }
  EXPECT_EQ(found, data_);
}

}  // namespace ckpt::test
