// What can go wrong, as values and as exceptions.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace cuvmm {

// What a failure means for the program, whatever the driver's code for it was. One exception type for each.
enum class ErrorKind : unsigned char {
  driver_failure,          // none of the others: class Error itself
  out_of_device_memory,    // OutOfDeviceMemory
  out_of_host_memory,      // OutOfHostMemory
  out_of_address_space,    // OutOfAddressSpace
  out_of_multicast_slots,  // OutOfMulticastSlots
  out_of_descriptors,      // OutOfDescriptors
  not_supported,           // NotSupported
  not_permitted,           // NotPermitted
  invalid_use,             // InvalidUse
  timed_out,               // TimedOut
  peer_gone,               // PeerGone
  protocol_violation,      // ProtocolViolation
  device_lost,             // DeviceLost
  driver_unavailable,      // DriverUnavailable
};

// "out of device memory", "invalid use": for messages.
[[nodiscard]] std::string_view to_string(ErrorKind kind) noexcept;

// Everything known about one failure: a value that may be copied, kept and shown. Empty texts and numbers are unknown.
struct Failure {
  ErrorKind kind = ErrorKind::driver_failure;
  std::string call;       // "cuMemMap", or the library's own function where that refused: "cuvmm::Mapping::create"
  std::string arguments;  // "pointer = 0x7f0000000000, size = 2097152 (2 MiB)"
  int code = 0;           // the driver's CUresult; 0 where the library itself refused
  std::string code_name;  // "CUDA_ERROR_INVALID_VALUE"
  std::string rule_ids;  // of the rule in the rule book: "MAP-WHOLE-ALLOCATION"; several, where the code leaves it open
  std::string rule;      // the rule that was broken
  std::string way_out;   // what to do about it

  std::optional<std::size_t> asked_bytes;         // out of memory: what the caller asked for
  std::optional<std::size_t> rounded_bytes;       //   what that is in whole units of the granularity
  std::optional<std::size_t> free_bytes;          //   what the device said was free
  std::optional<std::size_t> live_bytes;          //   what this library holds and uses
  std::optional<std::size_t> recyclable_bytes;    //   what this library holds and could give back
  std::optional<std::size_t> largest_hole_bytes;  // out of address space: the largest range that could be reserved

  std::string callback;  // the program's own function that threw, where it was one: "RangeObserver::after_map(...)"

  std::string feature;  // not supported, not permitted: which feature
  std::string reason;   //   and why

  // All of it in sentences; what Error::what() answers.
  [[nodiscard]] std::string message() const;
};

// The base of all exceptions of the library. Copying one does not throw.
class Error : public std::runtime_error {
 public:
  explicit Error(Failure failure);

  [[nodiscard]] const Failure& failure() const noexcept { return *failure_; }
  [[nodiscard]] ErrorKind kind() const noexcept { return failure_->kind; }
  [[nodiscard]] int code() const noexcept { return failure_->code; }
  [[nodiscard]] const std::string& call() const noexcept { return failure_->call; }
  [[nodiscard]] const std::string& rule() const noexcept { return failure_->rule; }
  [[nodiscard]] const std::string& way_out() const noexcept { return failure_->way_out; }

 protected:
  Error(ErrorKind kind, Failure failure);  // the kind of the class overrides that of the value

 private:
  std::shared_ptr<const Failure> failure_;
};

// The device has not that much physical memory left. failure() tells asked, rounded, free, live and recyclable bytes
// as far as they are known.
class OutOfDeviceMemory : public Error {
 public:
  explicit OutOfDeviceMemory(Failure failure) : Error(ErrorKind::out_of_device_memory, std::move(failure)) {}
};

// The host has not that much memory left, or may not pin that much.
class OutOfHostMemory : public Error {
 public:
  explicit OutOfHostMemory(Failure failure) : Error(ErrorKind::out_of_host_memory, std::move(failure)) {}
};

// No range of virtual addresses of that size is free. failure().largest_hole_bytes tells what would have fitted.
class OutOfAddressSpace : public Error {
 public:
  explicit OutOfAddressSpace(Failure failure) : Error(ErrorKind::out_of_address_space, std::move(failure)) {}
};

// The switch between the devices has no room for another multicast object. Not a matter of device memory.
class OutOfMulticastSlots : public Error {
 public:
  explicit OutOfMulticastSlots(Failure failure) : Error(ErrorKind::out_of_multicast_slots, std::move(failure)) {}
};

// The process (EMFILE) or the system (ENFILE) has no file descriptor left. Never reported as a lack of memory.
class OutOfDescriptors : public Error {
 public:
  explicit OutOfDescriptors(Failure failure) : Error(ErrorKind::out_of_descriptors, std::move(failure)) {}
};

// The device or the driver lacks a feature; failure().feature and .reason say which and why.
class NotSupported : public Error {
 public:
  explicit NotSupported(Failure failure) : Error(ErrorKind::not_supported, std::move(failure)) {}
};

// The feature is there, this process may not use it: fabric handles without an IMEX channel, for one.
class NotPermitted : public Error {
 public:
  explicit NotPermitted(Failure failure) : Error(ErrorKind::not_permitted, std::move(failure)) {}
};

// The call broke a rule; rule() and way_out() say which and what to do. A bug in the calling program.
class InvalidUse : public Error {
 public:
  explicit InvalidUse(Failure failure) : Error(ErrorKind::invalid_use, std::move(failure)) {}
};

// A wait reached its deadline.
class TimedOut : public Error {
 public:
  explicit TimedOut(Failure failure) : Error(ErrorKind::timed_out, std::move(failure)) {}
};

// Another process that this one depends on has ended.
class PeerGone : public Error {
 public:
  explicit PeerGone(Failure failure) : Error(ErrorKind::peer_gone, std::move(failure)) {}
};

// Another process sent what is no message of this library's, or one of another version. Nothing of it is used.
class ProtocolViolation : public Error {
 public:
  explicit ProtocolViolation(Failure failure) : Error(ErrorKind::protocol_violation, std::move(failure)) {}
};

// The context is beyond repair (an illegal address, say): each further call on it fails with the same code.
class DeviceLost : public Error {
 public:
  explicit DeviceLost(Failure failure) : Error(ErrorKind::device_lost, std::move(failure)) {}
};

// There is no driver to work with: library missing or too old, entry point missing, no device.
class DriverUnavailable : public Error {
 public:
  explicit DriverUnavailable(Failure failure) : Error(ErrorKind::driver_unavailable, std::move(failure)) {}
};

// Throws the exception type that belongs to failure.kind.
[[noreturn]] void raise(const Failure& failure);

// Destructors neither throw nor swallow: what fails while cleaning up is passed to one handler of the process. So is
// what callbacks of the program throw where nobody could catch it: then Failure::callback tells which it was.
using CleanupFailureHandler = std::function<void(const Failure&)>;

// Sets the handler and returns the previous one; an empty one stands for the default, which writes the message to
// standard error. The handler may be called from any thread, several at a time, and must not throw (if it does, the
// message goes to standard error). Thread-safe.
CleanupFailureHandler set_cleanup_failure_handler(CleanupFailureHandler handler);

// Passes the failure to the handler: what destructors call. Thread-safe.
void report_cleanup_failure(const Failure& failure) noexcept;

}  // namespace cuvmm
