// What machine the emulated driver pretends to be, and how it behaves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host_kernel.hpp"  // beside this file, here and where both are installed

namespace cuvmm::emulator {

// What happens to calls that a real driver wrongly accepts, or crashes on.
enum class Mode {
  faithful,  // the real driver's answer, and one warning line a rule; where it would crash, INVALID_VALUE
  strict,    // refused with INVALID_VALUE and the rule that was broken
};

// Behaviours seen on single machines, each of which can be switched on by itself.
struct Behaviour {
  bool ignore_address_hints = false;            // cuMemAddressReserve never honours a hint
  bool withhold_compression = false;            // compression is asked for and silently not given
  bool withhold_rdma = false;                   // GPUDirect RDMA is asked for and silently not given
  bool fail_set_access_on_rdma_memory = false;  // cuMemSetAccess answers UNKNOWN on memory made with the RDMA flag
  bool fail_set_access = false;                 // cuMemSetAccess answers UNKNOWN always
  bool fabric_creation_out_of_memory = false;   // creating memory with a fabric handle answers OUT_OF_MEMORY
  bool crash_on_dead_handles = false;           // SIGSEGV where the real driver crashes on a handle that is none
};

// A kind of machine: its driver and its devices, which are all alike.
struct Profile {
  std::string name;
  std::string summary;  // one line for people
  int driver_version = 0;
  std::string device_name;
  std::uint64_t device_memory = 0;           // bytes, as cuDeviceTotalMem answers
  std::uint64_t device_memory_reserved = 0;  // bytes of it that the driver keeps for itself once it is in use
  std::uint64_t granularity = 0;             // bytes, minimum and recommended alike
  std::map<int, int> attributes;             // CUdevice_attribute -> value, for device 0
  int host_numa_nodes = 1;                   // nodes numbered from 0 that have memory
  std::uint64_t host_memory = 0;             // bytes that HOST and HOST_NUMA allocations may take in all
  bool imex_channel = false;                 // fabric handles can be made and used
  // Of multicast, where the devices have it (CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED): the minimum granularity; what is
  // recommended at most, which grows with the object up to this; and of how many objects with memory bound each device
  // can be a part at once.
  std::uint64_t multicast_granularity = 0;
  std::uint64_t multicast_recommended = 0;
  int multicast_slots = 0;
  Behaviour behaviour;

  // The attribute's value; 0 for one that the profile does not name.
  [[nodiscard]] int attribute(int attribute) const;
};

// The profiles that are built in: h200-580 (recorded on NVIDIA H200s with driver 580), and machines that lack a
// feature: no-vmm, no-descriptors, no-compression, no-rdma; gb200, with fabric handles for device and host memory; and
// with multicast h200-multicast, and h200-590, whose driver has the forms of CUDA 13.1.
[[nodiscard]] std::vector<std::string> profile_names();

// The profile of that name, or nothing.
[[nodiscard]] std::optional<Profile> find_profile(std::string_view name);

// Binds to multicast objects of one device's memory that fail.
struct MulticastFailure {
  enum class Kind {
    not_ready,      // SYSTEM_NOT_READY: the system's software is starting
    illegal_state,  // ILLEGAL_STATE: the fabric manager is in trouble
    out_of_memory,  // OUT_OF_MEMORY: the switch has no slot left
  };
  int device = 0;
  Kind kind = Kind::not_ready;
  int times = 0;  // how many binds fail, before others work; 0: all
};

// Which order of concurrent work the emulated devices choose.
enum class Scheduler {
  threaded,  // one thread a busy stream: real concurrency
  stepped,   // no threads: work advances only while somebody waits or steps, in an order drawn from a seed
};

struct Configuration {
  Profile profile;  // made h200-580 by the constructor
  Mode mode = Mode::faithful;
  int devices = 1;                             // 1 to 32
  std::optional<std::uint64_t> device_memory;  // bytes; the profile's where not given
  // Where device addresses begin and how many there are, multiples of 2 MiB: 67 TiB from 17 TiB on; in programs built
  // with the thread sanitizer, which lets a program map nothing there, 448 GiB from 64 GiB on.
  std::uint64_t address_base;
  std::uint64_t address_bytes;
  std::optional<std::size_t> descriptor_limit;  // of exported descriptors open at once; the process's where not given
  std::vector<std::pair<int, int>> no_peer_access;  // pairs of devices, in either order, that cannot reach each other
  bool peer_access = true;                          // false: no device reaches any other
  // Which machine: empty, and it is the process's own; else one that all processes share that name it. A name stands
  // for a directory of this user's, an absolute path for itself (docs/emulator.md). Such a machine has a built-in
  // profile; what it is made of is decided by whoever comes first: profile, devices, device_memory, nodes,
  // imex_channels, multicast_slots.
  std::string machine;
  int nodes = 1;                     // how many nodes it has, 1 to 64, all alike
  int node = 0;                      // on which of them this process is
  std::optional<int> imex_channels;  // how many IMEX channels there are, 0 to 2048; the profile's where not given
  int broker_patience =
      60;  // seconds, 1 to 3600, after which a shared machine's broker is taken not to answer any more
  std::optional<int>
      multicast_slots;          // 0 to 100000, the same for all processes on a machine; the profile's unless given
  int multicast_wait = 60'000;  // milliseconds, 1 to 3600000, that a call waits for the devices of a multicast object
  std::vector<MulticastFailure> multicast_failures;  // of this process's binds
  // Settings, by name, that are taken from a shared machine that exists already. If it contradicts one of the others,
  // the driver cannot be made.
  std::vector<std::string> left_open;
  Scheduler scheduler = Scheduler::threaded;
  std::uint64_t seed = 0;  // of the stepped scheduler

