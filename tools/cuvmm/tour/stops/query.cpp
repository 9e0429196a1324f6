// 4.16.1.2: ask the device for each feature singly, and try what a trial can decide.
#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <map>
#include <string_view>

#include "clean_up.hpp"
#include "command/imex_words.hpp"
#include "cuvmm/copy.hpp"
#include "cuvmm/physical_memory.hpp"
#include "driver/call.hpp"
#include "driver/result_names.hpp"
#include "tour/content_checksum.hpp"
#include "tour/stop.hpp"

namespace cuvmm::tour {
namespace {

using driver::call;
using driver::EntryPoint;
using driver::try_call;
using namespace abi;

struct Feature {
  CUdevice_attribute attribute;
  std::string_view name;
};

constexpr Feature virtual_memory{CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "virtual memory management"};
constexpr Feature descriptors{CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, "descriptors"};
constexpr Feature fabric_handles{CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, "fabric handles"};
constexpr Feature compression{CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED, "compression"};
constexpr Feature rdma{CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, "GPUDirect RDMA"};
constexpr Feature multicast{CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, "multicast"};
constexpr Feature numa_memory{CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "host NUMA memory"};
constexpr std::array features{virtual_memory, descriptors, fabric_handles, compression, rdma, multicast, numa_memory};

// The answers and trials of one device.
class DeviceQuery {
 public:
  DeviceQuery(Visit& visit, const Gpu& gpu)
      : visit_(visit),
        gpu_(gpu),
        interface_(visit.driver.interface()),
        name_(fmt::format("device {}", gpu.ordinal())) {}

  // Asks for each feature.
  void ask() {
    for (const Feature& feature : features) {
      int value = 0;
      const CUresult result = interface_.cuDeviceGetAttribute(&value, feature.attribute, gpu_.device().handle());
      // A driver that is too old to know the question refuses it: then its answer is no.
      const bool unknown = result == CUDA_ERROR_INVALID_VALUE;
      visit_.checks.require(unknown || (result == CUDA_SUCCESS && (value == 0 || value == 1)),
                            fmt::format("{}: asked for {}, it answers yes or no", name_, feature.name),
                            fmt::format("{} with the value {}", driver::result_name(result), value));
      said_[feature.attribute] = !unknown && value == 1;
    }
  }

  // The answers for people, with what the trials told beyond them.
  [[nodiscard]] std::string answers() const {
    std::string text;
    for (const Feature& feature : features) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", feature.name, said(feature) ? "yes" : "no");
      if (const auto found = told_.find(feature.attribute); found != told_.end()) text += " (" + found->second + ")";
    }
    return text;
  }

  void try_what_was_said() {
    const MemoryProperties plain{gpu_.location()};
    if (!said(virtual_memory)) {
      const auto created = PhysicalMemory::try_create(visit_.driver, plain, std::size_t{2} << 20);
      require_as_said(virtual_memory, outcome(created));
      return;
    }
    try_granularity();
    try_plain(plain);
    try_descriptors();
    try_fabric_handles();
    if (said(compression)) try_wish(compression, {.location = gpu_.location(), .compression = true});
    if (said(rdma)) try_wish(rdma, {.location = gpu_.location(), .gpu_direct_rdma = true});
  }

 private:
  [[nodiscard]] bool said(const Feature& feature) const { return said_.at(feature.attribute); }

  static CUresult code(const Failure& failure) { return static_cast<CUresult>(failure.code); }

  // It works if and only if the device says so. Where it does not, the refusal tells what is in the way.
  void require_as_said(const Feature& feature, const Result<void>& tried) {
    visit_.checks.require(
        said(feature) == tried.has_value(),
        fmt::format("{}: {}: the device says {}, and the trial agrees", name_, feature.name,
                    said(feature) ? "yes" : "no"),
        tried ? "the trial found that it works" : "the trial was refused: " + tried.failure().message());
  }
  template <class Made>
  static Result<void> outcome(const Result<Made>& made) {
    return made ? Result<void>() : Result<void>(made.failure());
  }

  void try_granularity() {
    granule_ = gpu_.device().granularity(Granularity::minimum);
    const std::size_t recommended = gpu_.device().granularity(Granularity::recommended);
    visit_.checks.require(is_power_of_two(granule_),
                          fmt::format("{}: the granularity, {} bytes, is a power of two", name_, granule_));
    visit_.checks.require(
        recommended != 0 && recommended % granule_ == 0,
        fmt::format("{}: the recommended granularity, {} bytes, is a multiple of it", name_, recommended));
  }

  void try_plain(const MemoryProperties& plain) {
    const auto created = PhysicalMemory::try_create(visit_.driver, plain, granule_);
    require_as_said(virtual_memory, outcome(created));
  }

