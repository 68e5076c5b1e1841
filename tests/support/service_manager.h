// The part of systemd that a service sees: starts ckptd with systemd's variables, keeps the
// descriptors that ckptd stores, and passes them to the next ckptd. Speaks the documented protocols
// (sd_notify(3), sd_listen_fds(3), systemd.service(5)) and has no knowledge of ckptd.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "formats/base/unique_fd.h"
#include "tests/support/temp_folder.h"

namespace ckpt::test {

class ServiceManager {
 public:
  struct Options {
    std::vector<std::string> arguments;  // more of ckptd's
    bool open_socket = false;            // socket activation
    std::chrono::microseconds watchdog{0};
  };
  explicit ServiceManager(Options options);
  ServiceManager(const ServiceManager&) = delete;
  ServiceManager& operator=(const ServiceManager&) = delete;
  ~ServiceManager();  // kills what runs

  // Starts ckptd and waits for READY=1; a failure of the test, with its log, if that does not come.
  void start();
  void kill();  // SIGKILL
  int stop();   // SIGTERM; its exit status
  // Waits until ckptd has sent `text` `count` times since it was started. False: not within a
  // minute.
  bool wait_for(const std::string& text, size_t count = 1);

  // Descriptors held, by name. ckptd is given what a test puts in here. Only while no ckptd runs:
  // its messages change the store.
  std::map<std::string, std::vector<base::UniqueFd>>& store() {
    const std::lock_guard lock(mutex_);  // orders this after the last message
    return store_;
  }
  size_t stored(const std::string& name);

  std::string socket() const { return folder_.path("ckptd.sock"); }
  std::string data() const { return folder_.path("data"); }
  std::string log() const;
  pid_t pid() const { return pid_; }

 private:
  void listen();
  void take(const std::string& text, std::vector<base::UniqueFd> fds);

  TempFolder folder_;
  const Options options_;
  base::UniqueFd notifications_;
  base::UniqueFd listener_;
  base::UniqueFd arena_listener_;
  base::UniqueFd stop_;
  pid_t pid_ = -1;
  std::mutex mutex_;
  std::condition_variable heard_;
  std::map<std::string, std::vector<base::UniqueFd>> store_;  // guarded by mutex_
  std::vector<std::string> messages_;                         // guarded by mutex_
  std::thread ear_;
};

}  // namespace ckpt::test
