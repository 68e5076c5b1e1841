// ShardedModel: costs of a cluster that trains mixture-of-experts models with experts sharded over
// all ranks. Every number has a name in a TOML file, a unit and a range; costs.h has the formulas,
// bench/results/simulation-sharded.md lists the shipped numbers with sources.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/result.h"

namespace moetrain::simulate::sharded {

using ckpt::Result;
using ckpt::Status;

// A model that is trained: [shape.NAME].
struct Shape {
  std::string name;
  double layers = 1;           // all with experts
  double hidden = 1;           // width of a token
  double ffn = 1;              // inner width of an expert, which has three matrices hidden x ffn
  double experts = 1;          // of a layer
  double top_k = 1;            // experts for each token
  double slots = 1;            // C: experts that a rank computes in a layer
  double tensor_parallel = 1;  // of Megatron: ranks that share the attention of a sequence
  double zipf = 0;             // popularity of the k-th most popular expert goes with k^-zipf

  double expert_parameters() const { return 3 * hidden * ffn; }
};

struct ShardedModel {
  // [cluster]
  double nodes = 1;
  double ranks_per_node = 1;

  // [training]
  double sequences = 1;           // of a step, over all ranks
  double sequences_per_rank = 1;  // of a rank in a micro-batch, where experts are fully sharded
  double sequence_tokens = 1;
  double vocabulary = 1;
  double key_value_width = 1;  // of the attention's keys, and of its values
  double recompute = 1;        // forward passes that run again before backward: 0 or 1
  double weight_bytes = 2;     // of a parameter, as ranks restore it
  double gradient_bytes = 2;   // of a parameter, as gradients go back to the owners
  double token_bytes = 2;      // of each of the `hidden` values of a token

  // [megatron]: where it differs
  double megatron_sequences_per_group = 1;  // of a tensor parallel group in a micro-batch
  double megatron_recompute = 0;
  double megatron_gradient_bytes = 4;

  // [compute], of one rank
  double expert_flops_per_s = 1;
  double expert_fixed_us = 0;  // of the experts of a layer, forward, whatever the tokens
  double dense_flops_per_s = 1;
  double optimizer_bytes_per_parameter = 0;  // that an update reads and writes
  double memory_bytes_per_s = 1;
  double routing_us = 0;  // of a step: which replica a token goes to

  // [network]
  double within_bytes_per_s = 1;   // of a rank, to ranks of its node
  double between_bytes_per_s = 1;  // of a node, to other nodes
  double latency_us = 0;           // of a collective

  // [load]
  double sequence_noise = 0;  // standard deviation of the log of an expert's share in a sequence
  double seed = 1;

  std::vector<Shape> shapes;

  uint32_t ranks() const { return static_cast<uint32_t>(nodes * ranks_per_node); }
};

// A parameter of the cluster, or (section "shape") of a model that is trained.
struct ShardedParameter {
  std::string_view section, key;
  double ShardedModel::*field;
  double Shape::*shape_field;
  double low, high;  // what a file may say
  bool whole;        // a count
  bool vary;         // sensitivity changes it
};
std::span<const ShardedParameter> sharded_parameters();

// kInvalidArgument, with file, line and key: as parse_model() in ../model_file.h; no shape at all;
// numbers that do not fit together.
Result<ShardedModel> parse_sharded_model(std::string_view text, const std::string& origin);
Result<ShardedModel> read_sharded_model(const std::string& path);

// "section.key=value" on top of the file; "shape.key=value" holds for all shapes. Checked like it.
Status set_parameter(ShardedModel& model, std::string_view setting);

// Checks ranges and relations: the ranks' slots hold all experts, and so do those of a Megatron
// group on one node; tensor parallel groups divide a node; micro-batches divide the step's
// sequences; top_k is at most the experts. The message names the key. kInvalidArgument.
Status validate(const ShardedModel& model);

// Ranks of an expert parallel group of Megatron: a node, or as many ranks of it as divide the
// experts.
uint32_t megatron_expert_ranks(const ShardedModel& model, const Shape& shape);

// kInvalidArgument names all shapes.
Result<const Shape*> find_shape(const ShardedModel& model, std::string_view name);

}  // namespace moetrain::simulate::sharded
