// A stop of the tour: one section of the guide's chapter on virtual memory management, shown at work.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "command/driver_choice.hpp"
#include "command/progress.hpp"
#include "cuvmm/access_grant.hpp"
#include "cuvmm/driver.hpp"
#include "cuvmm/error.hpp"
#include "driver/interface.hpp"
#include "tour/checks.hpp"
#include "tour/gpu.hpp"
#include "tour/input_file.hpp"
#include "tour/options.hpp"

namespace cuvmm::tour {

// What a stop works with.
struct Visit {
  Driver driver;                               // counts the calls
  std::span<const std::unique_ptr<Gpu>> gpus;  // those that take part, at least one
  const InputFile& input;
  std::uint64_t checksum;        // of the input, taken by the host from the file
  command::DriverChoice choice;  // cuda or emulated: what child processes are to use
  command::Progress& progress;
  Checks& checks;
  std::string shown;             // a stop may say more exactly what it showed
  std::uint64_t bytes = 0;       // of the input, that went through the feature
  command::DriverPlace place{};  // where other processes find the same devices
};

struct Stop {
  std::string id;         // the guide's section, or the name of a shape that is built on several of them
  std::string name;       // its subject
  std::string shown;      // what the stop shows, in one line
  void (*visit)(Visit&);  // throws CheckFailed, Unavailable, InputError or cuvmm::Error
};

// All stops: sections in the guide's order, then shapes.
[[nodiscard]] std::span<const Stop> all_stops();

// Each stop has a file of its own under tour/stops.
[[nodiscard]] Stop query_stop();
[[nodiscard]] Stop life_cycle_stop();
[[nodiscard]] Stop export_stop();
[[nodiscard]] Stop import_stop();
[[nodiscard]] Stop mapping_stop();
[[nodiscard]] Stop access_stop();
[[nodiscard]] Stop release_stop();
[[nodiscard]] Stop multicast_object_stop();
[[nodiscard]] Stop multicast_device_stop();
[[nodiscard]] Stop multicast_binding_stop();
[[nodiscard]] Stop multicast_use_stop();
[[nodiscard]] Stop host_memory_stop();
[[nodiscard]] Stop compression_stop();
[[nodiscard]] Stop alias_stop();
[[nodiscard]] Stop handle_types_stop();
[[nodiscard]] Stop vector_stop();
[[nodiscard]] Stop ring_stop();
[[nodiscard]] Stop stitched_stop();
[[nodiscard]] Stop sleep_stop();

// The first device, with its context current. Throws Unavailable if it has no virtual memory management, cannot run the
// kernels, or has no room for a stop.
[[nodiscard]] Gpu& require_first_gpu(const Visit& visit);

// Throws Unavailable if that many other processes cannot take part, beside the device.
void require_other_processes(const Visit& visit, const Gpu& gpu, int count);

// `bytes` bytes to do something else with than moving the input: the input's first, filled up where it has less, with
// bytes that repeat nowhere. They do not count as moved.
[[nodiscard]] std::vector<std::byte> sample_of_input(const InputFile& input, std::size_t bytes);

// Calls `move` with each piece of the input in turn: its offset, a multiple of 8, and its bytes, which it may
// overwrite. No piece is larger than `most_bytes`. Reports the progress.
void for_each_piece(Visit& visit, std::uint64_t most_bytes,
                    const std::function<void(std::uint64_t offset, std::span<std::byte> piece)>& move);

// The same of bytes that do not count as moved: for what goes through the feature once more. Reports no progress.
void read_pieces(const InputFile& input, std::uint64_t most_bytes,
                 const std::function<void(std::uint64_t offset, std::span<std::byte> piece)>& read);

// How many bytes of device memory a stop may hold at once: enough for the whole input if it is small, bounded for a
// large one, so that inputs larger than the device's memory move through in pieces. A multiple of `granularity`, and at
// least twice that.
[[nodiscard]] std::uint64_t window_bytes(std::uint64_t input_bytes, std::uint64_t granularity,
                                         std::uint64_t free_bytes);

// Makes sure that the checksum taken through the feature is the input's. `what` is how it was seen.
void require_checksum(Visit& visit, std::uint64_t seen, const std::string& what);

// Makes sure that the driver says that the location has these rights to what is mapped at the address. `whose` begins
// the statement.
void require_rights(Visit& visit, DeviceAddress address, const Location& location, AccessRights expected,
                    const std::string& whose);

// Makes sure that the device comes to have `bytes` bytes more free than `free_before`. Others may use the device too,
// and a driver may take a moment: so it is asked several times. `what` is the statement.
void require_comes_back(Visit& visit, const Gpu& gpu, std::uint64_t free_before, std::uint64_t bytes,
                        const std::string& what);

// Makes sure that a call that breaks a rule was refused with one of the codes that stand for that rule; any other says
// that something else went wrong. The check's statement names the code. `violation` is what was tried: "mapping a part
// of an allocation".
void require_refused(Checks& checks, abi::CUresult result, std::initializer_list<abi::CUresult> codes,
                     const std::string& violation);

// Makes sure that a call succeeded that differs from a refused one in one thing only.
void require_accepted(Checks& checks, abi::CUresult result, const std::string& tried);

// The same for a function of the library: returns what `attempt` returns.
template <typename Attempt>
auto require_accepted(Checks& checks, const std::string& tried, Attempt attempt) {
  try {
    if constexpr (std::is_void_v<decltype(attempt())>) {
      attempt();
      checks.require(true, tried + " is accepted");
    } else {
      auto made = attempt();
      checks.require(true, tried + " is accepted");
      return made;
    }
  } catch (const Error& error) {
    checks.require(false, tried + " is accepted", error.what());
    throw;
  }
}

}  // namespace cuvmm::tour
