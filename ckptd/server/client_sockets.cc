#include "ckptd/server/client_sockets.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <utility>

#include "ckptd/limits.h"
#include "formats/wire/protocol.h"

namespace ckptd {

namespace {

using ckpt::Result;
using ckpt::Status;
using ckpt::base::UniqueFd;

void warn_of_closed_directories(const Config& config) {
  for (const uid_t uid : config.allow_uids) {
    const std::string closed = uid == 0 ? "" : closed_directory(config.listen, uid);
    if (closed.empty()) continue;
    spdlog::warn("user {} of allow_uids does not get to the socket {}: {} is closed to others", uid,
                 config.listen, closed);
  }
}

}  // namespace

Result<std::unique_ptr<ClientSockets>> ClientSockets::bind(asio::io_context& loop,
                                                           const Config& config,
                                                           ServiceManager& manager,
                                                           RightsOption rights,
                                                           std::function<void(Socket)> accepted) {
  CKPT_ASSIGN(auto quarantine, Quarantine::start(loop));
  std::unique_ptr<ClientSockets> sockets(
      new ClientSockets(loop, config, rights, std::move(quarantine), std::move(accepted)));
  CKPT_TRY(sockets->bind_main(manager));
  sockets->bind_arena(manager);
  return sockets;
}

ClientSockets::ClientSockets(asio::io_context& loop, const Config& config, RightsOption rights,
                             std::unique_ptr<Quarantine> quarantine,
                             std::function<void(Socket)> accepted)
    : config_(config),
      rights_(rights),
      admission_(::geteuid(), config.allow_uids),
      quarantine_(std::move(quarantine)),
      hand_back_(loop, *quarantine_, admission_),
      main_(loop, std::move(accepted), [this] { return kernel_refuses_ || !quarantine_->full(); }),
      arena_(
          loop, [this](Socket socket) { hand_back_.serve(std::move(socket)); },
          [this] { return !quarantine_->full(); }) {}

// A socket that a service manager opened stays open during a restart: clients that connect
// meanwhile wait.
Status ClientSockets::bind_main(ServiceManager& manager) {
  inherited_main_ = manager.take_listener();
  path_ = inherited_main_.valid() ? bound_path(inherited_main_.get()) : config_.listen;
  if (inherited_main_.valid()) return {};
  auto file = UnixSocketFile::bind(config_.listen);
  if (!file.ok()) {
    return ckpt::make_error(file.error().code, "{}; --listen unix:PATH names another one",
                            file.error().message);
  }
  main_file_ = std::move(file).value();
  warn_of_closed_directories(config_);
  if (const std::string open = replaceable_directory(path_, ::geteuid()); !open.empty()) {
    spdlog::warn(
        "socket {}: other users can replace it, as {} is theirs, or writable for its group or all "
        "without the sticky bit; put it into a folder that only root or ckptd's user can write",
        path_, open);
  }
  return {};
}

// Without this socket, arenas still come back with Hello on the main socket: a failure does not
// prevent startup.
void ClientSockets::bind_arena(ServiceManager& manager) {
  inherited_arena_ = manager.take_arena_listener();
  if (inherited_arena_.valid() || path_.empty()) return;
  auto file = UnixSocketFile::bind(path_ + std::string(ckpt::wire::kArenaSocketSuffix));
  if (!file.ok()) {
    return spdlog::warn("no socket of its own for arenas that come back, they use {}: {}", path_,
                        file.error().message);
  }
  arena_file_ = std::move(file).value();
}

Status ClientSockets::listen() {
  if (main_file_) main_watch_.emplace(*main_file_, path_, "no new client can connect");
  if (arena_file_) {
    arena_watch_.emplace(*arena_file_, path_ + std::string(ckpt::wire::kArenaSocketSuffix),
                         "no trainer can hand its arena back");
  }
  listen_arena();
  return listen_main();
}

Status ClientSockets::listen_main() {
  UniqueFd fd = std::move(inherited_main_);
  if (main_file_) {
    // Set before listen(), because connections inherit the option.
    kernel_refuses_ = rights_.allow(main_file_->socket(), false);
    CKPT_ASSIGN(fd, main_file_->listen());
  } else {
    kernel_refuses_ = rights_.allow(fd.get(), false);
  }
  return main_.assign(std::move(fd), path_);
}

void ClientSockets::listen_arena() {
  UniqueFd fd = std::move(inherited_arena_);
  if (arena_file_) {
    auto listening = arena_file_->listen();
    if (!listening.ok()) return arena_watch_->failed(listening.error().message);
    fd = std::move(listening).value();
  }
  if (!fd.valid()) return;
  (void)rights_.allow(fd.get(), true);
  const Status assigned = arena_.assign(std::move(fd), path_);
  if (assigned.ok()) return;
  if (arena_watch_) return arena_watch_->failed(assigned.error().message);
  spdlog::warn("{}", assigned.error().message);
}

void ClientSockets::start() {
  main_.start();
  if (arena_.listening()) arena_.start();
}

// Clients connect to the new sockets; connections of the old ones stay.
void ClientSockets::keep_files(Clock::time_point now) {
  if (main_watch_ && main_watch_->poll(now)) {
    quarantine_->close(Quarantine::kStrangers, main_.release());
    rights_until_.reset();
    const Status listening = listen_main();
    if (listening.ok()) {
      main_.start();
    } else {
      main_watch_->failed(listening.error().message);
    }
  }
  if (arena_watch_ && arena_watch_->poll(now)) {
    quarantine_->close(Quarantine::kStrangers, arena_.release());
    listen_arena();
    if (arena_.listening()) arena_.start();
  }
}

void ClientSockets::tick(Clock::time_point now) {
  if (!closed_) keep_files(now);
  quarantine_->tick();
  report_full(now);
  main_.tick();
  arena_.tick();
  hand_back_.tick(now);
  if (rights_until_ && now >= *rights_until_) {
    rights_until_.reset();
    if (main_.listening()) kernel_refuses_ = rights_.allow(main_.fd(), false);
  }
}

// Clients can trigger this state repeatedly, so it is logged at a limited rate.
void ClientSockets::report_full(Clock::time_point now) {
  if (!quarantine_->full()) return;
  if (full_reported_ && now - *full_reported_ < limits::kQuarantineFullReports) return;
  full_reported_ = now;
  spdlog::error("{}", kernel_refuses_ ? arena_fault() : fault());
}

std::string ClientSockets::fault() const {
  if (main_watch_ && !main_watch_->fault().empty()) return main_watch_->fault();
  if (!kernel_refuses_ && quarantine_->full()) {
    return "no new client can connect: " + quarantine_->fault();
  }
  return main_.fault().empty() ? "" : "no new client can connect: " + main_.fault();
}

std::string ClientSockets::arena_fault() const {
  if (arena_watch_ && !arena_watch_->fault().empty()) return arena_watch_->fault();
  if (quarantine_->full()) return "no trainer can hand its arena back: " + quarantine_->fault();
  return arena_.fault().empty() ? "" : "no trainer can hand its arena back: " + arena_.fault();
}

void ClientSockets::close() {
  closed_ = true;
  if (main_file_) main_file_->remove();
  if (arena_file_) arena_file_->remove();
  hand_back_.close();
  for (Listener* listener : {&main_, &arena_}) {
    quarantine_->close(Quarantine::kStrangers, listener->release());
  }
}

Connection::Descriptors ClientSockets::descriptors_of(int socket, uid_t uid) {
  const bool known = admission_.may_connect(uid);
  return {.quarantine = *quarantine_,
          .of = known ? uid : Quarantine::kStrangers,
          .allowed = rights_.allowed(socket)};
}

void ClientSockets::ended_silently() {
  if (!main_.listening() || !kernel_refuses_ || quarantine_->full()) return;
  if (!rights_.allow(main_.fd(), true)) return;
  kernel_refuses_ = false;
  rights_until_ = Clock::now() + limits::kRightsWindow;
}

}  // namespace ckptd
