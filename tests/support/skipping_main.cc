// The main function of GoogleTest programs that may find no GPU. If a test was skipped, the exit
// code is one that CTest counts as skipped. If a test failed, the program fails, whatever was
// skipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

int main(int count, char** arguments) {
  constexpr int kSkippedExitCode = 77;  // as in cmake/CkptTargets.cmake
  testing::InitGoogleMock(&count, arguments);
  const int failed = RUN_ALL_TESTS();
  if (failed != 0) return failed;
  return testing::UnitTest::GetInstance()->skipped_test_count() > 0 ? kSkippedExitCode : 0;
}
