// ckptctl against a real daemon that has a small run.
#pragma once

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/client/trainers.h"

namespace ckpt::test {

using Json = nlohmann::json;

// A run of two commits: a model tensor, its optimizer state, and the trainer's own unit.
class Ctl : public testing::Test {
 protected:
  void SetUp() override {
    auto session = train(as_rank(0, 1));
    ASSERT_OK(session);
    for (uint64_t step : {10, 20}) commit(*session, step);
    ASSERT_OK(session->leave());
  }
  // A trainer of the run, with its units registered and its epoch open.
  client::Outcome<client::Session> train(const client::JoinOptions& join) {
    client::OpenOptions options;
    options.socket = daemon_.socket();
    options.run = "tiny";
    options.arena_bytes = 4 << 20;
    options.slab_bytes = 256 << 10;
    auto session = client::Session::open(options);
    if (!session) return session;
    const std::vector<client::UnitInfo> units = {
        {"layers.0.experts.1.weights", 0, 1, "weights", 4096, {{"model.w", "F32", {1024}, 0}}},
        {"layers.0.experts.1.optimizer",
         0,
         1,
         "optimizer",
         4096,
         {{"optimizer.model.w.m", "F32", {1024}, 0}}},
        {"trainer", -1, -1, "", 8, {{"step", "U64", {}, 0}}}};
    if (auto done = session->register_units(units, R"({"hf_config": {"model_type": "mixtral"}})");
        !done) {
      return done.error();
    }
    if (auto joined = session->join(join); !joined) return joined.error();
    return session;
  }
  void commit(client::Session& session, uint64_t step, std::vector<uint32_t> memory_units = {}) {
    client::SnapshotOptions plan;
    plan.step = step;
    plan.units = {0, 1, 2};
    plan.fragments = {{0, 0, 0, 4096}, {0, 1, 0, 4096}, {0, 2, 0, 8}};
    plan.memory_units = std::move(memory_units);
    plan.metrics = {{"loss", 2.5}};
    auto snapshot = session.begin(plan);
    ASSERT_OK(snapshot);
    // Weights grow with the step, so that the norm of the change is known; the optimizer's do not.
    const std::vector<float> weights(1024, static_cast<float>(step));
    const std::vector<float> optimizer(1024, 1.0f);
    ASSERT_OK(snapshot->write(0, 0, weights.data(), 4096));
    ASSERT_OK(snapshot->write(1, 0, optimizer.data(), 4096));
    ASSERT_OK(snapshot->write(2, 0, &step, 8));
    ASSERT_OK(snapshot->end());
    ASSERT_OK(snapshot->wait(CKPT_LEVEL_DURABLE, 60'000));
  }
  Finished ctl(std::vector<std::string> arguments, const std::string& run_variable = {}) const {
    arguments.insert(arguments.begin(), program("ckptctl"));
    std::vector<std::string> environment = {"CKPTD_SOCKET=unix:" + daemon_.socket()};
    if (!run_variable.empty()) environment.push_back("CKPTD_RUN=" + run_variable);
    return run_program(arguments, environment);
  }
  Json json(std::vector<std::string> arguments, int exit_code = 0) const {
    arguments.push_back("--json");
    const Finished finished = ctl(arguments);
    EXPECT_EQ(finished.exit_code, exit_code) << finished.err;
    const Json document = Json::parse(finished.out, nullptr, false);
    EXPECT_FALSE(document.is_discarded()) << finished.out;
    return document;
  }
  static std::set<std::string> members(const Json& object) {
    std::set<std::string> names;
    for (const auto& [name, value] : object.items()) names.insert(name);
    return names;
  }
  void expect_members(const Json& object, const std::set<std::string>& wanted) {
    const auto found = members(object);
    for (const std::string& name : wanted) EXPECT_TRUE(found.contains(name)) << name;
  }
  static std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // The weights of a step are found by their bytes: the step as a float, over and over.
  void damage_weights_of(float step) {
    std::string repeated(3 * sizeof step, 0);
    for (size_t i = 0; i < 3; ++i) std::memcpy(&repeated[i * sizeof step], &step, sizeof step);
    bool flipped = false;
    for (const auto& entry : std::filesystem::directory_iterator(daemon_.data() + "/segments")) {
      const size_t at = read(entry.path().string()).find(repeated);
      if (at == std::string::npos) continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(at));
      file.put('\x01');
      flipped = true;
    }
    ASSERT_TRUE(flipped);
  }
  DaemonProcess daemon_;
};

}  // namespace ckpt::test
