// Writes down every call.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "driver/decorator.hpp"

namespace cuvmm::driver {

// Takes one line, without its line feed. Called by one thread at a time.
using LineSink = std::function<void(std::string_view line)>;

// A sink that appends to a file. Each line is written at once and whole, so that nothing is lost if the process dies
// and several processes may share the file. Throws InvalidUse if the file cannot be opened.
[[nodiscard]] LineSink append_to_file(const std::string& path);

// Writes one line for each call, when it has returned:
//
//   12 pid 4242 thread 1 cuMemCreate(handle = 0x7ffe, size = 2097152 (2 MiB), ...) = CUDA_SUCCESS -> handle = 0x10
//
// The first number counts calls in the order in which they started, threads are numbered from 1 in the order in which
// they first called a recording driver, and behind the arrow stands what the driver wrote through its parameters.
// Thread-safe.
class RecordingDriver final : public Decorator<RecordingDriver> {
 public:
  RecordingDriver(std::shared_ptr<Interface> next, LineSink sink);

#define CUVMM_ENTRY_POINT(group, name, version, parameters, arguments) CUresult name parameters override;
#include "driver/entry_points.def"

 private:
  // In the source file only, so that no other file pays for making a hundred of it.
  template <EntryPoint entry, class... Arguments>
  CUresult record(Arguments... arguments);

  void write(std::uint64_t sequence, EntryPoint entry, const std::string& arguments, CUresult result,
             const std::string& written);

  std::atomic<std::uint64_t> next_sequence_ = 1;
  std::mutex sink_mutex_;
  LineSink sink_;
};

}  // namespace cuvmm::driver
