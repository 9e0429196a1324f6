// An emulated machine whose work can be held back, for tests of what waits for it.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "cuvmm/cuvmm.hpp"
#include "driver/call.hpp"
#include "driver/counting_driver.hpp"
#include "driver/decorator.hpp"
#include "driver/fault_injecting_driver.hpp"
#include "emulator/configuration.hpp"
#include "emulator/emulated_driver.hpp"
#include "gpu/kernel_signatures.hpp"

namespace cuvmm::test {

using namespace abi;
using driver::call;
using driver::EntryPoint;
using namespace std::chrono_literals;

// As RecordingHandler, for failures of several threads.
class SafeRecordingHandler {
 public:
  SafeRecordingHandler()
      : previous_(set_cleanup_failure_handler([this](const Failure& failure) {
          const std::lock_guard lock(mutex_);
          failures_.push_back(failure);
        })) {}
  ~SafeRecordingHandler() { set_cleanup_failure_handler(previous_); }
  SafeRecordingHandler(const SafeRecordingHandler&) = delete;
  SafeRecordingHandler& operator=(const SafeRecordingHandler&) = delete;

  // Those since the last time that this was asked.
  std::vector<Failure> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(failures_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<Failure> failures_;
  CleanupFailureHandler previous_;
};

inline emulator::Configuration strict_machine(emulator::Scheduler scheduler = emulator::Scheduler::threaded,
                                              std::uint64_t seed = 0, int devices = 2) {
  emulator::Configuration configuration;
  configuration.mode = emulator::Mode::strict;
  configuration.devices = devices;
  configuration.scheduler = scheduler;
  configuration.seed = seed;
  return configuration;
}

// Holds one call back, wherever its thread then is, until it is let go.
class HoldingDriver final : public driver::Decorator<HoldingDriver> {
 public:
  using Decorator::Decorator;

  void hold(EntryPoint entry) { held_ = entry; }
  void await_arrival() const {
    while (!arrived_) std::this_thread::yield();
  }
  void let_go() { let_go_ = true; }

  template <EntryPoint entry, class... Arguments>
  CUresult around(Arguments... arguments) {
    if (held_.load() == entry && !arrived_.exchange(true))
      while (!let_go_) std::this_thread::sleep_for(1ms);
    return forward<entry>(arguments...);
  }

 private:
  std::atomic<EntryPoint> held_ = EntryPoint::cuIpcCloseMemHandle;  // which nobody here calls
  std::atomic<bool> arrived_ = false, let_go_ = false;
};

// Strict: unmapping memory that pending work uses is refused, and the failure is seen by the handler.
class RetirementMachine {
 public:
  // The analyzer does not see that the context is initialised.
  // NOLINTNEXTLINE(clang-analyzer-optin.cplusplus.UninitializedObject)
  explicit RetirementMachine(const emulator::Configuration& configuration = strict_machine())
      : counting_(std::make_shared<driver::CountingDriver>(emulator::make_emulated_driver(configuration))),
        holding_(std::make_shared<HoldingDriver>(counting_)),
        faults_(std::make_shared<driver::FaultInjectingDriver>(holding_)),
        driver_(initialised(faults_)),
        device_(driver_.device(DeviceOrdinal{0})),
        context_(device_) {}

  [[nodiscard]] driver::Interface& api() const { return driver_.interface(); }
  [[nodiscard]] const Driver& driver() const { return driver_; }
  [[nodiscard]] const Device& device() const { return device_; }
  [[nodiscard]] driver::FaultInjectingDriver& faults() { return *faults_; }
  [[nodiscard]] HoldingDriver& holding() { return *holding_; }
  [[nodiscard]] CUcontext context() const { return context_.handle(); }

  // The calls since the last time that this was asked.
  driver::CallCounts calls() {
    const driver::CallCounts now = counting_->snapshot();
    return now - std::exchange(seen_, now);
  }

  CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING) const {
    CUstream stream = nullptr;
    call<EntryPoint::cuStreamCreate>(api(), &stream, flags);
    return stream;
  }
  void destroy(CUstream stream) const { call<EntryPoint::cuStreamDestroy>(api(), stream); }

