// The devices that make teams in the stops of multicast, each with the kernels of multimem_kernels.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cuvmm/driver.hpp"
#include "gpu/kernel_signatures.hpp"
#include "gpu/multimem_kernels.hpp"
#include "tour/gpu.hpp"

namespace cuvmm::tour {

using gpu::MultimemAdd;
using gpu::MultimemAlias;
using gpu::MultimemMeet;
using gpu::MultimemStore;
using gpu::MultimemSum;
using gpu::MultimemSumBfloat16;

struct Visit;

// A device with a stream of its own for those kernels. Throws cuvmm::Error where a driver call fails. Thread-safety:
// for one thread.
class TeamDevice {
 public:
  explicit TeamDevice(Gpu& gpu);
  TeamDevice(const TeamDevice&) = delete;
  TeamDevice& operator=(const TeamDevice&) = delete;
  TeamDevice(TeamDevice&&) = delete;
  TeamDevice& operator=(TeamDevice&&) = delete;
  ~TeamDevice();

  [[nodiscard]] Gpu& gpu() const noexcept { return gpu_; }
  [[nodiscard]] const Device& device() const noexcept { return gpu_.device(); }
  [[nodiscard]] abi::CUstream stream() const noexcept { return stream_; }

  // Gives the kernel to the stream.
  template <class Parameters>
  void start(Parameters parameters, std::uint64_t elements) {
    launch(Parameters::kernel, gpu::launch_shape(elements), arguments(parameters).data());
  }
  // Whether all that was given to the stream is done.
  [[nodiscard]] bool is_idle() const;
  // Waits for it.
  void finish() const;

  template <class Parameters>
  void run(const Parameters& parameters, std::uint64_t elements) {
    start(parameters, elements);
    finish();
  }

 private:
  void launch(std::string_view kernel, const gpu::LaunchShape& shape, void** parameters);

  Gpu& gpu_;
  driver::Interface& driver_;
  abi::CUmodule module_ = nullptr;
  abi::CUstream stream_ = nullptr;
};

// Why there is no multicast on the device, and what to do: a switch in the environment, the build, the driver, the
// device. Empty if there is. No multicast call is made.
[[nodiscard]] std::string why_no_multicast(const Device& device);

// The devices that may take part, as far as they reach each other: on the emulated driver those of its machine, else
// those of the visit.
class TeamDevices {
 public:
  // Throws Unavailable where there is no multicast, fewer than two devices, or no room on one of them.
  explicit TeamDevices(const Visit& visit);

  [[nodiscard]] std::size_t size() const noexcept { return devices_.size(); }
  [[nodiscard]] TeamDevice& operator[](std::size_t rank) const { return *devices_.at(rank); }
  [[nodiscard]] TeamDevice& root() const { return *devices_.front(); }
  // How many ranks the teams have that the tour shows with so many devices: 2, 4 and 8 at most.
  [[nodiscard]] std::vector<std::size_t> team_sizes() const;
  // The least that one of them has free, bytes.
  [[nodiscard]] std::uint64_t free_memory() const;

 private:
  void add(Gpu& gpu);

  std::vector<std::unique_ptr<Gpu>> beyond_;  // that are no devices of the visit
  std::vector<std::unique_ptr<TeamDevice>> devices_;
};

}  // namespace cuvmm::tour
