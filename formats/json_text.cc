#include "formats/json_text.h"

#include <nlohmann/json.hpp>

namespace ckpt {
namespace {

using nlohmann::json;

// Counts how deep the walk is; false ends it.
class DepthCheck : public nlohmann::json_sax<json> {
 public:
  explicit DepthCheck(size_t depth_max) : depth_max_(depth_max) {}
  bool too_deep() const { return depth_ > depth_max_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool start_object(size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool enter() { return ++depth_ <= depth_max_; }
  bool leave() {
    --depth_;
    return true;
  }
  const size_t depth_max_;
  size_t depth_ = 0;
};

}  // namespace

Status check_json(std::string_view text, size_t depth_max) {
  DepthCheck check(depth_max);
  if (json::sax_parse(text, &check)) return ok_status();
  if (check.too_deep()) {
    return make_error(ErrorCode::kInvalidArgument, "nested more than {} deep", depth_max);
  }
  return make_error(ErrorCode::kInvalidArgument, "not JSON");
}

}  // namespace ckpt
