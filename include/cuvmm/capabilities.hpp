// What a device can do here: announced, proved by use, and if not, why and what to do about it.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cuvmm/device.hpp"
#include "cuvmm/memory_properties.hpp"

namespace cuvmm {

// What can be asked for singly (guide 4.16.1.2).
enum class Feature : unsigned char {
  virtual_memory_management,
  posix_file_descriptor_handles,  // creating and exporting memory with them
  fabric_handles,
  win32_handles,
  win32_kmt_handles,
  multicast,
  compression,
  gpu_direct_rdma,  // for memory of cuMemCreate
  dma_buf,          // exporting ranges as dma-bufs
  host_memory,      // LocationKind::host for cuMemCreate
  host_numa_memory,
  host_numa_multinode_ipc,  // extended GPU memory: host NUMA memory shared between nodes by fabric handles
  read_only_access,
  memory_pools,  // stream-ordered allocation (cuMemAllocAsync)
  host_memory_pools,
  host_numa_memory_pools,
  stream_memory_operations_64_bit,  // cuStreamWriteValue64, cuStreamWaitValue64
  stream_wait_value_nor,
};
inline constexpr std::size_t feature_count = 18;

// All of them, in this order.
[[nodiscard]] std::array<Feature, feature_count> all_features() noexcept;

// "posix_file_descriptor_handles": the enumerator's name, which stays as it is from version to version.
[[nodiscard]] std::string_view identifier(Feature feature) noexcept;

// "POSIX file descriptor handles": for people.
[[nodiscard]] std::string_view to_string(Feature feature) noexcept;

enum class FeatureState : unsigned char {
  no,
  yes,      // announced, and where it was tried it worked; or not announced by any attribute, and it worked
  refused,  // announced, and refused when it was tried
  unknown,  // no attribute tells, or a trial could not be made to its end; `reason` says which
};

// "no", "yes", "advertised but refused", "unknown".
[[nodiscard]] std::string_view to_string(FeatureState state) noexcept;

enum class TrialResult : unsigned char {
  not_made,
  worked,
  failed,
  inconclusive,  // it ended for a reason that says nothing of the feature: no memory left, for one
};

// "not made", "worked", "failed", "inconclusive".
[[nodiscard]] std::string_view to_string(TrialResult result) noexcept;

// What is known of one feature.
struct Capability {
  FeatureState state = FeatureState::unknown;
  std::optional<int> attribute;  // the driver's answer; nothing where it has no attribute for this
  TrialResult trial = TrialResult::not_made;
  std::string reason;  // why not, or why it was not tried; empty where there is nothing to say
  std::string remedy;  // what an administrator or a programmer can do about it; may be empty

  friend bool operator==(const Capability&, const Capability&) noexcept = default;
};

// The units of sizes for memory of one kind on the device.
struct MemoryGranularity {
  MemoryProperties properties;
  std::size_t minimum = 0;      // bytes
  std::size_t recommended = 0;  // bytes

  friend bool operator==(const MemoryGranularity&, const MemoryGranularity&) noexcept = default;
};

// A channel that fabric handles need: a device file of the IMEX service.
struct ImexChannel {
  int number = 0;
  std::string path;
  bool accessible = false;  // this process may read and write it

  friend bool operator==(const ImexChannel&, const ImexChannel&) noexcept = default;
};

inline constexpr std::string_view imex_channel_directory = "/dev/nvidia-caps-imex-channels";

// The channel files in that directory by number; none if there is no such directory. Opens no file.
[[nodiscard]] std::vector<ImexChannel> imex_channels(
    const std::string& directory = std::string(imex_channel_directory));

// An environment variable by which NCCL, PyTorch or NVSHMEM are told about multicast; the library obeys them, too.
struct MulticastSwitch {
  std::string variable;
  std::string value;
  bool off = false;  // this value turns multicast off

  friend bool operator==(const MulticastSwitch&, const MulticastSwitch&) noexcept = default;
};

// Those that are set in the environment.
[[nodiscard]] std::vector<MulticastSwitch> multicast_switches();

struct CapabilityOptions {
  // Whether features are tried: memory of one granule each is created, reserved for, mapped, granted and exported, as
  // the feature needs, and given back. Calls that fail are then to be expected. Trials of dma-bufs make the device's
  // primary context current for a moment. Multicast is never tried.
  bool trials = false;
  std::string imex_directory = std::string(imex_channel_directory);
};

// A report on one device: a value. Without trials no driver call is made that fails on a sound driver: attributes that
// came with later drivers are not asked for, nor anything that the device says it lacks.
struct Capabilities {
  // Asks the driver. A single question that fails makes that feature unknown, with the reason. Throws Error only if the
  // driver cannot even tell its version and how many devices there are. Leaves nothing behind, whatever fails.
  // Thread-safe.
  [[nodiscard]] static Capabilities of(const Device& device, const CapabilityOptions& options = {});

  [[nodiscard]] const Capability& operator[](Feature feature) const noexcept {
    return features[static_cast<std::size_t>(feature)];
  }
  [[nodiscard]] Capability& operator[](Feature feature) noexcept { return features[static_cast<std::size_t>(feature)]; }
  // Whether it may be counted on, as far as is known.
  [[nodiscard]] bool has(Feature feature) const noexcept { return (*this)[feature].state == FeatureState::yes; }

  DeviceOrdinal device;
  std::array<Capability, feature_count> features;
  std::vector<MemoryGranularity> granularities;  // plain, and for each handle type and wish that the device announces
  std::vector<FeatureState> peers;               // by ordinal: whether it can access that device's memory; itself: yes
  int host_numa_node = -1;                       // the nearest of the host; -1: none, or not told
  // The largest power of two of bytes that one reservation may have; known from a trial alone.
  std::optional<std::size_t> largest_reservation_bytes;

  friend bool operator==(const Capabilities&, const Capabilities&) noexcept = default;
};

}  // namespace cuvmm
