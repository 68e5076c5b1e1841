#include "bench/service/flags.h"

#include <fmt/format.h>

#include "formats/base/parse.h"
#include "formats/segment.h"

namespace bench {

void add_size(CLI::App* command, const std::string& flag, uint64_t* to, const std::string& help) {
  const auto parse = [flag, to](const std::string& text) {
    const auto parsed = ckpt::base::parse_size(text);
    if (!parsed.ok()) throw CLI::ValidationError(flag, parsed.error().message);
    if (*parsed == 0 || *parsed % ckpt::kBlockBytes != 0) {
      throw CLI::ValidationError(
          flag, fmt::format("{} is not a positive multiple of {} bytes", text, ckpt::kBlockBytes));
    }
    *to = *parsed;
  };
  command->add_option_function<std::string>(flag, parse, help)->type_name("SIZE");
}

void add_shape(CLI::App* command, SaveShape& shape) {
  add_size(command, "--bytes", &shape.bytes, "bytes of the snapshot (2GiB)");
  add_size(command, "--slab", &shape.slab_bytes, "slab size (64MiB)");
  add_size(command, "--fragment", &shape.fragment_bytes, "size of each unit (16MiB)");
  command->add_option("--sessions", shape.sessions, "trainer ranks")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  command->final_callback([&shape] {
    if (shape.bytes % (shape.sessions * shape.fragment_bytes) == 0) return;
    throw CLI::ValidationError("--bytes", "not a multiple of --sessions times --fragment");
  });
}

void add_saves_per_sample(CLI::App* command, SaveOptions& options) {
  command
      ->add_option("--per-sample", options.saves_per_sample,
                   "saves, and files of the limit, that make one sample")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
}

}  // namespace bench
