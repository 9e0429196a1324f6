// A progress bar on a terminal, for work that takes a while.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace cuvmm::command {

// "[#####.....]  50 %  4.16.2", for a share of done/total; all of it if total is 0.
[[nodiscard]] std::string progress_line(std::uint64_t done, std::uint64_t total, const std::string& label);

// Draws a line over and over as work is done, and wipes it away at the end. Thread-safety: for one thread.
class Progress {
 public:
  using Write = std::function<void(const std::string&)>;

  // `total` bytes, or other units of work, will be reported. A Progress without `write` draws nothing.
  explicit Progress(std::uint64_t total = 0, Write write = {});
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  // What is being done from now on.
  void label(std::string text);

  // So many more are done. Draws at most ten times a second.
  void advance(std::uint64_t more);

  // Wipes the line away, so that other output may be written. The next advance() draws it anew.
  void wipe();

 private:
  void draw();

  std::uint64_t total_;
  std::uint64_t done_ = 0;
  Write write_;
  std::string label_;
  std::size_t drawn_ = 0;  // characters of the line on the terminal
  std::chrono::steady_clock::time_point last_{};
};

// What to write with for `total` units of work: to standard error if that is a terminal and there are as many as people
// notice; else nothing.
inline constexpr std::uint64_t noticeable_bytes = std::uint64_t{256} << 20;  // that are moved
[[nodiscard]] Progress::Write terminal_writer(std::uint64_t total, std::uint64_t noticeable = noticeable_bytes);

}  // namespace cuvmm::command
