// Ranges that processes of a test publish and attach on one emulated machine, or on several.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <thread>

#include "child_process.hpp"
#include "cuvmm/cuvmm.hpp"
#include "cuvmm/sharing/sharing.hpp"
#include "machine.hpp"
#include "shared_state.hpp"

namespace cuvmm::tests {

struct RangeStage {
  std::atomic<bool> published = false;
  std::atomic<bool> go_on = false;
};

inline sharing::Deadline soon() {
  return sharing::Deadline::in(std::chrono::seconds(200));
}

// Throws, which ends a child process with a failure, if that does not come.
template <class Condition>
void wait_until(Condition&& condition) {
  if (!becomes_true(condition)) throw std::runtime_error("what was waited for did not come");
}

// In a process of its own, before it opens a driver.
inline void use_machine(const std::string& settings) {
  ::setenv("CUVMM_EMULATOR", settings.c_str(), 1);
}

// Publishes a range of such memory, with the content, until the stage goes on, and withdraws it. Answers 0.
inline int publish_range(const sharing::SocketAddress& address, const MemoryProperties& memory,
                         const std::string& content, RangeStage& stage,
                         const std::function<void(MappedRange&, sharing::PublishedRange&)>& then = {}) {
  const Driver driver = Driver::emulated();
  const CurrentContext context(driver.device(DeviceOrdinal(0)));
  const Location device = driver.device(DeviceOrdinal(0)).location();
  auto range = MappedRange::create(driver, {.capacity = 64_MiB,
                                            .memory = memory,
                                            .grants = {{device, AccessRights::read_write}},
                                            .chunks = ChunkPolicy::fixed(2_MiB)});
  range.append(2_MiB);
  copy_to_device(range, 0, content);
  auto publisher = sharing::RangePublisher::listen(address, {}, soon());
  auto published = publisher.publish("range", range, {.rights = AccessRights::read_write});
  stage.published = true;
  wait_until([&] { return stage.go_on.load(); });
  if (then) then(range, published);
  return published.try_withdraw(soon()) ? 0 : 1;
}

// Attaches, waiting for the publisher, and does the work with it.
inline int with_range(const sharing::SocketAddress& address, const std::function<int(sharing::AttachedRange&)>& work,
                      sharing::AttachOptions options = {.device = DeviceOrdinal(0)}) {
  const Driver driver = Driver::emulated();
  const CurrentContext context(driver.device(DeviceOrdinal(0)));
  options.wait_for_publisher = true;
  auto attached = sharing::AttachedRange::attach(driver, address, "range", options, soon());
  return work(attached);
}

// How attaching is refused: the kind of the failure, and whether its message has those words.
inline int refused_as(const sharing::SocketAddress& address, ErrorKind kind, const std::vector<std::string>& words) {
  const Driver driver = Driver::emulated();
  const CurrentContext context(driver.device(DeviceOrdinal(0)));
  const auto attached =
      sharing::AttachedRange::try_attach(driver, address, "range", {.wait_for_publisher = true}, soon());
  if (attached) return 1;
  const std::string text = attached.failure().message();
  for (const std::string& word : words)
    if (text.find(word) == std::string::npos) {
      std::fprintf(stderr, "no '%s' in: %s\n", word.c_str(), text.c_str());
      return 2;
    }
  if (attached.failure().kind == kind) return 0;
  std::fprintf(stderr, "of another kind: %s\n", text.c_str());
  return 3;
}

inline std::string text_in(const sharing::AttachedRange& attached, std::size_t count) {
  std::string bytes(count, ' ');
  copy_from_device(bytes, attached.range(), 0);
  return bytes;
}

}  // namespace cuvmm::tests
