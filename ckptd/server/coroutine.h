// Coroutines of connections, and their exceptions.
#pragma once

#include <asio/awaitable.hpp>
#include <asio/co_spawn.hpp>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <utility>

namespace ckptd {

// Runs `coroutine` on `executor`. If it ends with an exception of Asio or for lack of memory, only
// the connection is lost: `on_lost(reason)` is called. Any other exception is a bug that may have
// left a change half done: it is rethrown out of the loop and ends the daemon with its text. Crash
// recovery can handle that state; continuing could not.
template <typename Executor, typename OnLost>
void spawn_connection(const Executor& executor, asio::awaitable<void> coroutine, OnLost on_lost) {
  asio::co_spawn(executor, std::move(coroutine),
                 [on_lost = std::move(on_lost)](const std::exception_ptr& failure) {
                   if (!failure) return;
                   try {
                     std::rethrow_exception(failure);
                   } catch (const std::bad_alloc&) {
                     on_lost("there is no memory for what it sends");
                   } catch (const std::system_error& error) {
                     on_lost(error.what());
                   }
                 });
}

}  // namespace ckptd
