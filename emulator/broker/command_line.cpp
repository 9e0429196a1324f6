#include "emulator/broker/command_line.hpp"

#include <charconv>
#include <string_view>

namespace cuvmm::emulator::broker {
namespace {

template <class Number>
bool read(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::vector<std::string> words_of(const Task& task) {
  const MachineShape& shape = task.shape;
  return {task.path,
          task.settings,
          std::to_string(shape.nodes),
          std::to_string(shape.devices),
          std::to_string(shape.device_bytes),
          std::to_string(shape.host_bytes),
          std::to_string(shape.host_gap),
          std::to_string(shape.multicast_slots)};
}

std::optional<Task> task_of(const std::vector<std::string>& words) {
  if (words.size() != 8) return std::nullopt;
  Task task{words[0], {}, words[1]};
  MachineShape& shape = task.shape;
  const bool read_all = read(words[2], shape.nodes) && read(words[3], shape.devices) &&
                        read(words[4], shape.device_bytes) && read(words[5], shape.host_bytes) &&
                        read(words[6], shape.host_gap) && read(words[7], shape.multicast_slots);
  if (!read_all || shape.nodes < 1 || shape.devices < 1 || shape.multicast_slots < 0) return std::nullopt;
  return task;
}

}  // namespace cuvmm::emulator::broker
