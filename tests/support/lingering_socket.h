// A TCP socket whose last close blocks its closer (SO_LINGER) until the test lets go of it.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <thread>

#include "formats/base/unique_fd.h"

namespace ckpt::test {

class LingeringSocket {
 public:
  LingeringSocket() {
    const base::UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int small = 4096;
    ::setsockopt(listener.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* at = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener.get(), at, length), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), at, &length), 0);
    own_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(own_.get(), at, length), 0);
    peer_.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    // Bytes that the peer will not read: a close waits until they are delivered.
    const std::string bytes(64 << 10, 'x');
    while (::send(own_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
    const linger wait{.l_onoff = 1, .l_linger = 3'600};
    EXPECT_EQ(::setsockopt(own_.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait), 0);
  }
  ~LingeringSocket() { disconnect(); }
  LingeringSocket(const LingeringSocket&) = delete;
  LingeringSocket& operator=(const LingeringSocket&) = delete;

  int fd() const { return own_.get(); }
  // Closes the test's copy, in a thread: if no other copy is left it is this close that blocks.
  void close_copy() {
    closer_ = std::thread([fd = own_.release()] { ::close(fd); });
  }
  // Ends the connection, which unblocks a blocked close.
  void disconnect() {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    if (peer_.valid()) ::setsockopt(peer_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    peer_.reset();
    own_.reset();
    if (closer_.joinable()) closer_.join();
  }

 private:
  std::thread closer_;
  base::UniqueFd own_;
  base::UniqueFd peer_;
};

}  // namespace ckpt::test
