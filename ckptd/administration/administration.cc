#include "ckptd/administration/administration.h"

#include <utility>

#include "ckptd/administration/rules.h"
#include "ckptd/administration/tags.h"

namespace ckptd {

Administration::Administration(Needs needs)
    : queue_({.history = needs.history,
              .turn = needs.turn,
              .sessions = needs.sessions,
              .replies = needs.replies,
              .gate = needs.gate,
              .execute = [this](const Session& session,
                                const RequestedChange& change) { execute(session, change); },
              .register_replacing = std::move(needs.register_replacing)}),
      context_{.history = needs.history,
               .turn = needs.turn,
               .queue = queue_,
               .query_context = std::move(needs.query_context)},
      removals_(context_, needs.sessions, needs.gate, std::move(needs.removals)) {}

bool Administration::handles(std::string_view verb) {
  return verb == "tag" || verb == "pin" || verb == "keep" || verb == "prune" || verb == "rm" ||
         verb == "grant";
}

void Administration::execute(const Session& session, const RequestedChange& change) {
  if (change.verb == "tag") {
    change_tag(context_, session, change);
  } else if (change.verb == "pin") {
    change_pin(context_, session, change);
  } else if (change.verb == "keep") {
    change_rules(context_, session, change);
  } else if (change.verb == "grant") {
    change_grant(context_, session, change);
  } else if (change.verb == "rm") {
    removals_.remove(session, change);
  } else {
    removals_.prune(session, change);
  }
}

}  // namespace ckptd