  // Ids of rules that are not kept (docs/rules.md, `cuvmm rules`): what breaks one of them alone answers success, and
  // does nothing else, except for what a real driver accepts, too, which is done. For showing that a test notices.
  std::vector<std::string> rules_off;

  // Tells of each refusal on standard error: the rule, what was wrong, and the way out. For programs that show no more
  // than the code of a driver's answer.
  bool explain = false;

  std::vector<HostKernel> kernels;  // beside the built-in ones; of two of one name the later counts

  // Where warnings of the faithful mode go; standard error where not given. Called from any thread, by one thread at a
  // time, during the driver call that is warned of and before it changes anything: if the receiver throws, the call
  // answers UNKNOWN and nothing is changed. It may call the driver, and is called again within itself if that is to be
  // warned of, too; it must not wait for another thread that calls the driver.
  std::function<void(const std::string&)> on_warning;

  Configuration();

  // The default configuration with the settings in the JSON file that CUVMM_EMULATOR_CONFIG names, if it is set, and
  // over them those in CUVMM_EMULATOR: "profile=h200-580,devices=2,set-access-fails". docs/emulator.md lists the
  // settings; the file must be a regular one of at most 1 MiB. There are at least `least_devices` devices, also where
  // fewer are set. Throws std::invalid_argument, which names the setting, its value, what is allowed, and where it came
  // from.
  [[nodiscard]] static Configuration from_environment(int least_devices = 1);

  // The same for a program that knows nothing of cuvmm: settings in CUVMM_EMULATOR_MACHINE count least and are left
  // open, and where no machine is named it is one that the user's programs of this configuration share.
  [[nodiscard]] static Configuration of_program();

  // Throws std::invalid_argument, which names the setting, the rule and the way out, for a configuration no driver can
  // be made from.
  void validate() const;

  [[nodiscard]] std::uint64_t memory_per_device() const { return device_memory.value_or(profile.device_memory); }
  [[nodiscard]] int imex_channel_count() const { return imex_channels.value_or(profile.imex_channel ? 1 : 0); }
  [[nodiscard]] int multicast_slot_count() const { return multicast_slots.value_or(profile.multicast_slots); }
  [[nodiscard]] bool can_access_peer(int device, int peer) const;
  [[nodiscard]] bool is_off(std::string_view rule) const noexcept;
};

}  // namespace cuvmm::emulator
