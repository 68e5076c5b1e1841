// ckptd: the program. Flags and configuration, the store's lock, then Server::run.
#include <fcntl.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "ckptd/config.h"
#include "ckptd/io/disk.h"
#include "ckptd/io/executor.h"
#include "ckptd/observe/log_format.h"
#include "ckptd/server/server.h"
#include "ckptd/server/service_manager.h"
#include "formats/base/parse.h"

namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using ckpt::Status;
using ckpt::base::UniqueFd;

struct Flags {
  std::string data;
  std::string listen;
  std::string http;
  std::string config;
  std::string arena;
  std::string warm_pool;
  std::string io;
  std::string io_shape;
  std::string alarms;
  std::string codec;
  std::string log_level;
  std::string log_format;
  bool check_config = false;
};

void declare(CLI::App& app, Flags& flags) {
  app.add_option("--data", flags.data, "directory of the store; created if it is not there");
  app.add_option("--listen", flags.listen, "unix:PATH of the socket (default: DATA/ckptd.sock)");
  app.add_option("--http", flags.http, "HOST:PORT of /metrics, /healthz, /readyz");
  app.add_option("--config", flags.config, "TOML file; flags win over it");
  app.add_option("--arena", flags.arena, "shared memory of all sessions together, e.g. 4GiB");
  app.add_option(
      "--warm-pool", flags.warm_pool,
      "memory that is faulted in for sessions to come (default: as session_arena, 512MiB)");
  app.add_option("--io", flags.io, "uring or pwritev")->envname("CKPTD_IO");
  app.add_option("--io-shape", flags.io_shape,
                 "auto, or how many writes of which size at a time, e.g. 32x4MiB (default: auto, "
                 "found once for each store by writing up to 1 GiB)")
      ->envname("CKPTD_IO_SHAPE");
  app.add_option("--alarms", flags.alarms,
                 "off, warn or refuse: snapshots with NaN, with units that did not change, or "
                 "without an expert for too long (default: warn)");
  app.add_option(
      "--codec", flags.codec,
      "none, zstd, delta or auto: how snapshots lie on the disk; delta writes what changed where "
      "that is less, auto compresses what is durable sooner by it (default: none)");
  app.add_option("--log-level", flags.log_level, "debug, info, warn or error");
  app.add_option("--log-format", flags.log_format, "text, or json: an object a line");
  app.add_flag("--check-config", flags.check_config, "check flags and configuration, then exit");
  app.footer(
      "examples:\n"
      "  ckptd --data /var/lib/ckptd --arena 16GiB --http 127.0.0.1:9464\n"
      "  ckptd --data ./store --listen unix:/tmp/ckptd.sock --io pwritev\n"
      "exit codes: 0 done, 1 failed, 2 bad usage, 4 the store is damaged");
}

Result<ckptd::Config> make_config(const Flags& flags) {
  ckptd::Config config;
  if (!flags.config.empty()) CKPT_TRY(ckptd::load_config(flags.config, config));
  if (!flags.data.empty()) config.data = flags.data;
  if (!flags.listen.empty()) config.listen = flags.listen;
  if (!flags.http.empty()) config.http = flags.http;
  if (!flags.io.empty()) config.io = flags.io;
  if (!flags.io_shape.empty()) {
    CKPT_ASSIGN(config.io_shape, ckptd::parse_io_shape_choice(flags.io_shape));
  }
  if (!flags.alarms.empty()) config.alarms = flags.alarms;
  if (!flags.log_level.empty()) config.log_level = flags.log_level;
  if (!flags.log_format.empty()) config.log_format = flags.log_format;
  if (!flags.codec.empty()) {
    CKPT_ASSIGN(config.codec, ckptd::parse_codec_choice(flags.codec));
  }
  if (!flags.arena.empty()) {
    CKPT_ASSIGN(config.arena_bytes, ckpt::base::parse_size(flags.arena));
  }
  if (!flags.warm_pool.empty()) {
    CKPT_ASSIGN(config.warm_pool_bytes, ckpt::base::parse_size(flags.warm_pool));
  }
  CKPT_TRY(ckptd::validate(config));
  const bool known = config.log_level == "debug" || config.log_level == "info" ||
                     config.log_level == "warn" || config.log_level == "error";
  if (!known) {
    return make_error(ErrorCode::kInvalidArgument, "log_level {}: debug, info, warn or error",
                      config.log_level);
  }
  if (config.log_format != "text" && config.log_format != "json") {
    return make_error(ErrorCode::kInvalidArgument, "log_format {}: text or json",
                      config.log_format);
  }
  return config;
}

// One daemon at a time: the lock ends with the process, however it ends.
Result<UniqueFd> lock_store(const std::string& data) {
  std::error_code error;
  std::filesystem::create_directories(data, error);
  if (error) {
    return make_error(ErrorCode::kIo, "data directory {}: {}", data, error.message());
  }
  const std::string path = data + "/lock";
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return make_error(ErrorCode::kIo, "{}: {}", path, std::strerror(errno));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return make_error(ErrorCode::kAlreadyExists,
                      "data directory {}: another ckptd is running on it", data);
  }
  return fd;
}

Status serve(const ckptd::Config& config, ckptd::ServiceManager& manager) {
  CKPT_ASSIGN(const UniqueFd lock, lock_store(config.data));
  CKPT_ASSIGN(const std::unique_ptr<ckptd::Disk> disk,
              ckptd::open_disk({.root = config.data, .engine = config.io}));
  const auto executor = ckptd::make_thread_executor(config.workers);
  const ckptd::Server::Parts parts{
      *disk, *executor, [&config] { return ckptd::open_rocksdb_store(config.data + "/catalog"); },
      manager};
  CKPT_ASSIGN(const std::unique_ptr<ckptd::Server> server, ckptd::Server::open(config, parts));
  spdlog::info("store {} on {} ({})", config.data, config.listen, disk->engine_name());
  server->run([&config] {
    if (config.log_format == "json") return spdlog::info("ready");
    std::fputs("ready\n", stderr);
    std::fflush(stderr);
  });
  return {};
}

int fail(const ckpt::Error& error, bool json = false) {
  if (json) {
    spdlog::critical("{}", error.message);
    return ckpt::exit_code_for(error.code);
  }
  std::fprintf(stderr, "ckptd: %s\n", error.message.c_str());
  return ckpt::exit_code_for(error.code);
}

// A large snapshot has many segments open until its commit; the usual soft limit is for programs
// that use select().
void allow_open_files() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  allow_open_files();
  CLI::App app("Checkpoint-centric storage service for Mixture-of-Experts training.", "ckptd");
  Flags flags;
  declare(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  spdlog::set_default_logger(spdlog::stderr_logger_mt("ckptd"));
  spdlog::set_formatter(ckptd::make_log_formatter("text"));
  const auto config = make_config(flags);
  if (!config.ok()) return fail(config.error());
  spdlog::set_formatter(ckptd::make_log_formatter(config->log_format));
  spdlog::set_level(spdlog::level::from_str(config->log_level));
  if (flags.check_config) {
    std::puts("configuration is good");
    return 0;
  }
  auto manager = ckptd::ServiceManager::of_this_process();
  const Status served = serve(*config, manager);
  return served.ok() ? 0 : fail(served.error(), config->log_format == "json");
}
