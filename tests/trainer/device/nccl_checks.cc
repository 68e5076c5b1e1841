// NCCL between the ranks of one GPU, which is one rank: that it connects, queues collectives on the
// device's stream, is aborted while one is queued, connects again, and ends.
#include <map>
#include <numeric>

#include "tests/trainer/device/check_parts.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/comm_nccl.h"
#include "trainer/device/cuda_device.h"

namespace moetrain {

namespace {

// The rendezvous of a group of one, which reads its own keys.
struct OwnKeys {
  std::map<std::string, std::vector<char>> values;

  Rendezvous callbacks() {
    Rendezvous rendezvous;
    rendezvous.set = [this](const std::string& key, const std::vector<char>& value) {
      values[key] = value;
      return Status();
    };
    rendezvous.get = [this](const std::string& key) -> Result<std::vector<char>> {
      const auto found = values.find(key);
      if (found != values.end()) return found->second;
      return ckpt::make_error(ckpt::ErrorCode::kNotFound, "key {}", key);
    };
    return rendezvous;
  }
};

// Connects the group of one; null, with a finding, if NCCL does not connect.
std::unique_ptr<Comm> connect(Checker& c, Device& device) {
  OwnKeys keys;
  auto comm = make_nccl_comm(std::move(make_local_comms(1).front()),
                             {.device = &device, .rendezvous = keys.callbacks()});
  c.expect(comm.ok(), comm.ok() ? "" : comm.error().message);
  return comm.ok() ? std::move(comm).value() : nullptr;
}

void expect_ok(Checker& c, const Status& status, const char* what) {
  c.expect(status.ok(), status.ok() ? "" : std::string(what) + ": " + status.error().message);
}

template <typename T>
void expect_content(Checker& c, const Tensor& tensor, const std::vector<T>& expected,
                    const char* what) {
  const Result<std::vector<T>> content = tensor.read<T>();
  if (!content.ok()) return c.expect(false, content.error().message);
  c.expect_equal(*content, expected, what);
}

// A sum over one rank changes nothing, and rows that a rank sends to itself arrive.
void check_collectives(Checker& c, Comm& comm, Device& device) {
  std::vector<float> values(5000);
  for (float& value : values) value = std::uniform_real_distribution<float>(-1, 1)(c.random);
  Tensor sum(device, Type::kFloat, values.size());
  sum.write(std::span<const float>(values));
  expect_ok(c, comm.all_reduce_sum(sum), "all_reduce");
  expect_content(c, sum, values, "a sum over one rank");

  std::vector<int64_t> rows(700);
  std::iota(rows.begin(), rows.end(), static_cast<int64_t>(c.random() >> 32));
  Tensor send(device, Type::kInt64, rows.size());
  send.write(std::span<const int64_t>(rows));
  Tensor receive(device, Type::kInt64, rows.size());
  receive.zero();
  const std::vector<int64_t> counts{static_cast<int64_t>(rows.size())};
  expect_ok(c, comm.all_to_all_v(send, counts, receive, counts), "all_to_all_v");
  send.zero();  // runs after the queued exchange
  expect_content(c, receive, rows, "what a rank sends to itself");
}

}  // namespace

void check_nccl_group_of_one(Checker& c) {
  const auto device = make_cuda_device({.timeout_ms = kTimeoutMs});
  if (!device.ok()) return c.expect(false, device.error().message);
  for (const char* const group : {"first group", "second group, after an abort"}) {
    c.now(group);
    const std::unique_ptr<Comm> comm = connect(c, **device);
    if (comm == nullptr) return;
    check_collectives(c, *comm, **device);
    if (std::string_view(group) != "first group") continue;  // ends in agreement
    Tensor tensor(**device, Type::kFloat, 100);
    tensor.zero();
    expect_ok(c, comm->all_reduce_sum(tensor), "a collective before the abort");
    comm->abort("a member was lost");
    expect_ok(c, (*device)->synchronize(), "the stream after an abort");
    const Status later = comm->all_reduce_sum(tensor);
    c.expect(!later.ok(), "a collective of a group that was aborted says it is done");
  }
}

}  // namespace moetrain
