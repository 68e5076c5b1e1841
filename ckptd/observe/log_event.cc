#include "ckptd/observe/log_event.h"

namespace ckptd {

namespace {

thread_local const LogEventScope* event_of_line = nullptr;

}  // namespace

LogEventScope::LogEventScope(std::string_view name, std::initializer_list<LogField> fields)
    : name_(name), fields_(fields.begin(), fields.size()) {
  event_of_line = this;
}

LogEventScope::~LogEventScope() { event_of_line = nullptr; }

const LogEventScope* LogEventScope::current() { return event_of_line; }

}  // namespace ckptd
