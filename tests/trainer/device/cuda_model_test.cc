// The model, its gradients and its optimizer on a GPU: every check of training, in tiny sizes.
#include "tests/kernels/check_test.h"
#include "tests/trainer/device/train_checks.h"

namespace moetrain {
namespace {

class TrainCheck : public ckpt::kernels::CheckTest {};

TEST_P(TrainCheck, FindsNothingWrong) { expect_nothing_wrong(); }

INSTANTIATE_TEST_SUITE_P(All, TrainCheck, testing::ValuesIn(train_checks(/*tiny=*/true)),
                         ckpt::kernels::check_name);

}  // namespace
}  // namespace moetrain
