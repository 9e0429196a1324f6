#include "traces/json_values.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "traces/trace_error.hpp"

namespace cuvmm::traces {

namespace {

using Json = nlohmann::json;

// What the parser calls; each answers whether to go on.
class Handler {
 public:
  bool null() { return put(values_.add_nothing()); }
  bool boolean(bool value) { return put(values_.add_boolean(value)); }
  bool number_integer(std::int64_t value) {
    return put(values_.add_integer(
        value < 0, value < 0 ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value)));
  }
  bool number_unsigned(std::uint64_t value) { return put(values_.add_integer(false, value)); }
  bool number_float(double /*value*/, const std::string& /*text*/) { return put(values_.add_real()); }
  bool string(std::string& text) { return put(values_.add_own_text(std::move(text))); }
  bool binary(Json::binary_t& /*bytes*/) { return put(values_.add_bytes()); }
  bool start_object(std::size_t /*size*/) { return open(values_.add_object()); }
  bool key(std::string& text) { return put(values_.add_own_text(std::move(text))); }
  bool end_object() { return close(); }
  bool start_array(std::size_t /*size*/) { return open(values_.add_list()); }
  bool end_array() { return close(); }
  [[noreturn]] static bool parse_error(std::size_t place, const std::string& /*token*/,
                                       const Json::exception& /*why*/) {
    throw Broken(fmt::format("at byte {}: it is no JSON", place));
  }

  [[nodiscard]] PlainValues take() && { return std::move(values_); }

 private:
  bool put(PlainValues::Id value) {
    if (open_.empty()) {
      values_.root = value;
    } else {
      values_.append(open_.back(), value);
    }
    return true;
  }
  bool open(PlainValues::Id container) {
    put(container);
    open_.push_back(container);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  PlainValues values_;
  std::vector<PlainValues::Id> open_;
};

}  // namespace

PlainValues read_json(std::string_view text) {
  Handler handler;
  static_cast<void>(Json::sax_parse(text.begin(), text.end(), &handler));
  return std::move(handler).take();
}

}  // namespace cuvmm::traces
