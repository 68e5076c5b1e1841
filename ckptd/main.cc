// ckptd: the program. Flags and configuration, the store's lock, then Server::run.
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <list>

#include "ckptd/config.h"
#include "ckptd/io/disk.h"
#include "ckptd/io/durable_directory.h"
#include "ckptd/io/executor.h"
#include "ckptd/io/lock_file.h"
#include "ckptd/io/store_paths.h"
#include "ckptd/observe/log_event.h"
#include "ckptd/observe/log_format.h"
#include "ckptd/observe/log_limit.h"
#include "ckptd/process_limits.h"
#include "ckptd/server/server.h"
#include "ckptd/server/service_manager.h"
#include "formats/base/cli_errors.h"
#include "formats/base/cli_numbers.h"
#include "formats/base/console.h"
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
  std::list<Setting> settings;  // options write into them
  std::string config;
  bool check_config = false;
};

// A flag that says what a key of the file does: --io-shape for io_shape.
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
  setting("data", "directory of the store; created if it is not there");
  setting("listen", "unix:PATH of the socket (default: DATA/ckptd.sock)");
  setting("http", "HOST:PORT of /metrics, /healthz, /readyz");
  app.add_option("--config", flags.config, "TOML file; flags win over it");
  setting("arena", "shared memory of all sessions together, e.g. 4GiB");
  setting("session_arena", "arena of a session that does not ask for a size (default: 512MiB)");
  setting("session_arena_max", "the most that one session may ask for (default: no bound)");
  setting("user_arena_max", "the most that the sessions of one user may have together");
  setting("warm_pool",
          "memory that is faulted in for sessions to come (default: as session_arena, 512MiB)");
  setting("io", "uring or pwritev")->envname("CKPTD_IO");
  setting("io_shape",
          "auto, or how many writes of which size at a time, e.g. 32x4MiB (default: auto, "
          "found once for each store by writing up to 1 GiB)")
      ->envname("CKPTD_IO_SHAPE");
  setting("alarms",
          "off, warn or refuse: snapshots with NaN, with units that did not change, or "
          "without an expert for too long (default: warn)");
  setting("codec",
          "none, zstd, delta or auto: how snapshots lie on the disk; delta writes what changed "
          "where that is less, auto compresses what is durable sooner by it (default: none)");
  setting("disk_reserve", "disk space that snapshots never use (default: 256MiB)");
  setting("log_level", "debug, info, warn or error");
  setting("log_format", "text, or json: an object a line");
  app.add_flag("--check-config", flags.check_config, "check flags and configuration, then exit");
  app.footer(
      "examples:\n"
      "  ckptd --data /var/lib/ckptd --arena 16GiB --http 127.0.0.1:9464\n"
      "  ckptd --data ./store --listen unix:/tmp/ckptd.sock --io pwritev\n"
      "exit codes: 0 done, 1 failed, 2 bad usage, 4 the store is damaged");
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

// One daemon at a time.
Result<ckptd::LockFile> lock_store(const ckptd::Config& config) {
  const std::string& data = config.data;
  CKPT_TRY(ckptd::make_durable_directory(data, ckptd::sync_directory_at, config.listen));
  return ckptd::LockFile::take(data + "/lock", "data directory " + data,
                               "another ckptd is running on it");
}

// What is in them is for those who may read its run, and only the daemon knows who that is.
void close_store(const std::string& data) {
  for (const char* directory :
       {ckptd::kSegmentsDirectory, ckptd::kJournalDirectory, ckptd::kCatalogDirectory}) {
    ckptd::close_to_others(fmt::format("{}/{}", data, directory));
  }
}

Status serve(const ckptd::Config& config, ckptd::ServiceManager& manager) {
  CKPT_TRY(ckptd::check_file_size_limit(config.segment_bytes));
  CKPT_ASSIGN(const ckptd::LockFile lock, lock_store(config));
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

// 1 failed, 2 bad usage, 4 integrity error: that something was not found is a failure.
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
  ::umask(0077);  // RocksDB's files, too; the socket's mode is set where it is bound
  ckptd::allow_open_files();
  CLI::App app("Checkpoint-centric storage service for Mixture-of-Experts training.", "ckptd");
  app.set_version_flag("--version", ckpt::base::version_text("ckptd"));
  Flags flags;
  declare(app, flags);
  ckpt::base::refuse_wrapped_numbers(app);
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
  if (flags.check_config) {
    ckpt::base::write_stdout("configuration is good\n");
    return 0;
  }
  auto manager = ckptd::ServiceManager::of_this_process();
  const Status served = serve(*config, manager);
  return served.ok() ? 0 : fail(served.error(), config->log_format == "json");
}

}  // namespace

int main(int argc, char** argv) {
  return ckpt::base::run_program("ckptd", [&] { return run(argc, argv); });
}
