// A range that one process publishes, and kernels of others which read it and store to it, on either driver. A process
// that has opened a real driver cannot be forked, so each party opens its own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "child_process.hpp"
#include "cuvmm/cuvmm.hpp"
#include "cuvmm/sharing/sharing.hpp"
#include "driver/call.hpp"
#include "gpu/checksum.hpp"
#include "gpu/kernel_image.hpp"
#include "gpu/kernel_signatures.hpp"
#include "shared_state.hpp"

namespace cuvmm::tests {

// A device of this process, its context current, and the kernels that look at a range and store to it.
class DeviceWithKernels {
 public:
  DeviceWithKernels(const Driver& driver, DeviceOrdinal ordinal)
      : api_(driver.interface()),
        context_(driver.device(ordinal)),
        sum_(MappedRange::create(driver, {.capacity = 1, .memory = {.location = Location::device(ordinal)}})) {
    sum_.append(sizeof(std::uint64_t));
    driver::call<driver::EntryPoint::cuModuleLoadData>(api_, &module_, gpu::kernel_image().data());
    checksum_ = function(gpu::ChecksumParameters::kernel);
    fill_ = function(gpu::FillParameters::kernel);
  }

  // As a kernel sees it.
  [[nodiscard]] std::uint64_t checksum(DeviceAddress address, std::size_t bytes) {
    std::vector<std::uint64_t> sum(1, 0);
    copy_to_device(sum_, 0, sum);
    gpu::ChecksumParameters parameters{address.value, bytes, 0, sum_.address().value};
    EXPECT_EQ(launched(checksum_, gpu::arguments(parameters).data(), bytes), abi::CUDA_SUCCESS);
    copy_from_device(sum, sum_, 0);
    return sum.front();
  }

  // By a kernel; what the driver answers to the launch, or to the wait for it.
  [[nodiscard]] abi::CUresult store(DeviceAddress address, std::size_t bytes, std::uint64_t pattern) {
    gpu::FillParameters parameters{address.value, bytes, pattern};
    return launched(fill_, gpu::arguments(parameters).data(), bytes);
  }

 private:
  abi::CUfunction function(std::string_view name) {
    abi::CUfunction found = nullptr;
    driver::call<driver::EntryPoint::cuModuleGetFunction>(api_, &found, module_, std::string(name).c_str());
    return found;
  }
  abi::CUresult launched(abi::CUfunction kernel, void** arguments, std::size_t bytes) {
    const auto shape = gpu::launch_shape(bytes / gpu::checksum_word_bytes);
    const auto result =
        api_.cuLaunchKernel(kernel, shape.blocks, 1, 1, shape.threads_per_block, 1, 1, 0, nullptr, arguments, nullptr);
    return result == abi::CUDA_SUCCESS ? api_.cuCtxSynchronize() : result;
  }

  driver::Interface& api_;
  CurrentContext context_;
  MappedRange sum_;
  abi::CUmodule module_ = nullptr;
  abi::CUfunction checksum_ = nullptr;
  abi::CUfunction fill_ = nullptr;
};

// Words that are all different.
inline std::vector<std::uint64_t> different_words(std::size_t bytes) {
  std::vector<std::uint64_t> words(bytes / sizeof(std::uint64_t));
  for (std::size_t index = 0; index < words.size(); ++index) words[index] = gpu::mix64(index + 1);
  return words;
}

inline std::uint64_t checksum_of(const std::vector<std::uint64_t>& words) {
  std::uint64_t sum = 0;
  for (std::size_t index = 0; index < words.size(); ++index) sum += gpu::checksum_term(words[index], index);
  return sum;
}

// The parties, each for a process of its own. Their work answers 0 where all was as it should be.
class KernelsOnSharedRange {
 public:
  static constexpr std::size_t chunk = 4_MiB;
  static constexpr std::size_t bytes = 2 * chunk;
  static constexpr std::uint64_t stored = 0x5354'4f52'4544'2121;

  KernelsOnSharedRange(std::function<Driver()> open_driver, sharing::SocketAddress address)
      : open_driver_(std::move(open_driver)), address_(std::move(address)) {}

