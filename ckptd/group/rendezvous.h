// Rendezvous: the small key-value store of one epoch. A get waits until its key is set.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "formats/base/ids.h"
#include "formats/base/result.h"

namespace ckptd {

class Rendezvous {
 public:
  struct Waiter {
    ckpt::SessionId session = 0;
    uint64_t request = 0;
  };

  // Setting a key again replaces its value. Returns the waiters for the key.
  ckpt::Result<std::vector<Waiter>> set(const std::string& key, std::vector<uint8_t> value);
  // The value, or nullptr: then the waiter is stored, and set() returns it later.
  ckpt::Result<const std::vector<uint8_t>*> get(const std::string& key, const Waiter& waiter);
  const std::vector<uint8_t>& value(const std::string& key) const { return values_.at(key); }

  // Removes the waiters of one session, or all of them.
  void forget(ckpt::SessionId session);
  std::vector<Waiter> take_waiters();

 private:
  ckpt::Status check_room(size_t takes, size_t frees) const;

  size_t bytes_ = 0;  // of keys and values, and of awaited keys
  std::map<std::string, std::vector<uint8_t>> values_;
  std::map<std::string, std::vector<Waiter>> waiting_;
  std::map<ckpt::SessionId, size_t> waiting_of_;
};

}  // namespace ckptd