  // Memory that both devices may use.
  [[nodiscard]] Mapping mapped() const {
    const auto range = AddressReservation::create(driver_, 2_MiB);
    auto mapping = Mapping::create(range, 0, PhysicalMemory::create(driver_, {.location = device_.location()}, 2_MiB));
    for (const Device& device : driver_.devices()) grant(mapping, device.location(), AccessRights::read_write);
    return mapping;
  }

  // Asynchronous work on the memory.
  void use(const Mapping& mapping, CUstream stream) const {
    call<EntryPoint::cuMemsetD8Async>(api(), mapping.address().value, static_cast<unsigned char>(1), 4096U, stream);
  }

  // A word that the host and all devices see.
  std::uint32_t* word() const {
    void* pointer = nullptr;
    call<EntryPoint::cuMemHostAlloc>(api(), &pointer, 4096U, CU_MEMHOSTALLOC_PORTABLE);
    auto* value = static_cast<std::uint32_t*>(pointer);
    std::atomic_ref(*value).store(0);
    return value;
  }
  // The stream goes on once the word is 1.
  void wait(CUstream stream, std::uint32_t* word) const {
    call<EntryPoint::cuStreamWaitValue32>(api(), stream, reinterpret_cast<CUdeviceptr>(word), 1U,
                                          static_cast<unsigned>(CU_STREAM_WAIT_VALUE_EQ));
  }
  // NOLINTNEXTLINE(readability-non-const-parameter): it is written through the reference
  static void open(std::uint32_t* word) { std::atomic_ref(*word).store(1); }

  void begin_capture(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) const {
    call<EntryPoint::cuStreamBeginCapture>(api(), stream, mode);
  }
  // Expects the capture to be valid.
  CUgraph end_capture(CUstream stream) const {
    CUgraph graph = nullptr;
    EXPECT_EQ(api().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS) << api().explanation();
    EXPECT_NE(graph, nullptr);
    return graph;
  }

  CUfunction kernel(std::string_view name) const {
    const std::string image = ".version 8.0\n.visible .entry " + std::string(name) + "()\n";
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    call<EntryPoint::cuModuleLoadData>(api(), &module, image.c_str());
    call<EntryPoint::cuModuleGetFunction>(api(), &function, module, std::string(name).c_str());
    return function;
  }
  // A kernel that reads the memory until its first word is not 0.
  void spin(CUfunction kernel, const Mapping& mapping, CUstream stream) const {
    gpu::SpinParameters parameters{mapping.address().value, ~std::uint64_t{0}};
    auto arguments = gpu::arguments(parameters);
    call<EntryPoint::cuLaunchKernel>(api(), kernel, 1U, 1U, 1U, 1U, 1U, 1U, 0U, stream, arguments.data(), nullptr);
  }

 private:
  static Driver initialised(const std::shared_ptr<driver::Interface>& interface) {
    call<EntryPoint::cuInit>(*interface, 0U);
    return Driver::wrap(interface);
  }

  std::shared_ptr<driver::CountingDriver> counting_;
  std::shared_ptr<HoldingDriver> holding_;
  std::shared_ptr<driver::FaultInjectingDriver> faults_;
  Driver driver_;
  Device device_;
  CurrentContext context_;
  driver::CallCounts seen_;
};

// Another device's primary context, current for a while.
class CreatedContext {
 public:
  explicit CreatedContext(RetirementMachine& machine, int device = 0) : machine_(machine) {
    call<EntryPoint::cuCtxCreate>(machine_.api(), &handle_, 0U, device);
    pop();
  }
  void push() { call<EntryPoint::cuCtxPushCurrent>(machine_.api(), handle_); }
  void pop() {
    CUcontext popped = nullptr;
    call<EntryPoint::cuCtxPopCurrent>(machine_.api(), &popped);
  }
  CUstream stream() {
    push();
    CUstream made = machine_.stream();
    pop();
    return made;
  }
  void destroy() { call<EntryPoint::cuCtxDestroy>(machine_.api(), handle_); }
  [[nodiscard]] CUcontext handle() const { return handle_; }

 private:
  RetirementMachine& machine_;
  CUcontext handle_ = nullptr;
};

}  // namespace cuvmm::test