  void try_descriptors() {
    const MemoryProperties properties{.location = gpu_.location(), .handle_types = HandleType::posix_file_descriptor};
    const auto created = PhysicalMemory::try_create(visit_.driver, properties, granule_);
    if (!created) return require_as_said(descriptors, created.failure());
    int descriptor = -1;
    const auto exported = try_call<EntryPoint::cuMemExportToShareableHandle>(
        interface_, static_cast<void*>(&descriptor), created.value().handle(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        0ULL);
    if (exported) ::close(descriptor);
    require_as_said(descriptors, exported);
  }

  // The attribute tells what the device can do; whether this process may is known from a trial alone.
  void try_fabric_handles() {
    const MemoryProperties properties{.location = gpu_.location(), .handle_types = HandleType::fabric};
    const auto created = PhysicalMemory::try_create(visit_.driver, properties, granule_);
    if (said(fabric_handles) && !created && code(created.failure()) == CUDA_ERROR_NOT_PERMITTED) {
      visit_.checks.require(
          true, fmt::format("{}: fabric handles: the device says yes, and the trial no, as there is {}", name_,
                            command::no_usable_imex_channel));
      told_[fabric_handles.attribute] = command::no_imex_channel;
      return;
    }
    require_as_said(fabric_handles, outcome(created));
  }

  // Such wishes may be silently not granted: a device that has the feature must accept the wish, and the memory tells
  // what became of it.
  void try_wish(const Feature& feature, const MemoryProperties& wish) {
    const auto created = PhysicalMemory::try_create(visit_.driver, wish, granule_);
    if (!created) {
      require_as_said(feature, created.failure());
      return;
    }
    CUmemAllocationProp got{};
    call<EntryPoint::cuMemGetAllocationPropertiesFromHandle>(interface_, &got, created.value().handle());
    const bool given =
        wish.compression ? got.allocFlags.compressionType != 0 : got.allocFlags.gpuDirectRDMACapable != 0;
    if (!given) told_[feature.attribute] = "not given";
    visit_.checks.require(true, fmt::format("{}: {}: the device says yes, and the trial that it was {}", name_,
                                            feature.name, given ? "given" : "accepted and not given"));
  }

  Visit& visit_;
  const Gpu& gpu_;
  driver::Interface& interface_;
  std::string name_;
  std::map<CUdevice_attribute, bool> said_;
  std::map<CUdevice_attribute, std::string> told_;  // by the trials
  std::size_t granule_ = 0;
};

// Plain device memory, given back at the end.
class PlainMemory {
 public:
  PlainMemory(const Driver& driver, std::size_t bytes) : driver_(driver) {
    call<EntryPoint::cuMemAlloc>(driver_.interface(), &address_, bytes);
  }
  PlainMemory(const PlainMemory&) = delete;
  PlainMemory& operator=(const PlainMemory&) = delete;
  ~PlainMemory() { clean_up<EntryPoint::cuMemFree>(driver_.interface(), address_); }

  [[nodiscard]] DeviceAddress address() const noexcept { return DeviceAddress(address_); }

 private:
  Driver driver_;
  CUdeviceptr address_ = 0;
};

// The reference that the other stops are measured by: the same bytes through memory from cuMemAlloc. A kernel brings
// them back, so that nothing but the driver's copy to the device lies between the file and the sum.
void round_trip(Visit& visit, Gpu& gpu) {
  const std::uint64_t window = window_bytes(visit.input.size(), 512, gpu.free_memory());
  const PlainMemory memory(visit.driver, window);
  const ReachableHostMemory back(visit.driver, window);
  ContentChecksum returned;
  for_each_piece(visit, window, [&](std::uint64_t, std::span<std::byte> piece) {
    copy_bytes_to_device(visit.driver, memory.address(), piece);
    gpu.copy(back.address(), memory.address().value, piece.size());
    returned.add(back.bytes().first(piece.size()));
  });
  require_checksum(visit, returned.value(), "the input comes back from plain device memory");
}

void visit_query(Visit& visit) {
  for (const std::unique_ptr<Gpu>& gpu : visit.gpus) {
    DeviceQuery query(visit, *gpu);
    query.ask();
    query.try_what_was_said();
    if (gpu == visit.gpus.front()) visit.shown = query.answers();
  }
  Gpu& first = *visit.gpus.front();
  first.make_current();
  first.require_kernels();
  round_trip(visit, first);
}

}  // namespace

Stop query_stop() {
  return {"4.16.1.2", "Query", "each feature asked for singly and tried; plain memory as the reference", visit_query};
}

}  // namespace cuvmm::tour
