// The main function of GoogleTest programs that may find no GPU: a program of which a test was
// skipped ends with a code of its own, which CTest counts as skipped; one of which a test failed
// has failed, whatever else was skipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

int main(int count, char** arguments) {
  constexpr int kSkippedExitCode = 77;  // as in cmake/CkptTargets.cmake
  testing::InitGoogleMock(&count, arguments);
  const int failed = RUN_ALL_TESTS();
  if (failed != 0) return failed;
  return testing::UnitTest::GetInstance()->skipped_test_count() > 0 ? kSkippedExitCode : 0;
}
