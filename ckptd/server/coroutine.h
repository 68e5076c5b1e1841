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
// the connection is lost: `give_up(reason)` is called. Any other exception is a bug that may have
// left a change half done: it is rethrown out of the loop and ends the daemon with its text. Crash
// recovery can handle that state; continuing could not.
template <typename Executor, typename GiveUp>
void spawn_connection(const Executor& executor, asio::awaitable<void> coroutine, GiveUp give_up) {
  asio::co_spawn(executor, std::move(coroutine),
                 [give_up = std::move(give_up)](const std::exception_ptr& failure) {
                   if (!failure) return;
                   try {
                     std::rethrow_exception(failure);
                   } catch (const std::bad_alloc&) {
                     give_up("there is no memory for what it sends");
                   } catch (const std::system_error& error) {
                     give_up(error.what());
                   }
                 });
}

}  // namespace ckptd
