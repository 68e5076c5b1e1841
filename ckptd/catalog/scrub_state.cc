#include "ckptd/catalog/scrub_state.h"

#include "ckptd/catalog/catalog_impl.h"

namespace ckptd {

Result<std::optional<ScrubState>> Catalog::scrub_state() const {
  const auto value = impl_->get(Family::kMeta, std::string(keys::kScrub));
  CKPT_TRY(impl_->health);
  return value ? values::decode_scrub_state(*value) : std::nullopt;
}

Status Catalog::set_scrub_state(const ScrubState& state) {
  return impl_->put_unjournaled(keys::kScrub, values::encode(state));
}

Status Catalog::Impl::put_unjournaled(std::string_view key, std::string value) {
  CKPT_TRY(health);
  health = store->write({{Family::kMeta, std::string(key), std::move(value)}});
  store_closed = !health.ok();
  if (!health.ok()) ++write_errors;
  return health;
}

}  // namespace ckptd
