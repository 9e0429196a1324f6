#include "cuvmm/error.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <mutex>

#include "cuvmm/units.hpp"

namespace cuvmm {

namespace {

void append_sentence(std::string& text, std::string_view sentence) {
  if (sentence.empty()) return;
  text += ' ';
  text += sentence;
  if (sentence.back() != '.' && sentence.back() != '!' && sentence.back() != '?') text += '.';
}

void append_bytes(std::string& list, std::string_view what, const std::optional<std::size_t>& bytes) {
  if (!bytes) return;
  if (!list.empty()) list += ", ";
  const std::string words = format_bytes(*bytes);
  if (words.starts_with("about"))
    list += fmt::format("{} {} B ({})", what, *bytes, words);
  else
    list += fmt::format("{} {}", what, words);
}

bool is_digit(char character) noexcept {
  return character >= '0' && character <= '9';
}

// Whether the text has that number, not as a part of another one.
bool names(std::string_view text, std::size_t number) {
  const std::string digits = std::to_string(number);
  for (std::size_t at = text.find(digits); at != std::string_view::npos; at = text.find(digits, at + 1)) {
    const std::size_t end = at + digits.size();
    if ((at == 0 || !is_digit(text[at - 1])) && (end == text.size() || !is_digit(text[end]))) return true;
  }
  return false;
}

// What the arguments tell already is not told again, nor rounding that changed nothing.
std::string memory_numbers(const Failure& failure) {
  std::string list;
  if (failure.asked_bytes && !names(failure.arguments, *failure.asked_bytes))
    append_bytes(list, "asked", failure.asked_bytes);
  if (failure.rounded_bytes != failure.asked_bytes) append_bytes(list, "rounded up to", failure.rounded_bytes);
  append_bytes(list, "free", failure.free_bytes);
  append_bytes(list, "live here", failure.live_bytes);
  append_bytes(list, "recyclable here", failure.recyclable_bytes);
  append_bytes(list, "largest hole", failure.largest_hole_bytes);
  return list.empty() ? list : fmt::format("Memory: {}", list);
}

std::string feature_and_reason(const Failure& failure) {
  if (failure.feature.empty()) return failure.reason;
  return fmt::format("Feature: {}{}{}", failure.feature, failure.reason.empty() ? "" : ": ", failure.reason);
}

}  // namespace

std::string_view to_string(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::driver_failure:
      return "driver failure";
    case ErrorKind::out_of_device_memory:
      return "out of device memory";
    case ErrorKind::out_of_host_memory:
      return "out of host memory";
    case ErrorKind::out_of_address_space:
      return "out of address space";
    case ErrorKind::out_of_multicast_slots:
      return "out of multicast slots";
    case ErrorKind::out_of_descriptors:
      return "out of file descriptors";
    case ErrorKind::not_supported:
      return "not supported";
    case ErrorKind::not_permitted:
      return "not permitted";
    case ErrorKind::invalid_use:
      return "invalid use";
    case ErrorKind::timed_out:
      return "timed out";
    case ErrorKind::peer_gone:
      return "peer gone";
    case ErrorKind::protocol_violation:
      return "protocol violation";
    case ErrorKind::device_lost:
      return "device lost";
    case ErrorKind::driver_unavailable:
      return "driver unavailable";
  }
  return "unknown kind of failure";
}

std::string Failure::message() const {
  std::string text;
  if (!callback.empty()) text = fmt::format("{} threw:", callback);
  // An exception that is none of the library's has no kind.
  if (callback.empty() || !call.empty() || code != 0) {
    if (!text.empty()) text += ' ';
    if (!call.empty()) text += fmt::format("{}({}): ", call, arguments);
    // Where no driver has answered, it was the system that failed.
    text += kind == ErrorKind::driver_failure && code == 0 ? "system failure" : to_string(kind);
    if (!code_name.empty())
      text += fmt::format(" ({} = {})", code_name, code);
    else if (code != 0)
      text += fmt::format(" (code {})", code);
    text += '.';
  }
  append_sentence(text, feature_and_reason(*this));
  append_sentence(text, rule_ids.empty() || rule.empty() ? rule_ids + rule : fmt::format("{}: {}", rule_ids, rule));
  append_sentence(text, memory_numbers(*this));
  append_sentence(text, way_out);
  return text;
}

Error::Error(Failure failure)
    : std::runtime_error(failure.message()), failure_(std::make_shared<const Failure>(std::move(failure))) {}

Error::Error(ErrorKind kind, Failure failure)
    : Error([&] {
        failure.kind = kind;
        return std::move(failure);
      }()) {}

void raise(const Failure& failure) {
  switch (failure.kind) {
    case ErrorKind::driver_failure:
      throw Error(failure);
    case ErrorKind::out_of_device_memory:
      throw OutOfDeviceMemory(failure);
    case ErrorKind::out_of_host_memory:
      throw OutOfHostMemory(failure);
    case ErrorKind::out_of_address_space:
      throw OutOfAddressSpace(failure);
    case ErrorKind::out_of_multicast_slots:
      throw OutOfMulticastSlots(failure);
    case ErrorKind::out_of_descriptors:
      throw OutOfDescriptors(failure);
    case ErrorKind::not_supported:
      throw NotSupported(failure);
    case ErrorKind::not_permitted:
      throw NotPermitted(failure);
    case ErrorKind::invalid_use:
      throw InvalidUse(failure);
    case ErrorKind::timed_out:
      throw TimedOut(failure);
    case ErrorKind::peer_gone:
      throw PeerGone(failure);
    case ErrorKind::protocol_violation:
      throw ProtocolViolation(failure);
    case ErrorKind::device_lost:
      throw DeviceLost(failure);
    case ErrorKind::driver_unavailable:
      throw DriverUnavailable(failure);
  }
  throw Error(failure);
}

namespace {

struct HandlerSlot {
  std::mutex mutex;
  std::shared_ptr<const CleanupFailureHandler> handler;  // null: the default
};

// Never destroyed: owners with static storage may report after other static objects are gone.
HandlerSlot& handler_slot() {
  static HandlerSlot& slot = *new HandlerSlot;
  return slot;
}

void write_to_standard_error(const Failure& failure) noexcept {
  try {
    const char* const what = failure.callback.empty() ? "a clean-up failed" : "a callback failed";
    const std::string line = fmt::format("cuvmm: {}: {}\n", what, failure.message());
    std::fputs(line.c_str(), stderr);
  } catch (...) {
    std::fputs("cuvmm: a clean-up failed, and there was no memory to say how\n", stderr);
  }
}

}  // namespace

CleanupFailureHandler set_cleanup_failure_handler(CleanupFailureHandler handler) {
  std::shared_ptr<const CleanupFailureHandler> replacement;
  if (handler) replacement = std::make_shared<const CleanupFailureHandler>(std::move(handler));
  HandlerSlot& slot = handler_slot();
  {
    const std::lock_guard lock(slot.mutex);
    slot.handler.swap(replacement);
  }
  return replacement ? *replacement : CleanupFailureHandler();
}

void report_cleanup_failure(const Failure& failure) noexcept {
  std::shared_ptr<const CleanupFailureHandler> handler;
  try {
    HandlerSlot& slot = handler_slot();
    const std::lock_guard lock(slot.mutex);
    handler = slot.handler;
  } catch (...) {
    // Without the lock there is no handler to call; the default below still tells.
  }
  if (!handler) return write_to_standard_error(failure);
  try {
    (*handler)(failure);
  } catch (...) {
    write_to_standard_error(failure);
  }
}

}  // namespace cuvmm
