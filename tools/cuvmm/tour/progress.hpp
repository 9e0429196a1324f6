// A progress bar on a terminal, for input that takes a while.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace cuvmm::tour {

// "[#####.....]  50 %  4.16.2", for a share of done/total; all of it if total is 0.
[[nodiscard]] std::string progress_line(std::uint64_t done, std::uint64_t total, const std::string& label);

// Draws a line over and over as bytes are moved, and wipes it away at the end. Thread-safety: for one thread.
class Progress {
 public:
  using Write = std::function<void(const std::string&)>;

  // `total` bytes will be reported. A Progress without `write` draws nothing.
  explicit Progress(std::uint64_t total = 0, Write write = {});
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  // What is being done from now on.
  void label(std::string text);

  // So many bytes more are done. Draws at most ten times a second.
  void advance(std::uint64_t bytes);

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

// What to write with for an input that will be moved `total` bytes: to standard error if that is a terminal and the
// work is large enough to be noticed; else nothing.
[[nodiscard]] Progress::Write terminal_writer(std::uint64_t total);

}  // namespace cuvmm::tour
