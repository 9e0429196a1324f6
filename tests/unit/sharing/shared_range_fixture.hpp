// Ranges that are published and attached within one process, over connections as between two.
#pragma once

#include <gtest/gtest.h>

#include <thread>

#include "cuvmm/sharing/attached_range.hpp"
#include "cuvmm/sharing/range_publisher.hpp"
#include "range/range_machine.hpp"
#include "sharing/range_messages.hpp"

namespace cuvmm::sharing::test {

using namespace std::chrono_literals;
using cuvmm::test::EntryPoint;
using cuvmm::test::RangeMachine;

inline constexpr HandleTypes descriptors = HandleType::posix_file_descriptor;
inline constexpr std::size_t one_chunk = 2_MiB;

inline Deadline soon() {
  return Deadline::in(120s);
}

template <class Condition>
bool becomes_true(Condition&& condition) {
  const Deadline deadline = soon();
  while (!condition()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

template <class Call>
Failure refusal_of(ErrorKind kind, Call&& call) {
  auto result = call();
  if (result) {
    ADD_FAILURE() << "it was not refused";
    return {};
  }
  EXPECT_EQ(result.failure().kind, kind) << result.failure().message();
  return result.failure();
}

class SharedRange : public testing::Test {
 protected:
  explicit SharedRange(int devices = 2) : machine_(cuvmm::test::strict_machine(devices)) {}

  // Chunks of 2 MiB each.
  MappedRange new_range(std::size_t chunks, HandleTypes types = descriptors) {
    auto range = MappedRange::create(
        machine_.driver(),
        {.capacity = 64_MiB, .memory = {.handle_types = types}, .chunks = ChunkPolicy::fixed(2_MiB)});
    for (std::size_t index = 0; index < chunks; ++index) range.append(2_MiB);
    return range;
  }

  Result<AttachedRange> try_attach(const AttachOptions& options = {}, const std::string& name = "range") {
    auto [one, other] = DescriptorSocket::pair();
    publisher_.serve(std::move(one));
    return AttachedRange::try_attach(machine_.driver(), std::move(other), name, options, soon());
  }
  AttachedRange attach(const AttachOptions& options = {}) { return try_attach(options).value(); }

  // A peer that speaks as it likes.
  DescriptorSocket stranger() {
    auto [one, other] = DescriptorSocket::pair();
    publisher_.serve(std::move(one));
    return std::move(other);
  }

  static bool is_attached(const PublishedRange& published, std::uint32_t chunks) {
    return becomes_true([&] {
      const auto attached = published.attached();
      return attached.size() == 1 && attached.front().mapped && attached.front().chunks == chunks;
    });
  }

  RangeMachine machine_;
  CurrentContext context_{machine_.driver().device(DeviceOrdinal(0))};
  RangePublisher publisher_ = RangePublisher::unconnected();
};

inline std::string bytes_at(const MappedRange& range, std::size_t offset, std::size_t count) {
  std::string bytes(count, ' ');
  copy_from_device(bytes, range, offset);
  return bytes;
}

}  // namespace cuvmm::sharing::test
