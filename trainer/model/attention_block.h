// The attention half of a decoder layer: x += o_proj( attention( RMSNorm(x) ) ).
#pragma once

#include <cstdint>

#include "trainer/device/device.h"
#include "trainer/model/parameter.h"

namespace moetrain {

struct AttentionParameters {
  Parameter* q = nullptr;     // [heads * head_dim, hidden]
  Parameter* k = nullptr;     // [kv_heads * head_dim, hidden]
  Parameter* v = nullptr;     // [kv_heads * head_dim, hidden]
  Parameter* o = nullptr;     // [hidden, heads * head_dim]
  Parameter* norm = nullptr;  // [hidden]
};

// Cosine and sine for every position, each [seq_len, head_dim/2]; one for all layers.
struct RopeTable {
  Tensor cosine;
  Tensor sine;
  RopeTable(Device& device, const ModelConfig& config);
};

// Keeps the values of the last forward that backward needs. Local: no communication.
class AttentionBlock {
 public:
  AttentionBlock(Device& device, const ModelConfig& config, const RopeTable& rope)
      : device_(device), config_(config), rope_(rope) {}

  // x: [tokens, hidden], whole sequences; updated in place.
  void forward(const AttentionParameters& parameters, Tensor& x);

  // dx: gradient of forward's output in x; becomes the gradient of its input. Adds to the
  // parameters' gradients. Call this once per forward.
  void backward(const AttentionParameters& parameters, Tensor& dx);

 private:
  int64_t query_width() const { return int64_t{config_.heads} * config_.head_dim; }
  int64_t key_width() const { return int64_t{config_.kv_heads} * config_.head_dim; }
  ckpt::kernels::LinearShape to_query() const {
    return {tokens_, config_.hidden, query_width(), config_.seq_len};
  }
  ckpt::kernels::LinearShape to_key() const {
    return {tokens_, config_.hidden, key_width(), config_.seq_len};
  }
  ckpt::kernels::LinearShape to_hidden() const {
    return {tokens_, query_width(), config_.hidden, config_.seq_len};
  }
  void rotate(Tensor& q, Tensor& k, bool inverse) const;

  Device& device_;
  const ModelConfig& config_;
  const RopeTable& rope_;
  int64_t tokens_ = 0;
  Tensor input_;
  Tensor normed_;
  Tensor inverse_rms_;
  Tensor q_, k_, v_;  // q and k rotated
  Tensor probabilities_;
  Tensor context_;  // weighted values, before o_proj
  Tensor dq_, dk_, dv_, dcontext_, dnormed_, dout_;
};

}  // namespace moetrain
