#include "ckptd/server/server.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "ckptd/observe/log_event.h"
#include "ckptd/observe/log_limit.h"
#include "ckptd/observe/metrics_text.h"
#include "ckptd/server/admission.h"
#include "ckptd/server/client_sockets.h"
#include "ckptd/server/connection.h"
#include "ckptd/server/http.h"
#include "formats/base/open_files.h"
#include "formats/base/printable.h"
#include "formats/wire/convert.h"

namespace ckptd {

namespace {

using Clock = std::chrono::steady_clock;

// Deadlines are minutes long; a tick bounds how late they are noticed.
constexpr std::chrono::milliseconds kTick{20};

uint64_t wall_clock_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

// validate() allows only these names.
ckpt::fb::AlarmPolicy alarm_policy(const std::string& name) {
  if (name == "off") return ckpt::fb::AlarmPolicy::Off;
  return name == "refuse" ? ckpt::fb::AlarmPolicy::Refuse : ckpt::fb::AlarmPolicy::Warn;
}

Daemon::Options daemon_options(const Config& config) {
  Daemon::Options options;
  options.staging.arena_bytes_total = config.arena_bytes;
  options.staging.session_bytes_default = config.session_arena_bytes;
  options.staging.session_bytes_max = config.session_arena_max_bytes;
  // Root and the daemon's own user have no quota, so that they can always repair the store.
  options.staging.user_bytes_max = [most = *config.user_arena_max_bytes](uid_t uid) {
    return uid == 0 || uid == ::geteuid() ? UINT64_MAX : most;
  };
  options.staging.warm_pool_bytes = *config.warm_pool_bytes;
  options.segment_bytes = config.segment_bytes;
  options.disk_reserve_bytes = config.disk_reserve_bytes;
  options.snapshot_deadline = config.snapshot_deadline;
  options.alarms = alarm_policy(config.alarms);
  options.codec = config.codec;
  options.scrub_bytes_per_second = config.scrub_bytes_per_second;
  options.scrub_interval = config.scrub_interval;
  options.may_connect = [admission = Admission(::geteuid(), config.allow_uids)](uid_t uid) {
    return admission.may_connect(uid);
  };
  options.wall_clock_ns = wall_clock_ns;
  return options;
}

// nohup and similar programs ignore a signal before they start a program: it stays ignored.
bool inherited_as_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

struct Server::Impl : public Outbox {
  Impl(const Config& with, ServiceManager& with_manager)
      : config(with), manager(with_manager), signals(loop), timer(loop) {}

  // -- Outbox --
  void send(ckpt::SessionId session, const ckpt::fb::MessageT& message, int fd) override {
    const auto found = connections.find(session);
    if (found == connections.end()) return;
    auto frame = ckpt::wire::try_encode(message);
    if (frame.ok()) return found->second->send(std::move(frame).value(), fd);
    // Every answer is bounded below a frame's size. If a bound is missed, only this session ends.
    spdlog::error("session {}: an answer cannot be sent: {}", session, frame.error().message);
    found->second->close_after_sending(frame.error().message);
  }
  void disconnect(ckpt::SessionId session, const std::string& reason) override {
    const auto found = connections.find(session);
    if (found != connections.end()) found->second->close_after_sending(reason);
  }

  Status open_http();
  void watch(asio::posix::stream_descriptor& descriptor);
  Status watch_fd(int fd, std::optional<asio::posix::stream_descriptor>& descriptor);
  void accepted(asio::local::stream_protocol::socket socket);
  Connection::Events events_of(uid_t uid);
  void receive(ckpt::SessionId session, uid_t uid, ckpt::fb::MessageT message,
               ckpt::base::UniqueFd fd);
  void refuse(Connection& connection, pid_t pid, const ckpt::Error& error);
  void tick();
  void drain(const std::string& why);
  void finish();
  std::optional<HttpServer::Answer> answer(const std::string& path) const;

