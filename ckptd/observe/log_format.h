// What a line of the log looks like: for people, or one JSON object a line for programs.
#pragma once

#include <spdlog/formatter.h>

#include <memory>
#include <string>

namespace ckptd {

// "text": 2026-01-31T12:00:00.000 info the message
// "json": {"time":"2026-01-31T12:00:00.000000Z","level":"info","process":4711,"message":"..."},
//         of an event (log_event.h) with "event" and its fields behind these.
// Texts may hold any bytes of a client's or a file's name. The text form escapes all that is not
// printable (formats/base/printable.h); JSON replaces bytes that are not UTF-8.
std::unique_ptr<spdlog::formatter> make_log_formatter(const std::string& format);

}  // namespace ckptd
