#include "ckptd/catalog/scrub_state.h"

#include "ckptd/catalog/catalog_impl.h"

namespace ckptd {

std::optional<ScrubState> Catalog::scrub_state() const {
  const auto value = impl_->get(Family::kMeta, std::string(keys::kScrub));
  return value ? values::decode_scrub_state(*value) : std::nullopt;
}

Status Catalog::set_scrub_state(const ScrubState& state) {
  CKPT_TRY(impl_->health);
  impl_->health =
      impl_->store->write({{Family::kMeta, std::string(keys::kScrub), values::encode(state)}});
  impl_->store_closed = !impl_->health.ok();
  return impl_->health;
}

}  // namespace ckptd