  const Config config;
  Admission admission{::geteuid(), config.allow_uids};
  RepeatedWarning refusals;
  ServiceManager& manager;
  asio::io_context loop{1};
  asio::signal_set signals;
  asio::steady_timer timer;
  std::optional<asio::posix::stream_descriptor> disk_events;
  std::optional<asio::posix::stream_descriptor> executor_events;
  Clock::time_point started;  // of run(): the daemon's clock
  std::unique_ptr<Daemon> daemon;
  std::unique_ptr<ClientSockets> sockets;
  std::unique_ptr<HttpServer> http;
  std::map<ckpt::SessionId, std::shared_ptr<Connection>> connections;
  ckpt::SessionId next_session = 1;
  bool draining = false;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::open(const Config& config, const Parts& parts) {
  auto impl = std::make_unique<Impl>(config, parts.manager);
  // Bind addresses first: if that fails, the store is untouched.
  CKPT_ASSIGN(impl->sockets,
              ClientSockets::bind(impl->loop, impl->config, parts.manager, parts.rights,
                                  [impl = impl.get()](ClientSockets::Socket socket) {
                                    impl->accepted(std::move(socket));
                                  }));
  CKPT_TRY(impl->open_http());
  const Daemon::Parts daemon_parts{parts.disk, parts.executor, parts.open_catalog, *impl,
                                   &parts.manager};
  Daemon::Options options = daemon_options(config);
  options.find_io_shape = [&config, &disk = parts.disk] {
    if (config.io_shape.has_value()) return *config.io_shape;
    // Space for snapshots comes first: the reserve, and a segment.
    const uint64_t free_bytes_min = config.disk_reserve_bytes + 4 * config.segment_bytes;
    return find_io_shape(disk, config.data, free_bytes_min, monotonic_time);
  };
  auto opened = Daemon::open(daemon_parts, options);
  if (!opened.ok()) {
    // Errors of the store name files relative to it.
    return make_error(opened.error().code, "data directory {}: {}",
                      ckpt::base::printable(config.data), opened.error().message);
  }
  impl->daemon = std::move(opened).value();
  CKPT_TRY(impl->watch_fd(parts.disk.event_fd(), impl->disk_events));
  CKPT_TRY(impl->watch_fd(parts.executor.event_fd(), impl->executor_events));
  CKPT_TRY(impl->sockets->listen());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

void Server::run(const std::function<void()>& on_ready) {
  begin_log_limit();
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGPWR}) {
    if (!inherited_as_ignored(signal)) impl_->signals.add(signal);
  }
  impl_->signals.async_wait([this](const asio::error_code& error, int signal) {
    if (!error) impl_->drain(fmt::format("SIG{}", ::sigabbrev_np(signal)));
  });
  impl_->started = Clock::now();
  impl_->sockets->start();
  if (impl_->http) impl_->http->start();
  impl_->tick();
  impl_->manager.ready();
  on_ready();
  impl_->loop.run();
}

void Server::stop() {
  asio::post(impl_->loop, [this] { impl_->drain("asked to stop"); });
}

int Server::http_port() const { return impl_->http ? impl_->http->port() : 0; }

Status Server::Impl::open_http() {
  if (config.http.empty()) return {};
  CKPT_ASSIGN(const HttpAddress address, parse_http_address(config.http));
  CKPT_ASSIGN(http, HttpServer::open(loop, address,
                                     [this](const std::string& path) { return answer(path); }));
  spdlog::info("http on {}:{}", address.host, http->port());
  return {};
}

std::optional<HttpServer::Answer> Server::Impl::answer(const std::string& path) const {
  using Answer = HttpServer::Answer;
  if (path == "/metrics") {
    MetricsText own;
    own.gauge("ckptd_quarantined_descriptors",
              "Descriptors of clients that threads of their own receive or close.",
              static_cast<double>(sockets->quarantine().held()));
    return Answer{.status = 200, .body = daemon->metrics_text() + own.text()};
  }
  if (path != "/healthz" && path != "/readyz") return std::nullopt;
  if (path == "/healthz") {
    Daemon::Answer health = daemon->health_answer();
    return Answer{.status = health.ok ? 200 : 503, .body = std::move(health.text)};
  }
  if (const std::string fault = sockets->fault(); !draining && !fault.empty()) {
    return Answer{.status = 503, .body = "not ready\n" + fault + "\n"};
  }
  Daemon::Answer ready = daemon->readiness_answer();
  // Sessions can still connect, and hand arenas back with Hello.
  if (const std::string fault = sockets->arena_fault(); !draining && !fault.empty()) {
    ready.text += fault + "\n";
  }
  return Answer{.status = ready.ok ? 200 : 503, .body = std::move(ready.text)};
}

Status Server::Impl::watch_fd(int fd, std::optional<asio::posix::stream_descriptor>& descriptor) {
  if (fd < 0) return {};
  const int own = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) {
    const int error = errno;
    return ckpt::make_error(ckpt::ErrorCode::kIo, "a descriptor for the loop: {}{}",
                            std::strerror(error), ckpt::base::open_files_hint(error));
  }
  descriptor.emplace(loop, own);
  watch(*descriptor);
  return {};
}

void Server::Impl::watch(asio::posix::stream_descriptor& descriptor) {
  descriptor.async_wait(asio::posix::stream_descriptor::wait_read,
                        [this, &descriptor](const asio::error_code& error) {
                          if (error) return;
                          daemon->poll();
                          watch(descriptor);
                        });
}

void Server::Impl::accepted(asio::local::stream_protocol::socket socket) {
  auto peer = peer_of(socket.native_handle());
  if (!peer.ok() && refusals.say(Clock::now())) {
    spdlog::warn("cannot read the user of a client that connects (SO_PEERCRED): {}; it was refused",
                 peer.error().message);
  }
  const ckpt::SessionId id = next_session++;
  const uid_t uid = peer.ok() ? peer->uid : UINT32_MAX;
  const pid_t pid = peer.ok() ? peer->pid : 0;
  const Connection::Descriptors descriptors = sockets->descriptors_of(socket.native_handle(), uid);
  auto connection =
      std::make_shared<Connection>(std::move(socket), peer.ok() ? std::move(*peer) : Peer(), id,
                                   events_of(uid), descriptors, Connection::Deadlines());
  connections.emplace(id, connection);
  if (!peer.ok() || draining) return connection->close("it is not served");
  if (descriptors.allowed && sockets->quarantine().overloaded(descriptors.of)) {
    const size_t held = sockets->quarantine().held_of(descriptors.of);
    return refuse(*connection, pid,
                  ckpt::make_error(ckpt::ErrorCode::kResourceExhausted,
                                   "user {} passed {} descriptors whose close does not return (a "
                                   "TCP socket with SO_LINGER, a file of a hung FUSE mount); end "
                                   "that peer or mount, then connect again",
                                   uid, held));
  }
  const Status admitted = admission.admit(id, uid);
  if (!admitted.ok()) return refuse(*connection, pid, admitted.error());
  daemon->connected(id, uid, pid);
  connection->start();
}

Connection::Events Server::Impl::events_of(uid_t uid) {
  return {.on_message =
              [this, uid](ckpt::SessionId session, ckpt::fb::MessageT message,
                          ckpt::base::UniqueFd fd) {
                receive(session, uid, std::move(message), std::move(fd));
              },
          .on_closed =
              [this, uid](ckpt::SessionId session, const std::string& reason) {
                const ClientLogScope scope(admission.may_connect(uid) ? uid : kUsersNotAllowed);
                spdlog::debug("session {} ended: {}", session, reason);
                daemon->disconnected(session, reason);
                admission.ended(session);
                const auto found = connections.find(session);
                if (found->second->silent() && admission.may_connect(uid)) {
                  sockets->ended_silently();
                }
                connections.erase(found);
              }};
}

// The arena that a Hello hands back came with it, or earlier on PATH.arena.
void Server::Impl::receive(ckpt::SessionId session, uid_t uid, ckpt::fb::MessageT message,
                           ckpt::base::UniqueFd fd) {
  const ckpt::fb::HelloT* hello = message.body.AsHello();
  if (hello != nullptr && hello->readopt && !fd.valid()) {
    const ckpt::base::Hash128 ticket = ckpt::wire::from_fb(hello->arena_ticket);
    fd = sockets->hand_back().take(ticket, uid);
    if (!fd.valid() && ticket != ckpt::base::Hash128()) {
      // E.g. a ticket of the previous daemon. The client keeps the arena and hands it back again.
      Connection& connection = *connections.at(session);
      return refuse(connection, connection.peer().pid,
                    ckpt::make_error(ckpt::ErrorCode::kUnavailable,
                                     "the ticket for an arena is not known here; hand the arena "
                                     "back again"));
    }
  }
  // A copy, so that the daemon never drops the last reference: freeing large memory is slow.
  const ClientLogScope scope(uid);
  ckpt::base::UniqueFd copy(fd.valid() ? ::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0) : -1);
  daemon->receive(session, std::move(message), std::move(fd));
  sockets->quarantine().close(uid, std::move(copy));
}

