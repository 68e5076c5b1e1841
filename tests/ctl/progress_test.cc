#include "client/ctl/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ckptctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

struct Written {
  Progress progress(bool terminal) {
    return Progress("scrub", {.terminal = terminal,
                              .write = [this](const std::string& text) { texts.push_back(text); },
                              .now = [this] { return now; }});
  }
  std::vector<std::string> texts;
  Progress::Clock::time_point now{};
};

TEST(Progress, LongWorkIsReportedWithoutTerminal) {
  Written written;
  Progress progress = written.progress(/*terminal=*/false);
  progress.start(4096);
  progress.add(1024);
  EXPECT_THAT(written.texts, IsEmpty()) << "it may end soon";
  written.now += Progress::kFirstLineAfter;
  progress.add(0);
  progress.add(1024);
  written.now += Progress::kLineEvery;
  progress.add(0);
  progress.finish();
  EXPECT_THAT(written.texts, ElementsAre("ckptctl: scrub: 1.0 KiB of 4.0 KiB\n",
                                         "ckptctl: scrub: 2.0 KiB of 4.0 KiB\n"));
}

TEST(Progress, TerminalShowsBarAtOnce) {
  Written written;
  Progress progress = written.progress(/*terminal=*/true);
  progress.start(4096);
  progress.finish();
  EXPECT_THAT(written.texts, ElementsAre(StartsWith("\rscrub ["), "\n"));
}

}  // namespace
}  // namespace ckptctl
