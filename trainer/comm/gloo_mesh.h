// GlooMesh: the connections of a group, every rank with every other, over TCP.
//
// Gloo's own connectFullMesh cannot be interrupted: a peer that dies before it has connected is
// waited for, five times the timeout that was set, peer after peer. Here the connections are made
// on a thread of their own while the caller's asks whether the group still exists, and closing them
// ends the wait at once. The thread is gone when connect() returns.
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
  // Waits until all are connected, or cuts it short.
  Status connect_all(const GlooOptions& options, const std::vector<std::vector<char>>& addresses);
};

}  // namespace moetrain
