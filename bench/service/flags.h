// Flags that several commands of ckptbench share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "bench/service/save.h"

namespace bench {

// A flag whose value is a size of whole blocks, at least one.
void add_size(CLI::App* command, const std::string& flag, uint64_t* to, const std::string& help);

// Adds the flags that shape a snapshot: --bytes, --slab, --fragment, --sessions.
void add_shape(CLI::App* command, SaveShape& shape);

void add_saves_per_sample(CLI::App* command, SaveOptions& options);

template <typename Options>
void add_place(CLI::App* command, Options& options, std::string* engine, bool* as_json) {
  command->add_option("--dir", options.directory, "a directory on the disk to measure")
      ->capture_default_str()
      ->check(CLI::ExistingDirectory);
  command->add_option("--io", *engine, "uring or pwritev")
      ->capture_default_str()
      ->check(CLI::IsMember({"uring", "pwritev"}));
  command->add_flag("--json", *as_json, "one JSON document on stdout");
}

template <typename Options>
void add_common(CLI::App* command, Options& options, std::string* engine, bool* as_json) {
  command->add_option("--pairs", options.pairs.at_least, "measured pairs, at least")
      ->capture_default_str()
      ->check(CLI::Range(11, 1000));
  command
      ->add_option("--pairs-max", options.pairs.at_most,
                   "pairs at most: more are made while the limit does not repeat itself")
      ->capture_default_str()
      ->check(CLI::Range(11, 1000));
  command
      ->add_option("--seconds", options.pairs.seconds_more,
                   "begin none of these later, from the end of --pairs")
      ->capture_default_str()
      ->check(CLI::Range(0, 86'400));
  add_place(command, options, engine, as_json);
}

}  // namespace bench
