#include "traces/memory_snapshot.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "traces/fields.hpp"

namespace cuvmm::traces {

namespace {

using Id = PlainValues::Id;
using Type = PlainValues::Type;

constexpr std::string_view how_to_record =
    "record one by torch.cuda.memory._record_memory_history() before, and _dump_snapshot() after the work";

const std::vector<Id>& histories_of(const PlainValues& values) {
  const auto histories = values.member(values.root, "device_traces");
  if (!histories || !values.is(*histories, Type::list))
    throw Broken(fmt::format("it is no memory snapshot of PyTorch, which has a list device_traces: {}", how_to_record));
  for (const Id each : values.elements(*histories))
    if (!values.is(each, Type::list)) throw Broken("in device_traces is something that is no list of events");
  return values.elements(*histories);
}

std::size_t chosen_device(const PlainValues& values, const std::vector<Id>& histories,
                          std::optional<std::size_t> device) {
  const auto events = [&](std::size_t number) { return values.elements(histories[number]).size(); };
  std::vector<std::size_t> recorded;
  for (std::size_t i = 0; i < histories.size(); ++i)
    if (events(i) != 0) recorded.push_back(i);
  if (device && std::find(recorded.begin(), recorded.end(), *device) == recorded.end())
    throw Broken(fmt::format("it has no events of device {}, but of these: {}", *device,
                             recorded.empty() ? "none" : fmt::format("{}", fmt::join(recorded, ", "))));
  if (device) return *device;
  if (recorded.empty()) throw Broken(fmt::format("it has no events: {}", how_to_record));
  if (recorded.size() > 1)
    throw Broken(fmt::format("it has events of {} devices, {} and {} among them: choose one of them by --trace-device",
                             recorded.size(), recorded[0], recorded[1]));
  return recorded.front();
}

class History {
 public:
  explicit History(const PlainValues& values) : values_(values) {}

  void read(Id event) {
    if (!values_.is(event, Type::object)) throw Broken("it is no object");
    if (values_.member_count(event) > most_members) throw Broken("it has more members than an event");
    const auto action_id = values_.member(event, "action");
    const auto action = action_id ? values_.text(*action_id) : std::nullopt;
    if (!action) throw Broken("it has no text action");
    if (action == "alloc") {
      recorder_.allocate(number(event, "addr"), number(event, "size"), number(event, "stream"), time(event));
    } else if (action == "free_completed" || action == "free") {
      recorder_.free(number(event, "addr"), time(event));
    }
  }
  AllocationTrace finish() && { return std::move(recorder_).finish("PyTorch's memory history, of a snapshot"); }

 private:
  static constexpr std::size_t most_members = 64;

  [[nodiscard]] std::uint64_t number(Id event, std::string_view name) const {
    const auto id = values_.member(event, name);
    const auto number = id ? values_.natural(*id) : std::nullopt;
    if (!number) throw Broken(fmt::format("{} is no number that is 0 or more", name));
    return *number;
  }
  [[nodiscard]] std::chrono::microseconds time(Id event) const {
    const auto id = values_.member(event, "time_us");  // which older ones do not have
    const auto time = id ? values_.natural(*id) : std::nullopt;
    return std::chrono::microseconds(static_cast<std::int64_t>(std::min<std::uint64_t>(time.value_or(0), INT64_MAX)));
  }

  const PlainValues& values_;
  AllocationRecorder recorder_;
};

}  // namespace

AllocationTrace read_snapshot(const PlainValues& values, std::optional<std::size_t> device) {
  const std::vector<Id>& histories = histories_of(values);
  const std::size_t chosen = chosen_device(values, histories, device);
  History history(values);
  const std::vector<Id>& events = values.elements(histories[chosen]);
  for (std::size_t i = 0; i < events.size(); ++i) {
    try {
      history.read(events[i]);
    } catch (const Broken& broken) {
      throw Broken(fmt::format("device_traces[{}][{}]: {}", chosen, i, broken.what()));
    }
  }
  return std::move(history).finish();
}

}  // namespace cuvmm::traces
