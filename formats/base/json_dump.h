// Prints a JSON document as text, for any bytes in its strings. All documents, reports, events,
// metrics and logs are printed by this.
//
// A string may hold a path or a name that is not UTF-8; nlohmann's dump() throws then. Here each
// such byte becomes U+FFFD. Characters that a terminal would obey become \u escapes.
#pragma once

#include <string>

#include "formats/base/printable.h"

namespace ckpt::base {

// `indent` -1: one line. A template, so that formats/base needs no JSON library.
template <typename JsonT>
std::string dump_json(const JsonT& document, int indent = -1) {
  return escaped_json(document.dump(indent, ' ', false, JsonT::error_handler_t::replace));
}

}  // namespace ckpt::base
