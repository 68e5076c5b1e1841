#include "trainer/report/exchange_json.h"

namespace moetrain::report {

nlohmann::ordered_json exchange_json(const std::optional<ExpertExchange>& exchange) {
  if (!exchange) return nullptr;
  return {{"steps", exchange->steps},
          {"token_bytes", exchange->token_bytes},
          {"restore_bytes", exchange->restore_bytes},
          {"reshard_bytes", exchange->reshard_bytes},
          {"exposed_ms", exchange->exposed_ms},
          {"hidden_ms", exchange->hidden_ms},
          {"plan_waits", exchange->plan_waits},
          {"plan_wait_ms", exchange->plan_wait_ms},
          {"memory_bytes", exchange->memory_bytes},
          {"memory_bound", exchange->memory_bound}};
}

void read_exchange(Fields& top, std::optional<ExpertExchange>& exchange) {
  if (!top.has("exchange")) return;
  Fields object = top.object("exchange");
  exchange = {.steps = object.count("steps"),
              .token_bytes = object.number("token_bytes"),
              .restore_bytes = object.number("restore_bytes"),
              .reshard_bytes = object.number("reshard_bytes"),
              .exposed_ms = object.number("exposed_ms"),
              .hidden_ms = object.number("hidden_ms"),
              .plan_waits = object.count("plan_waits"),
              .plan_wait_ms = object.number("plan_wait_ms"),
              .memory_bytes = object.count("memory_bytes"),
              .memory_bound = object.count("memory_bound")};
  top.absorb(object);
}

}  // namespace moetrain::report
