#include "trainer/report/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/report/text.h"

namespace moetrain::report {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

// A bar with its own clock, writing into a string.
class Fixture {
 public:
  ProgressBar bar(bool tty, int columns = 80, bool unicode = true) {
    ProgressBar::Options options;
    options.label = "tiny";
    options.total = 100;
    options.tty = tty;
    options.columns = columns;
    options.unicode = unicode;
    options.write = [this](std::string_view bytes) { text += bytes; };
    options.now = [this] { return now; };
    return ProgressBar(std::move(options));
  }
  std::string take() { return std::exchange(text, {}); }

  std::string text;
  Clock::time_point now{};
};

TEST(ProgressLines, AreFewWithoutATerminal) {
  Fixture fixture;
  auto bar = fixture.bar(/*tty=*/false);
  for (uint64_t step = 0; step <= 100; ++step) {
    bar.update(step, "loss 2.5");
    fixture.now += milliseconds(100);
  }
  bar.finish();
  bar.finish();
  EXPECT_EQ(fixture.text,
            "tiny: step 0/100, loss 2.5\n"
            "tiny: step 50/100, loss 2.5\n"
            "tiny: step 100/100, loss 2.5\n");
}

TEST(ProgressLines, HoldNoControlCharacters) {
  Fixture fixture;
  auto bar = fixture.bar(/*tty=*/false);
  bar.update(1, "");
  bar.interrupt("rank 2 lost");
  bar.finish();
  EXPECT_EQ(fixture.text, "tiny: step 1/100\nrank 2 lost\n");
}

TEST(ProgressBarTest, RedrawsInPlaceAndNotTooOften) {
  Fixture fixture;
  auto bar = fixture.bar(/*tty=*/true);
  bar.update(0, "loss 3.0");
  EXPECT_THAT(fixture.take(), testing::StartsWith("\rtiny "));
  bar.update(1, "loss 2.9");
  EXPECT_EQ(fixture.take(), "");
  fixture.now += milliseconds(1000);
  bar.update(50, "loss 2.8");
  const std::string drawn = fixture.take();
  EXPECT_THAT(drawn, HasSubstr("50/100  loss 2.8  1.0 s left"));
  EXPECT_THAT(drawn, Not(HasSubstr("\n")));
  bar.interrupt("rank 2 lost");
  EXPECT_THAT(fixture.take(), testing::StartsWith("\r\x1b[Krank 2 lost\ntiny "));
  bar.finish();
  EXPECT_THAT(fixture.take(), testing::EndsWith("\n"));
}

TEST(ProgressBarTest, GoesBackWhenStepsAreRedone) {
  Fixture fixture;
  auto bar = fixture.bar(/*tty=*/true);
  bar.update(40, "");
  fixture.now += milliseconds(500);
  bar.update(30, "");
  EXPECT_THAT(fixture.text, HasSubstr(" 30/100"));
}

TEST(ProgressBarTest, FitsEveryWidth) {
  for (int columns = 4; columns < 200; columns += 3) {
    for (const bool unicode : {true, false}) {
      Fixture fixture;
      auto bar = fixture.bar(/*tty=*/true, columns, unicode);
      bar.update(77, "loss 1.234");
      std::string line = fixture.take();
      line = line.substr(1, line.find('\x1b') - 1);
      ASSERT_LT(display_width(line), columns);
    }
  }
}

TEST(ProgressBarTest, FillsByEighths) {
  Fixture fixture;
  auto bar = fixture.bar(/*tty=*/true, 200);
  bar.update(0, "");
  EXPECT_THAT(fixture.take(), Not(HasSubstr("\u2588")));
  fixture.now += milliseconds(1000);
  bar.update(1, "");  // 32 cells x 8 eighths x 1 % = 2 eighths
  EXPECT_THAT(fixture.take(), HasSubstr("\u2595\u258e "));
  fixture.now += milliseconds(1000);
  bar.update(100, "");
  EXPECT_THAT(fixture.take(), HasSubstr("\u2588\u258f"));
}

TEST(Text, CountsAndClipsCodePoints) {
  EXPECT_EQ(display_width("a\u2588\u2801"), 3);
  EXPECT_EQ(clip("a\u2588\u2801", 2), "a\u2588");
  EXPECT_EQ(clip("ab", 5), "ab");
  EXPECT_EQ(clip("ab", -1), "");
  std::string text;
  append_utf8(text, 'a');
  append_utf8(text, 0xe9);
  append_utf8(text, 0x28ff);
  EXPECT_EQ(text, "a\u00e9\u28ff");
}

}  // namespace
}  // namespace moetrain::report
