// GlooMesh: the connections of a group, every rank with every other, over TCP.
//
// Gloo's own connectFullMesh cannot be interrupted: for each peer that died before it connected, it
// waits five times the configured timeout. Here a separate thread connects, while the caller's
// thread polls whether the group still exists. If it does not, closing the connections ends the
// wait at once. The thread has ended when connect() returns.
#pragma once

#include <gloo/context.h>

#include <memory>

#include "trainer/comm/comm.h"

namespace moetrain {

class GlooMesh final : public gloo::Context {
 public:
  // Errors are those of make_gloo_comm.
  static Result<std::shared_ptr<GlooMesh>> connect(const GlooOptions& options);

 private:
  GlooMesh(const GlooOptions& options, std::shared_ptr<gloo::transport::Device> device);
  Status form(const GlooOptions& options);
  Status publish(const GlooOptions& options);
  Result<std::vector<std::vector<char>>> look_up(const GlooOptions& options);
  // Waits until all are connected, or aborts.
  Status connect_all(const GlooOptions& options, const std::vector<std::vector<char>>& addresses);
};

}  // namespace moetrain
