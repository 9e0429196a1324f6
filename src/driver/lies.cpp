#include "driver/lies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "cuvmm/error.hpp"

namespace cuvmm::driver {

namespace {

struct NamedLie {
  std::string_view name;
  bool Lies::*lie;
};

constexpr std::array named_lies{
    NamedLie{"flip_copied_byte", &Lies::flip_copied_byte},
    NamedLie{"flip_streamed_byte", &Lies::flip_streamed_byte},
    NamedLie{"ignore_read_only", &Lies::ignore_read_only},
    NamedLie{"ignore_read_only_alias", &Lies::ignore_read_only_alias},
    NamedLie{"keep_released_memory", &Lies::keep_released_memory},
    NamedLie{"keep_sleeping_memory", &Lies::keep_sleeping_memory},
    NamedLie{"ignore_second_grant", &Lies::ignore_second_grant},
    NamedLie{"ignore_host_grant", &Lies::ignore_host_grant},
    NamedLie{"repeat_chunk", &Lies::repeat_chunk},
    NamedLie{"keep_replaced_memory", &Lies::keep_replaced_memory},
    NamedLie{"separate_aliases", &Lies::separate_aliases},
    NamedLie{"separate_moved_memory", &Lies::separate_moved_memory},
    NamedLie{"separate_ring", &Lies::separate_ring},
    NamedLie{"gather_places", &Lies::gather_places},
    NamedLie{"report_events_done", &Lies::report_events_done},
    NamedLie{"claim_compression", &Lies::claim_compression},
    NamedLie{"renew_second_export", &Lies::renew_second_export},
    NamedLie{"repeat_import", &Lies::repeat_import},
    NamedLie{"keep_imported_memory", &Lies::keep_imported_memory},
    NamedLie{"accept_windows_handles", &Lies::accept_windows_handles},
    NamedLie{"flip_host_fabric_handle", &Lies::flip_host_fabric_handle},
    NamedLie{"round_multicast_sizes", &Lies::round_multicast_sizes},
    NamedLie{"accept_device_twice", &Lies::accept_device_twice},
    NamedLie{"misplace_bind", &Lies::misplace_bind},
    NamedLie{"lose_replica", &Lies::lose_replica},
    NamedLie{"skip_barriers", &Lies::skip_barriers},
};

[[noreturn]] void refuse_lie(std::string_view item) {
  Failure failure;
  failure.kind = ErrorKind::invalid_use;
  failure.call = "parse_lies";
  failure.arguments = fmt::format("\"{}\"", item);
  failure.rule = "There is no such lie";
  std::string known;
  for (const NamedLie& each : named_lies) known += fmt::format("{}, ", each.name);
  failure.way_out = fmt::format("Write {}or flip_copied_byte:N with N from 1, separated by commas", known);
  raise(failure);
}

void parse_number(std::string_view item, std::string_view number, Lies& lies) {
  const char* const end = number.data() + number.size();
  const auto [stopped, error] = std::from_chars(number.data(), end, lies.only_copy);
  if (error != std::errc() || stopped != end || lies.only_copy == 0) refuse_lie(item);
}

void parse_lie(std::string_view item, Lies& lies) {
  constexpr std::string_view flip_one = "flip_copied_byte:";
  if (item.starts_with(flip_one)) {
    lies.flip_copied_byte = true;
    parse_number(item, item.substr(flip_one.size()), lies);
    return;
  }
  const auto found =
      std::find_if(named_lies.begin(), named_lies.end(), [&](const NamedLie& each) { return each.name == item; });
  if (found == named_lies.end()) refuse_lie(item);
  lies.*found->lie = true;
}

}  // namespace

Lies parse_lies(std::string_view text) {
  Lies lies;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    parse_lie(text.substr(0, comma), lies);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
    if (text.empty()) refuse_lie(text);
  }
  return lies;
}

}  // namespace cuvmm::driver