void Server::Impl::refuse(Connection& connection, pid_t pid, const ckpt::Error& error) {
  if (refusals.say(Clock::now())) {
    spdlog::warn("process {} was refused: {}", pid, error.message);
  }
  ckpt::fb::ErrorReplyT reply;
  reply.code = static_cast<int>(error.code);
  reply.message = error.message;
  connection.send(ckpt::wire::encode(std::move(reply)), -1);
  connection.close_after_sending(error.message);
}

void Server::Impl::tick() {
  manager.alive(Clock::now());
  if (const uint64_t left_out = refusals.left_out(Clock::now()); left_out > 0) {
    spdlog::warn("{} more connections were refused since then", left_out);
  }
  report_limited_log(Clock::now());
  daemon->tick(std::chrono::duration_cast<Time>(Clock::now() - started));
  if (draining && daemon->drained()) return finish();
  sockets->tick(Clock::now());
  daemon->set_accept_fault(sockets->accept_fault());
  timer.expires_after(kTick);
  timer.async_wait([this](const asio::error_code& error) {
    if (!error) tick();
  });
}

void Server::Impl::drain(const std::string& why) {
  if (std::exchange(draining, true)) return;
  log_event(spdlog::level::info, "draining", {{"reason", why}}, "{}: draining", why);
  manager.stopping();
  sockets->close();
  daemon->begin_drain();
}

// Drained: closes the clients' connections, then the loop runs out of work.
void Server::Impl::finish() {
  if (http) http->close();
  std::vector<std::shared_ptr<Connection>> open;
  open.reserve(connections.size());
  for (const auto& [id, connection] : connections) open.push_back(connection);
  for (const auto& connection : open) connection->close("the daemon has shut down");
  asio::post(loop, [this] {
    asio::error_code ignored;
    signals.cancel(ignored);
    if (disk_events) disk_events->close(ignored);
    if (executor_events) executor_events->close(ignored);
    loop.stop();
  });
}

}  // namespace ckptd
