// Plain data: what JSON can write, and pickles of nothing but data.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cuvmm::traces {

// Values of one document, which are numbers to those who use them: one that stands at several places is there once, a
// list may hold itself, and nothing is ever walked by recursion. Texts may lie in what the document was read from,
// which has to outlive the values. For one thread.
class PlainValues {
 public:
  using Id = std::uint32_t;
  enum class Type : unsigned char { nothing, boolean, integer, real, text, bytes, list, object };

  // Each throws Broken where there are too many values.
  Id add_nothing() { return add({Type::nothing}); }
  Id add_boolean(bool value) { return add({Type::boolean, false, value ? 1U : 0U}); }
  Id add_integer(bool negative, std::uint64_t magnitude) { return add({Type::integer, negative, magnitude}); }
  Id add_real() { return add({Type::real}); }  // of which nobody asks the value
  Id add_text(std::string_view text) { return add({Type::text, false, text.size(), text.data()}); }
  Id add_own_text(std::string text) { return add_text(texts_.emplace_back(std::move(text))); }
  Id add_bytes() { return add({Type::bytes}); }
  Id add_list();
  Id add_object();
  // To a list, or to an object, whose keys and values alternate.
  void append(Id container, Id value);

  [[nodiscard]] std::size_t count() const noexcept { return nodes_.size(); }
  [[nodiscard]] Type type(Id id) const { return nodes_[id].type; }
  [[nodiscard]] bool is(Id id, Type type) const { return nodes_[id].type == type; }
  // Of a list.
  [[nodiscard]] const std::vector<Id>& elements(Id id) const { return containers_[nodes_[id].number]; }
  // Of a text, an integer that is none below 0 and fits; nothing of anything else.
  [[nodiscard]] std::optional<std::string_view> text(Id id) const;
  [[nodiscard]] std::optional<std::uint64_t> natural(Id id) const;
  // Of an object.
  [[nodiscard]] std::size_t member_count(Id id) const { return containers_[nodes_[id].number].size() / 2; }
  // What an object has under that key; the last one where there are several. Nothing of anything else.
  [[nodiscard]] std::optional<Id> member(Id id, std::string_view key) const;

  Id root = 0;

 private:
  struct Node {
    Type type = Type::nothing;
    bool negative = false;
    std::uint64_t number = 0;  // a magnitude, a length, or which container
    const char* data = nullptr;
  };

  Id add(const Node& node);

  std::vector<Node> nodes_;
  std::vector<std::vector<Id>> containers_;
  std::deque<std::string> texts_;
};

// Of "list", "object" and so on, for messages.
[[nodiscard]] std::string_view to_string(PlainValues::Type type) noexcept;

}  // namespace cuvmm::traces
