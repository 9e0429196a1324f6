#include "traces/plain_values.hpp"

#include "traces/trace_error.hpp"

namespace cuvmm::traces {

namespace {

constexpr std::size_t most_values = std::size_t{1} << 26;  // some GiB of memory

}  // namespace

PlainValues::Id PlainValues::add(const Node& node) {
  if (nodes_.size() == most_values) throw Broken("it has more than 67,108,864 values");
  nodes_.push_back(node);
  return static_cast<Id>(nodes_.size() - 1);
}

PlainValues::Id PlainValues::add_list() {
  containers_.emplace_back();
  return add({Type::list, false, containers_.size() - 1});
}

PlainValues::Id PlainValues::add_object() {
  containers_.emplace_back();
  return add({Type::object, false, containers_.size() - 1});
}

void PlainValues::append(Id container, Id value) {
  containers_[nodes_[container].number].push_back(value);
}

std::optional<std::string_view> PlainValues::text(Id id) const {
  const Node& node = nodes_[id];
  if (node.type != Type::text) return std::nullopt;
  return std::string_view(node.data, node.number);
}

std::optional<std::uint64_t> PlainValues::natural(Id id) const {
  const Node& node = nodes_[id];
  if (node.type != Type::integer || node.negative) return std::nullopt;
  return node.number;
}

std::optional<PlainValues::Id> PlainValues::member(Id id, std::string_view key) const {
  if (nodes_[id].type != Type::object) return std::nullopt;
  const std::vector<Id>& parts = containers_[nodes_[id].number];
  for (std::size_t i = parts.size(); i >= 2; i -= 2)
    if (text(parts[i - 2]) == key) return parts[i - 1];
  return std::nullopt;
}

std::string_view to_string(PlainValues::Type type) noexcept {
  using Type = PlainValues::Type;
  switch (type) {
    case Type::nothing:
      return "nothing";
    case Type::boolean:
      return "a boolean";
    case Type::integer:
      return "an integer";
    case Type::real:
      return "a real number";
    case Type::text:
      return "a text";
    case Type::bytes:
      return "bytes";
    case Type::list:
      return "a list";
    case Type::object:
      break;
  }
  return "an object";
}

}  // namespace cuvmm::traces
