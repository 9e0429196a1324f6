// A strict emulated machine for pools, whose calls are counted and may be made to fail.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "cuvmm/context.hpp"
#include "cuvmm/device.hpp"
#include "cuvmm/pool/pool.hpp"
#include "driver/call.hpp"
#include "driver/counting_driver.hpp"
#include "driver/fault_injecting_driver.hpp"
#include "emulator/api/emulated_driver.hpp"
#include "emulator/configuration.hpp"
#include "retirement.hpp"

namespace cuvmm::test {

inline emulator::Configuration pool_machine(std::size_t memory = 4_GiB, int devices = 1,
                                            emulator::Scheduler scheduler = emulator::Scheduler::threaded,
                                            std::uint64_t seed = 0) {
  emulator::Configuration configuration = strict_machine(scheduler, seed, devices);
  configuration.device_memory = memory;
  configuration.on_warning = [](const std::string&) {};
  return configuration;
}

class PoolMachine {
 public:
  explicit PoolMachine(const emulator::Configuration& configuration = pool_machine())
      : emulated_(std::make_shared<emulator::api::EmulatedDriver>(configuration)),
        counting_(std::make_shared<driver::CountingDriver>(emulated_)),
        faults_(std::make_shared<driver::FaultInjectingDriver>(counting_)) {
    call<EntryPoint::cuInit>(*faults_, 0U);
    driver_.emplace(Driver::wrap(faults_));
    context_.emplace(driver_->device(DeviceOrdinal{0}));
  }

  [[nodiscard]] const Driver& driver() const { return *driver_; }
  [[nodiscard]] driver::Interface& api() const { return driver_->interface(); }
  [[nodiscard]] driver::FaultInjectingDriver& faults() const { return *faults_; }

  // The calls since the last time that this was asked.
  driver::CallCounts calls() {
    const driver::CallCounts now = counting_->snapshot();
    return now - std::exchange(seen_, now);
  }
  // Of memory and addresses: no handle, reservation or mapping.
  [[nodiscard]] bool nothing_live() const {
    return emulated_->machine().live_objects() == emulator::api::Machine::LiveObjects{};
  }
  [[nodiscard]] std::size_t free_memory(int device = 0) const {
    std::size_t free = 0;
    emulated_->machine().memory_info(device, &free, nullptr);
    return free;
  }

  [[nodiscard]] CUstream stream() const {
    CUstream stream = nullptr;
    call<EntryPoint::cuStreamCreate>(api(), &stream, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
    return stream;
  }
  void finish(CUstream stream) const { call<EntryPoint::cuStreamSynchronize>(api(), stream); }

  // Work on the memory: each word becomes that value.
  void fill(DeviceAddress address, std::size_t bytes, unsigned value, CUstream stream) const {
    call<EntryPoint::cuMemsetD32Async>(api(), address.value, value, bytes / 4, stream);
  }
  void read(DeviceAddress address, unsigned* word, CUstream stream) const {
    call<EntryPoint::cuMemcpyDtoHAsync>(api(), static_cast<void*>(word), address.value, sizeof(unsigned), stream);
  }

  // Holds the stream back until the word is 1.
  [[nodiscard]] std::uint32_t* hold(CUstream stream) const {
    void* pointer = nullptr;
    call<EntryPoint::cuMemHostAlloc>(api(), &pointer, std::size_t{4096},
                                     static_cast<unsigned>(CU_MEMHOSTALLOC_PORTABLE));
    auto* word = static_cast<std::uint32_t*>(pointer);
    std::atomic_ref(*word).store(0);
    call<EntryPoint::cuStreamWaitValue32>(api(), stream, reinterpret_cast<CUdeviceptr>(word), 1U,
                                          static_cast<unsigned>(CU_STREAM_WAIT_VALUE_EQ));
    return word;
  }
  // NOLINTNEXTLINE(readability-non-const-parameter): it is written through the reference
  void let_go(std::uint32_t* word, CUstream stream) const {
    std::atomic_ref(*word).store(1);
    finish(stream);
    call<EntryPoint::cuMemFreeHost>(api(), static_cast<void*>(word));
  }

 private:
  std::shared_ptr<emulator::api::EmulatedDriver> emulated_;
  std::shared_ptr<driver::CountingDriver> counting_;
  std::shared_ptr<driver::FaultInjectingDriver> faults_;
  std::optional<Driver> driver_;
  std::optional<CurrentContext> context_;
  driver::CallCounts seen_;
};

}  // namespace cuvmm::test
