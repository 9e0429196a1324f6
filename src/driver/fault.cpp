#include "driver/fault.hpp"

#include <fmt/format.h>

#include <charconv>

#include "cuvmm/error.hpp"
#include "driver/result_names.hpp"

namespace cuvmm::driver {

namespace {

constexpr std::string_view form =
    "Write ENTRY_POINT:CALL:RESULT or ENTRY_POINT:CALL:RESULT:after, separated by commas, such as "
    "\"cuMemMap:3:OUT_OF_MEMORY\" or \"any:10+:UNKNOWN\"";

[[noreturn]] void refuse(std::string_view item, std::string_view rule) {
  Failure failure;
  failure.kind = ErrorKind::invalid_use;
  failure.call = "parse_faults";
  failure.arguments = fmt::format("\"{}\"", item);
  failure.rule = rule;
  failure.way_out = form;
  raise(failure);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<EntryPoint> parse_entry_point(std::string_view item, std::string_view name) {
  if (name == "any") return std::nullopt;
  const auto entry = find_entry_point(name);
  if (!entry) refuse(item, fmt::format("There is no entry point \"{}\"", name));
  return entry;
}

void parse_call(std::string_view item, std::string_view text, Fault& fault) {
  fault.lasting = text.ends_with('+');
  if (fault.lasting) text.remove_suffix(1);
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, fault.call);
  if (error != std::errc() || stopped != end || fault.call == 0)
    refuse(item, fmt::format("\"{}\" is not the number of a call, which are counted from 1", text));
}

abi::CUresult parse_result(std::string_view item, std::string_view name) {
  const auto result = find_result(name);
  if (!result || *result == abi::CUDA_SUCCESS)
    refuse(item, fmt::format("\"{}\" is not the name of a code with which the driver fails", name));
  return *result;
}

Fault parse_fault(std::string_view item) {
  const std::vector<std::string_view> parts = split(item, ':');
  if (parts.size() < 3 || parts.size() > 4) refuse(item, "A fault has three or four parts");
  Fault fault;
  fault.entry_point = parse_entry_point(item, parts[0]);
  parse_call(item, parts[1], fault);
  fault.result = parse_result(item, parts[2]);
  if (parts.size() == 4) {
    if (parts[3] != "after") refuse(item, fmt::format("\"{}\" should be \"after\" or left out", parts[3]));
    fault.timing = FaultTiming::after;
  }
  return fault;
}

}  // namespace

std::string to_string(const Fault& fault) {
  constexpr std::string_view prefix = "CUDA_ERROR_";
  std::string_view result = result_name(fault.result);
  if (result.starts_with(prefix)) result.remove_prefix(prefix.size());
  return fmt::format("{}:{}{}:{}{}", fault.entry_point ? name(*fault.entry_point) : "any", fault.call,
                     fault.lasting ? "+" : "", result.empty() ? std::to_string(fault.result) : std::string(result),
                     fault.timing == FaultTiming::after ? ":after" : "");
}

std::vector<Fault> parse_faults(std::string_view text) {
  std::vector<Fault> faults;
  if (text.empty()) return faults;
  for (const std::string_view item : split(text, ',')) faults.push_back(parse_fault(item));
  return faults;
}

}  // namespace cuvmm::driver
