#include "trainer/elastic/rank_device.h"

#include <sched.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

#include "trainer/device/cuda_device.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

constexpr std::string_view kCuda = "cuda";

struct Choice {
  bool cuda = false;
  std::optional<int> index;
};

Result<Choice> parse(const std::string& text) {
  if (text == "cpu") return Choice{};
  if (text == kCuda) return Choice{.cuda = true};
  const std::string_view whole = text;
  if (whole.starts_with("cuda:")) {
    const std::string_view number = whole.substr(kCuda.size() + 1);
    int index = -1;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
    if (error == std::errc() && end == number.data() + number.size() && index >= 0) {
      return Choice{.cuda = true, .index = index};
    }
  }
  return make_error(ErrorCode::kInvalidArgument, "--device {}: must be cpu, cuda or cuda:N", text);
}

}  // namespace

Status check_device(const std::string& text, Precision precision) {
  CKPT_ASSIGN(const Choice choice, parse(text));
  if (choice.cuda || precision == Precision::kFp32) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "--precision bf16: only with --device cuda; --device {} computes in fp32",
                    text);
}

Result<std::unique_ptr<Device>> make_rank_device(const std::string& text, Precision precision,
                                                 uint32_t gpu, uint32_t timeout_ms) {
  CKPT_TRY(check_device(text, precision));
  CKPT_ASSIGN(const Choice choice, parse(text));
  if (!choice.cuda) return make_cpu_device();
  std::string reason;
  const int count = count_cuda_devices(&reason);
  if (count == 0) {
    return make_error(ErrorCode::kUnavailable, "--device {}: {}", text, reason);
  }
  const int mine = static_cast<int>(gpu % static_cast<uint32_t>(count));
  return make_cuda_device(
      {.index = choice.index.value_or(mine), .precision = precision, .timeout_ms = timeout_ms});
}

Status pin_to_cpu(uint32_t number) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) == 0) {
    return ckpt::make_error(ckpt::ErrorCode::kIo, "--pin: {}", std::strerror(errno));
  }
  uint32_t skip = number % static_cast<uint32_t>(CPU_COUNT(&allowed));
  int cpu = 0;
  while (!CPU_ISSET(cpu, &allowed) || skip-- > 0) ++cpu;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  if (::sched_setaffinity(0, sizeof(one), &one) == 0) return {};
  return ckpt::make_error(ckpt::ErrorCode::kIo, "--pin: CPU {}: {}", cpu, std::strerror(errno));
}

}  // namespace moetrain
