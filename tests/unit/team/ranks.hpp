// Threads that are the ranks of a team.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cuvmm/team/socket_bootstrap.hpp"

namespace cuvmm::team::test {

using namespace std::chrono_literals;

inline Deadline soon() {
  return Deadline::in(120s);
}

// Does the work of each rank in a thread of its own, and returns when all are done.
inline void run_ranks(int size, const std::function<void(int rank)>& work) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) threads.emplace_back([&work, rank] { work(rank); });
  for (std::thread& each : threads) each.join();
}

// The same with a bootstrap for each, which it may give up.
inline void run_team(int size, const std::function<void(std::unique_ptr<SocketBootstrap> bootstrap)>& work) {
  auto all = SocketBootstrap::within_process(size);
  run_ranks(size, [&](int rank) { work(std::move(all[static_cast<std::size_t>(rank)])); });
}

inline Bytes bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// A session that no other test uses at the same time.
inline std::string new_session() {
  static std::atomic<int> count = 0;
  return "test " + std::to_string(::getpid()) + " " + std::to_string(++count);
}

// That it failed as that kind, and says all that.
template <class T>
void expect_failure(const Result<T>& result, ErrorKind kind, const std::vector<std::string>& words) {
  if (result) {
    ADD_FAILURE() << "it succeeded";
    return;
  }
  const std::string message = result.failure().message();
  EXPECT_EQ(result.failure().kind, kind) << message;
  for (const std::string& each : words) EXPECT_NE(message.find(each), std::string::npos) << each << " in: " << message;
}

}  // namespace cuvmm::team::test
