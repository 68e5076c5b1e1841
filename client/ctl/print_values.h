// Values of a daemon's documents as text. A missing value prints as "-", whatever version of ckptd
// wrote the document.
#pragma once

#include <string>
#include <string_view>

#include "client/ctl/link.h"

namespace ckptctl {

Json member(const Json& object, const char* name);  // null if there is none
std::string text(const Json& value);
std::string text(const Json& object, const char* name);
// RUN~LINEAGE@STEP, or RUN@STEP without a lineage: a name that every verb accepts.
std::string commit_name(std::string_view run, const Json& commit);
std::string commit_name(const Json& commit);  // with a member for the run
// "2 commits"; "- commits" if there is no such number.
std::string counted(const Json& value, std::string_view one);
std::string counted(const Json& object, const char* name, std::string_view one);
std::string size(const Json& object, const char* name);  // bytes: "1.5 MiB"
std::string age(const Json& object, const char* name);   // seconds: "3 min 5 s"

}  // namespace ckptctl
