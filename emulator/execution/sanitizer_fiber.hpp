// What the address and thread sanitizers are told when a thread goes on on another stack. Does nothing without them.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define CUVMM_FIBERS_UNDER_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CUVMM_FIBERS_UNDER_ADDRESS_SANITIZER
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define CUVMM_FIBERS_UNDER_THREAD_SANITIZER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CUVMM_FIBERS_UNDER_THREAD_SANITIZER
#endif
#endif

#ifdef CUVMM_FIBERS_UNDER_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef CUVMM_FIBERS_UNDER_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

namespace cuvmm::emulator::execution {

// One for each fiber. `leave` comes right before a switch, `arrive` right behind it, on the stack that is then used.
class SanitizerFiber {
 public:
#ifdef CUVMM_FIBERS_UNDER_ADDRESS_SANITIZER
  void leave_outside(const void* lowest, std::size_t bytes) {
    __sanitizer_start_switch_fiber(&fake_outside_, lowest, bytes);
  }
  void arrive_inside() {
    __sanitizer_finish_switch_fiber(fake_inside_, &lowest_outside_, &bytes_outside_);
  }
  void leave_inside() {
    __sanitizer_start_switch_fiber(&fake_inside_, lowest_outside_, bytes_outside_);
  }
  void leave_for_good() {
    __sanitizer_start_switch_fiber(nullptr, lowest_outside_, bytes_outside_);
  }
  void arrive_outside() {
    __sanitizer_finish_switch_fiber(fake_outside_, nullptr, nullptr);
  }

 private:
  void* fake_outside_ = nullptr;
  void* fake_inside_ = nullptr;
  const void* lowest_outside_ = nullptr;
  std::size_t bytes_outside_ = 0;
#elif defined(CUVMM_FIBERS_UNDER_THREAD_SANITIZER)
  SanitizerFiber() : inside_(__tsan_create_fiber(0)) {}
  ~SanitizerFiber() {
    __tsan_destroy_fiber(inside_);
  }
  SanitizerFiber(const SanitizerFiber&) = delete;
  SanitizerFiber& operator=(const SanitizerFiber&) = delete;
  SanitizerFiber(SanitizerFiber&&) = delete;
  SanitizerFiber& operator=(SanitizerFiber&&) = delete;

  // It takes the switch to be made here, and counts the calls of each fiber: so these are never calls themselves.
  [[gnu::always_inline]] void leave_outside(const void*, std::size_t) {
    outside_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(inside_, 0);
  }
  void arrive_inside() {}
  [[gnu::always_inline]] void leave_inside() {
    __tsan_switch_to_fiber(outside_, 0);
  }
  [[gnu::always_inline]] void leave_for_good() {
    __tsan_switch_to_fiber(outside_, 0);
  }
  void arrive_outside() {}

 private:
  void* inside_;
  void* outside_ = nullptr;
#else
  void leave_outside(const void*, std::size_t) {}
  void arrive_inside() {}
  void leave_inside() {}
  void leave_for_good() {}
  void arrive_outside() {}
#endif
};

}  // namespace cuvmm::emulator::execution