  // On device 0, until it is told to go on.
  int publish() const {
    const Driver driver = open_driver_();
    const CurrentContext context(driver.device(DeviceOrdinal(0)));
    auto range = MappedRange::create(driver, {.capacity = bytes,
                                              .memory = {.handle_types = HandleType::posix_file_descriptor},
                                              .chunks = ChunkPolicy::fixed(chunk)});
    range.append(bytes);
    copy_to_device(range, 0, different_words(bytes));
    auto publisher = sharing::RangePublisher::listen(address_, {}, soon());
    auto published = publisher.publish("range", range, {.rights = AccessRights::read_write});
    wait_until([&] { return stage_->go_on.load(); });
    return published.try_withdraw(soon()) ? 0 : 1;
  }

  // On the last device, to read: a kernel sees the bytes, and sees them still when somebody has tried to store, when
  // somebody else who may has stored, and when the publisher is gone.
  int look() const {
    return with_attached(AccessRights::read, [&](DeviceWithKernels& device, sharing::AttachedRange& attached) {
      const auto seen = [&] { return device.checksum(attached.address(), bytes); };
      const std::uint64_t expected = checksum_of(different_words(bytes));
      if (attached.range().chunks().size() != 2 || seen() != expected) return 1;
      stage_->looked = 1;
      wait_until([&] { return stage_->violated.load(); });
      if (seen() != expected) return 2;
      stage_->looked = 2;
      wait_until([&] { return stage_->written.load(); });
      const std::vector<std::uint64_t> all_stored(bytes / sizeof(std::uint64_t), stored);
      if (seen() != checksum_of(all_stored)) return 3;
      stage_->looked = 3;
      if (!attached.wait(soon()).publisher_gone) return 4;
      return seen() == checksum_of(all_stored) ? 0 : 5;
    });
  }

  // On the last device: a kernel's store to the second chunk, the last of the range. The process ends with it: where
  // the store faults, its context can do nothing any more.
  int store_as(AccessRights rights) const {
    return with_attached(rights, [&](DeviceWithKernels& device, sharing::AttachedRange& attached) {
      const bool all = rights == AccessRights::read_write;
      const abi::CUresult result =
          all ? device.store(attached.address(), bytes, stored) : device.store(attached.address() + chunk, 8, stored);
      std::printf("a kernel's store through an attachment of %s was answered %d\n",
                  std::string(to_string(rights)).c_str(), static_cast<int>(result));
      std::fflush(stdout);
      const bool faulted = result == abi::CUDA_ERROR_ILLEGAL_ADDRESS || result == abi::CUDA_ERROR_LAUNCH_FAILED;
      ::_exit(result == abi::CUDA_SUCCESS ? accepted : faulted ? faults : 1);
      return 1;
    });
  }

  // All of it, one after the other.
  void run() {
    ChildProcess publisher([&] { return publish(); });
    ChildProcess looking([&] { return look(); });
    const auto looked = [&](int times) {
      wait_until([&] { return stage_->looked == times || looking_ended(looking); });
    };
    looked(1);
    EXPECT_EQ(ChildProcess([&] { return store_as(AccessRights::read); }).wait(), faults);
    stage_->violated = true;
    looked(2);
    EXPECT_EQ(ChildProcess([&] { return store_as(AccessRights::read_write); }).wait(), accepted);
    stage_->written = true;
    looked(3);
    publisher.kill();
    EXPECT_EQ(looking.wait(), 0);
  }

 private:
  static constexpr int accepted = 40;
  static constexpr int faults = 41;

  struct Stage {
    std::atomic<bool> go_on = false;
    std::atomic<int> looked = 0;
    std::atomic<bool> violated = false;
    std::atomic<bool> written = false;
  };

  static sharing::Deadline soon() { return sharing::Deadline::in(std::chrono::seconds(200)); }
  template <class Condition>
  static void wait_until(Condition&& condition) {
    while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // Without waiting for it: what it answered is asked later.
  static bool looking_ended(const ChildProcess& process) {
    siginfo_t state{};
    return ::waitid(P_PID, static_cast<id_t>(process.process()), &state, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           state.si_pid != 0;
  }

  int with_attached(AccessRights rights,
                    const std::function<int(DeviceWithKernels&, sharing::AttachedRange&)>& work) const {
    const Driver driver = open_driver_();
    const DeviceOrdinal ordinal(driver.device_count() - 1);
    DeviceWithKernels device(driver, ordinal);
    auto attached = sharing::AttachedRange::attach(
        driver, address_, "range", {.device = ordinal, .rights = rights, .wait_for_publisher = true}, soon());
    return work(device, attached);
  }

  std::function<Driver()> open_driver_;
  sharing::SocketAddress address_;
  SharedState<Stage> stage_;
};

}  // namespace cuvmm::tests
