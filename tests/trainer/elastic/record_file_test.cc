#include "trainer/elastic/record_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/support/temp_folder.h"

namespace moetrain {
namespace {

// Regression: it waited for a reader for ever, and no signal ended the run.
TEST(RecordFile, PipeWithoutReaderIsRefused) {
  const ckpt::test::TempFolder folder;
  const std::string pipe = folder.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  RecordFile file;
  const ckpt::Status opened = file.open(pipe);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ckpt::ErrorCode::kIo);
  EXPECT_THAT(opened.error().message,
              testing::HasSubstr(pipe + ": cannot write: no program reads this pipe"));
  EXPECT_FALSE(file.is_open());
}

}  // namespace
}  // namespace moetrain
