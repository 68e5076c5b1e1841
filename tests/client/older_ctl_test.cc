// ckptctl with a daemon of the version before, which refuses arguments that it does not know.
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/client/client_fixture.h"
#include "tests/client/fake_daemon.h"
#include "tests/support/daemon_process.h"

namespace ckpt::test {
namespace {

using testing::HasSubstr;

// Answers queries as a daemon does that knows these arguments of the verbs, and no others.
class OlderQueries {
 public:
  OlderQueries(std::vector<std::string> known, std::string answer)
      : known_(std::move(known)), answer_(std::move(answer)) {}

  bool answer(FakeDaemon::Peer& peer, const fb::MessageT& message) const {
    const fb::QueryT* question = message.body.AsQuery();
    if (question == nullptr) return false;
    fb::QueryReplyT reply;
    reply.request = question->request;
    reply.json = answer_;
    const auto arguments = nlohmann::json::parse(question->args);
    for (const auto& [name, value] : arguments.items()) {
      if (std::ranges::find(known_, name) != known_.end()) continue;
      reply.exit_code = 2;
      reply.json = nlohmann::json{{"error", "unknown argument " + name}}.dump();
    }
    peer.send(std::move(reply));
    return true;
  }

 private:
  const std::vector<std::string> known_;
  const std::string answer_;
};

Finished ask(const OlderQueries& queries, std::vector<std::string> arguments) {
  const TempFolder folder;
  const FakeDaemon daemon(folder.path("ckptd.sock"), {},
                          [&](FakeDaemon::Peer& peer, const fb::MessageT& message) {
                            return queries.answer(peer, message);
                          });
  arguments.insert(arguments.begin(), program("ckptctl"));
  return run_program(arguments, {"CKPTD_SOCKET=unix:" + folder.path("ckptd.sock")});
}

TEST(OlderCtl, LogListsAndWarnsOnOlderDaemon) {
  const OlderQueries queries(
      {"target", "limit", "before", "deleted", "page", "page_bytes"},
      R"({"next":null,"lists":[],"document":[{"name":"tiny@20","step":20,"lineage":1}]})");
  const Finished run = ask(queries, {"log", "tiny"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("tiny@20"));
  EXPECT_THAT(run.err, HasSubstr("warning: this ckptd is older"));
  EXPECT_THAT(run.err, HasSubstr("the commits of every lineage; upgrade ckptd"));
  const Finished lineage = ask(queries, {"log", "tiny~1"});
  EXPECT_EQ(lineage.exit_code, 0) << lineage.err;
  EXPECT_THAT(lineage.err, HasSubstr("this lineage without its ancestors"));
  const Finished all = ask(queries, {"log", "tiny", "--all"});
  EXPECT_EQ(all.exit_code, 0);
  EXPECT_EQ(all.err, "") << "the older daemon does what is asked";
}

TEST(OlderCtl, ForcedPruneIsOrdinaryPruneOnOlderDaemon) {
  const OlderQueries queries({"target", "rules", "dry_run", "page", "page_bytes"},
                             R"({"run":"tiny","dry_run":false,"kept":[],"removed":[],"bytes":0})");
  const Finished pruned = ask(queries, {"prune", "tiny", "--keep-last", "1", "--force", "--yes"});
  EXPECT_EQ(pruned.exit_code, 0) << pruned.err;
  EXPECT_THAT(pruned.out, HasSubstr("0 kept, 0 removed"));
  EXPECT_THAT(pruned.err, HasSubstr("--force is not needed"));
}

}  // namespace
}  // namespace ckpt::test
