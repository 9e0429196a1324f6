#include "sharing/content.hpp"

#include <algorithm>

#include "sharing/locality_fields.hpp"

namespace cuvmm::sharing {

namespace {

// One list for both directions, so that they cannot differ.
template <class SomeFailure, class Visit>
void visit_texts(SomeFailure& failure, Visit&& visit) {
  visit(failure.call);
  visit(failure.arguments);
  visit(failure.code_name);
  visit(failure.rule_ids);
  visit(failure.rule);
  visit(failure.way_out);
  visit(failure.feature);
  visit(failure.reason);
}

template <class SomeFailure, class Visit>
void visit_sizes(SomeFailure& failure, Visit&& visit) {
  visit(failure.asked_bytes);
  visit(failure.rounded_bytes);
  visit(failure.free_bytes);
  visit(failure.live_bytes);
  visit(failure.recyclable_bytes);
  visit(failure.largest_hole_bytes);
}

}  // namespace

std::vector<std::byte> encode(const Introduction& introduction) {
  Writer writer;
  write(writer, introduction.locality);
  writer.text(introduction.token);
  return writer.take();
}

std::optional<Introduction> decode_introduction(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Introduction introduction;
  introduction.locality = read_locality(reader);
  introduction.token = reader.text(most_token_bytes);
  if (!reader.complete()) return std::nullopt;
  return introduction;
}

std::vector<std::byte> encode(const Failure& failure) {
  Writer writer;
  writer.number(static_cast<std::uint8_t>(failure.kind)).number(static_cast<std::uint32_t>(failure.code));
  visit_texts(failure,
              [&](const std::string& text) { writer.text(std::string_view(text).substr(0, most_text_bytes)); });
  visit_sizes(failure, [&](const std::optional<std::size_t>& size) {
    writer.number(std::uint8_t{size.has_value()}).number(std::uint64_t{size.value_or(0)});
  });
  return writer.take();
}

std::optional<Failure> decode_failure(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Failure failure;
  const auto kind = reader.number<std::uint8_t>();
  failure.kind = static_cast<ErrorKind>(kind);
  failure.code = static_cast<int>(reader.number<std::uint32_t>());
  visit_texts(failure, [&](std::string& text) { text = reader.text(most_text_bytes); });
  visit_sizes(failure, [&](std::optional<std::size_t>& size) {
    const bool known = reader.number<std::uint8_t>() != 0;
    const auto number = reader.number<std::uint64_t>();
    if (known) size = static_cast<std::size_t>(number);
  });
  if (!reader.complete() || kind > static_cast<std::uint8_t>(ErrorKind::driver_unavailable)) return std::nullopt;
  return failure;
}

}  // namespace cuvmm::sharing
