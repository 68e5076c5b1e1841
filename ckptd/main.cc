// ckptd: the program. Flags and configuration, the store's lock, then Server::run.
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <list>
#include <utility>
#include <vector>

#include "ckptd/config.h"
#include "ckptd/io/disk.h"
#include "ckptd/io/durable_directory.h"
#include "ckptd/io/executor.h"
#include "ckptd/io/lock_file.h"
#include "ckptd/io/store_folder.h"
#include "ckptd/io/store_paths.h"
#include "ckptd/observe/log_event.h"
#include "ckptd/observe/log_format.h"
#include "ckptd/observe/log_limit.h"
#include "ckptd/process_limits.h"
#include "ckptd/server/server.h"
#include "ckptd/server/service_manager.h"
#include "formats/base/cli_errors.h"
#include "formats/base/cli_flags.h"
#include "formats/base/cli_numbers.h"
#include "formats/base/console.h"
#include "formats/base/open_files.h"
#include "formats/base/program.h"
#include "formats/base/version.h"

namespace {

using ckpt::Result;
using ckpt::Status;

struct Flags {
  struct Setting {
    std::string key;  // in the configuration file
    CLI::Option* option = nullptr;
    std::string text;
  };
  std::list<Setting> settings;  // stable addresses: CLI options write into them
  std::string config;
  bool check_config = false;
};

// Declares the flag for a key of the file: --io-shape for io_shape.
CLI::Option* declare_setting(CLI::App& app, Flags& flags, const std::string& key,
                             const std::string& description) {
  auto& setting = flags.settings.emplace_back();
  setting.key = key;
  std::string name = "--" + key;
  std::replace(name.begin(), name.end(), '_', '-');
  setting.option = app.add_option(name, setting.text, description);
  return setting.option;
}

void declare(CLI::App& app, Flags& flags) {
  const auto setting = [&](const std::string& key, const std::string& description) {
    return declare_setting(app, flags, key, description);
  };
  setting("data", "Keep the store in this directory; created if it is missing (required)");
  setting("listen", "Listen on this unix socket: unix:PATH (default: DATA/ckptd.sock)");
  setting("http", "Serve /metrics, /healthz and /readyz over HTTP on HOST:PORT (default: no HTTP)");
  app.add_option("--config", flags.config, "Read settings from this TOML file; flags override it");
  setting("arena", "Limit the shared memory of all sessions together to this size (default: 2GiB)");
  setting("session_arena",
          "Give a session that asks for no size this much shared memory (default: 512MiB)");
  setting("session_arena_max",
          "Refuse sessions that ask for more than this size (default: no limit)");
  setting("user_arena_max",
          "Limit the shared memory of one user's sessions together (default: as --arena; three "
          "quarters of it if allow_uids names several users)");
  setting("warm_pool",
          "Prepare this much memory for new sessions in advance, beside --arena (default: as "
          "--session-arena; 0: none)");
  setting("io", "Write by io_uring (uring) or by pwritev2 (pwritev) (default: uring)")
      ->envname("CKPTD_IO");
  setting("io_shape",
          "Keep up to COUNT writes of SIZE in progress: COUNTxSIZE, as in 32x4MiB; auto: the first "
          "start of a store measures its disk, writing up to 1 GiB (default: auto)")
      ->envname("CKPTD_IO_SHAPE");
  setting("alarms",
          "Look for NaN, unchanged units and experts left out too long in snapshots: off, warn "
          "(report), or refuse (fail the snapshot) (default: warn)");
  setting("codec",
          "Store snapshots as they are (none), compressed (zstd), or as differences from earlier "
          "versions (delta) (default: none)");
  setting("disk_reserve",
          "Leave this much disk space free: snapshots never use it (default: 256MiB)");
  setting("log_level",
          "Log lines of this level and above: debug, info, warn or error (default: info)");
  setting("log_format", "Log lines of text, or json: one object per line (default: text)");
  app.add_flag("--check-config", flags.check_config,
               "Check the flags and the configuration file, then exit");
  app.footer(
      "Set only in the configuration file: segment, snapshot_deadline, scrub_rate, "
      "scrub_interval,\n"
      "allow_uids, workers.\n"
      "Examples:\n"
      "  ckptd --data /var/lib/ckptd --arena 16GiB --http 127.0.0.1:9464\n"
      "  ckptd --data ./store --listen unix:/tmp/ckptd.sock --io pwritev\n"
      "Exit codes: 0 done, 1 failed, 2 bad usage, 4 the store is damaged");
}

Result<ckptd::Config> make_config(const CLI::App& app, const Flags& flags) {
  ckptd::Config config;
  if (!flags.config.empty()) CKPT_TRY(ckptd::load_config(flags.config, config));
  const auto& typed = app.parse_order();  // the others come from the environment
  for (const Flags::Setting& setting : flags.settings) {
    if (setting.text.empty()) continue;
    const bool is_typed = std::find(typed.begin(), typed.end(), setting.option) != typed.end();
    CKPT_TRY(ckptd::set_config(
        config, setting.key, is_typed ? setting.option->get_name() : setting.option->get_envname(),
        setting.text));
  }
  CKPT_TRY(ckptd::validate(config));
  return config;
}

// Locks the store, so that only one daemon uses it.
Result<ckptd::LockFile> lock_store(const ckptd::Config& config) {
  constexpr int kAttemptsMax = 3;
  const std::string& data = config.data;
  for (int attempt = 1;; ++attempt) {
    CKPT_TRY(ckptd::make_durable_directory(data, ckptd::sync_directory_at, config.listen));
    auto lock = ckptd::LockFile::take(data + "/lock", "data directory " + data,
                                      "another ckptd is running on it",
                                      ckptd::LockFile::retry_for_two_seconds());
    if (!lock.ok() && lock.error().code == ckpt::ErrorCode::kAlreadyExists) {
      return ckpt::make_error(ckpt::ErrorCode::kAlreadyExists,
                              "{}; use that ckptd, stop it, or choose another directory",
                              lock.error().message);
    }
    // A failed startup removes the files that it created: perhaps the file that this one waited
    // for.
    if (!lock.ok() || lock->is_at(data + "/lock") || attempt == kAttemptsMax) return lock;
  }
}

// Closes the store's directories to other users: only the daemon knows who may read which run.
void close_store(const std::string& data) {
  for (const char* directory :
       {ckptd::kSegmentsDirectory, ckptd::kJournalDirectory, ckptd::kCatalogDirectory}) {
    ckptd::close_to_others(fmt::format("{}/{}", data, directory));
  }
}

Status serve(const ckptd::Config& config, ckptd::ServiceManager& manager) {
  CKPT_TRY(ckptd::check_open_files_limit());
  CKPT_TRY(ckptd::check_file_size_limit(config.segment_bytes));
  CKPT_TRY(ckptd::check_store_folder(config.data, config.listen));
  std::vector<std::filesystem::path> missing = ckptd::missing_folders(config.data);
  CKPT_ASSIGN(const ckptd::LockFile lock, lock_store(config));
  const ckptd::NewStoreFolder created(std::move(missing));  // removed before the lock is released
  close_store(config.data);
  CKPT_ASSIGN(const std::unique_ptr<ckptd::Disk> disk,
              ckptd::open_disk({.root = config.data, .engine = config.io}));
  const auto executor = ckptd::make_thread_executor(config.workers);
  const ckptd::Server::Parts parts{*disk, *executor,
                                   [&config] {
                                     return ckptd::open_rocksdb_store(fmt::format(
                                         "{}/{}", config.data, ckptd::kCatalogDirectory));
                                   },
                                   manager};
  CKPT_ASSIGN(const std::unique_ptr<ckptd::Server> server, ckptd::Server::open(config, parts));
  ckptd::log_event(
      spdlog::level::info, "started",
      {{"path", config.data}, {"socket", config.listen}, {"engine", disk->engine_name()}},
      "store {} on {} ({})", config.data, config.listen, disk->engine_name());
  server->run([&config] {
    if (config.log_format == "json") {
      return ckptd::log_event(spdlog::level::info, "ready", {}, "ready");
    }
    std::fputs("ready\n", stderr);
    std::fflush(stderr);
  });
  return {};
}

// 1 failed, 2 bad usage, 4 integrity error: "not found" counts as failed.
int exit_code_of(const ckpt::Error& error) {
  return error.code == ckpt::ErrorCode::kNotFound ? 1 : ckpt::exit_code_for(error.code);
}

int fail(const ckpt::Error& error, bool json = false) {
  if (json) {
    ckptd::log_event(spdlog::level::critical, "failed", {{"reason", error.message}}, "{}",
                     error.message);
    return exit_code_of(error);
  }
  ckpt::base::print_stderr("ckptd: {}\n", error.message);
  return exit_code_of(error);
}

int run(int argc, char** argv) {
  ::umask(0077);  // for RocksDB's files, too; the socket's mode is set at bind
  // A large snapshot has many segments open until its commit; the usual soft limit is meant for
  // programs that use select().
  (void)ckpt::base::allow_open_files(RLIM_INFINITY);
  CLI::App app("Checkpoint-centric storage service for Mixture-of-Experts training.", "ckptd");
  app.set_version_flag("--version", ckpt::base::version_text("ckptd"));
  Flags flags;
  declare(app, flags);
  ckpt::base::refuse_wrapped_numbers(app);
  ckpt::base::refuse_empty_values(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ckpt::base::report_usage(app, error);
  }
  spdlog::set_default_logger(spdlog::stderr_logger_mt("ckptd"));
  ckptd::install_log_limit(*spdlog::default_logger());
  spdlog::set_formatter(ckptd::make_log_formatter("text"));
  const auto config = make_config(app, flags);
  if (!config.ok()) return fail(config.error());
  spdlog::set_formatter(ckptd::make_log_formatter(config->log_format));
  spdlog::set_level(spdlog::level::from_str(config->log_level));
  const Status reserve = ckptd::check_disk_reserve(*config);
  if (flags.check_config && !reserve.ok()) return fail(reserve.error());
  if (flags.check_config) {
    ckpt::base::write_stdout("configuration is good\n");
    return 0;
  }
  if (!reserve.ok()) spdlog::warn("{}", reserve.error().message);
  auto manager = ckptd::ServiceManager::of_this_process();
  const Status served = serve(*config, manager);
  return served.ok() ? 0 : fail(served.error(), config->log_format == "json");
}

}  // namespace

int main(int argc, char** argv) {
  return ckpt::base::run_program("ckptd", [&] { return run(argc, argv); });
}
