// Log line formats: text for people, or one JSON object per line for programs.
#pragma once

#include <spdlog/formatter.h>

#include <memory>
#include <string>

namespace ckptd {

// "text": 2026-01-31T12:00:00.000 info the message
// "json": {"time":"2026-01-31T12:00:00.000000Z","level":"info","process":4711,"message":"..."},
//         an event (log_event.h) adds "event" and its fields at the end.
// Texts may contain any bytes of a client's or a file's name. The text form escapes all that is not
// printable (formats/base/printable.h); JSON replaces bytes that are not UTF-8.
std::unique_ptr<spdlog::formatter> make_log_formatter(const std::string& format);

}  // namespace ckptd
