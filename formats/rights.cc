#include "formats/rights.h"

#include <array>

#include "formats/base/printable.h"

namespace ckpt {
namespace {

constexpr std::array kAllRights = {Right::kRead, Right::kCommit, Right::kPrune};

}  // namespace

const char* right_name(Right right) {
  if (right == Right::kRead) return "read";
  return right == Right::kCommit ? "commit" : "prune";
}

Result<Rights> parse_rights(const std::vector<std::string>& names) {
  Rights rights;
  for (const std::string& name : names) {
    if (name == "read") {
      rights.read = true;
    } else if (name == "commit") {
      rights.commit = true;
    } else if (name == "prune") {
      rights.prune = true;
    } else {
      return make_error(ErrorCode::kInvalidArgument, "right {}: read, commit or prune",
                        base::printable(name));
    }
  }
  rights.read = rights.any();
  return rights;
}

std::vector<std::string> right_names(const Rights& rights) {
  std::vector<std::string> names;
  for (const Right right : kAllRights) {
    if (rights.has(right)) names.emplace_back(right_name(right));
  }
  return names;
}

Rights from_fb(const fb::GrantedT& record) {
  Rights rights{.read = record.read, .commit = record.commit, .prune = record.prune};
  rights.read = rights.any();
  return rights;
}

fb::GrantedT to_fb(uint32_t uid, const Rights& rights) {
  fb::GrantedT record;
  record.uid = uid;
  record.read = rights.any();
  record.commit = rights.commit;
  record.prune = rights.prune;
  return record;
}

}  // namespace ckpt
