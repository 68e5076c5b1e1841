// Events: messages of a rank process to its supervisor, one JSON object per line, through a pipe.
//
// A pipe keeps its data when the writer is killed: the supervisor still reads the last events of a
// dead rank.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "formats/base/result.h"
#include "trainer/elastic/event_kinds.h"

namespace moetrain {

using ckpt::Result;
using ckpt::Status;

// File descriptor of the pipe in a rank process.
inline constexpr int kEventFd = 3;

struct RankEvent {
  EventHeader header;
  EventBody body;
  bool operator==(const RankEvent&) const = default;

  // The body if it is of this kind, else null.
  template <typename Kind>
  const Kind* as() const {
    return std::get_if<Kind>(&body);
  }
};

// "step", "snapshot" and so on, as in lines.
std::string_view kind_name(const EventBody& body);

// One line, newline included. Fields that have their default value are left out, but not `rank`,
// which is null for an event of the supervisor, nor the loss bits of a step, which are 8 hex
// digits. `time` is time_ns by the wall clock, in UTC.
std::string to_line(const RankEvent& event);
// kInvalidArgument for anything but a line of to_line(). Fields that the kind does not have are
// ignored.
Result<RankEvent> parse_event(std::string_view line);

// Cuts a stream of bytes into events.
class EventReader {
 public:
  void append(std::string_view bytes);
  // Events of the complete lines received, in order. A line that is no event becomes a LogEvent.
  std::vector<RankEvent> take();

 private:
  std::string buffer_;
};

// Writes events to a descriptor, in whole lines, from any thread. Errors are ignored: a rank
// outlives its supervisor by no more than a signal.
class EventWriter {
 public:
  EventWriter(int fd, uint32_t rank) : fd_(fd), rank_(rank) {}
  // `at`: epoch and step, as far as the kind has them; rank and time are filled in.
  void write(EventHeader at, EventBody body);
  void write(EventBody body) { write({}, std::move(body)); }
  void log(const std::string& text);

 private:
  const int fd_;
  const uint32_t rank_;
  std::mutex writing_;  // a line that is longer than a pipe's buffer is written in pieces
};

uint64_t monotonic_ns();
double ms_between(uint64_t from_ns, uint64_t to_ns);  // 0 if `to` is not later

}  // namespace moetrain
