#include "command/progress.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace cuvmm::command {

std::string progress_line(std::uint64_t done, std::uint64_t total, const std::string& label) {
  constexpr std::size_t width = 30;
  const double share = total == 0 ? 1.0 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(width));
  return fmt::format("[{}{}] {:3.0f} %  {}", std::string(filled, '#'), std::string(width - filled, '.'), share * 100,
                     label);
}

Progress::Progress(std::uint64_t total, Write write) : total_(total), write_(std::move(write)) {}

Progress::~Progress() {
  wipe();
}

void Progress::label(std::string text) {
  label_ = std::move(text);
}

void Progress::advance(std::uint64_t more) {
  done_ += more;
  const auto now = std::chrono::steady_clock::now();
  if (!write_ || (drawn_ != 0 && now - last_ < std::chrono::milliseconds(100))) return;
  last_ = now;
  draw();
}

void Progress::draw() {
  std::string line = progress_line(done_, total_, label_);
  const std::size_t length = line.size();
  if (length < drawn_) line.append(drawn_ - length, ' ');
  drawn_ = length;
  write_("\r" + line);
}

void Progress::wipe() {
  if (drawn_ == 0) return;
  write_("\r" + std::string(drawn_, ' ') + "\r");
  drawn_ = 0;
}

Progress::Write terminal_writer(std::uint64_t total, std::uint64_t noticeable) {
  if (total < noticeable || ::isatty(STDERR_FILENO) == 0) return {};
  return [](const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  };
}

}  // namespace cuvmm::command
