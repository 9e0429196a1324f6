#include "tour/team_memory.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "driver/call.hpp"
#include "gpu/checksum.hpp"

namespace cuvmm::tour {
namespace {

std::vector<TeamDevice*> first_of(const TeamDevices& devices, std::size_t ranks) {
  std::vector<TeamDevice*> team;
  for (std::size_t rank = 0; rank < ranks; ++rank) team.push_back(&devices[rank]);
  return team;
}

MulticastMapping map_for(MulticastObject& object, std::span<TeamDevice* const> team) {
  MulticastMapping mapping = object.map(AddressReservation::create(object.driver(), object.properties().bytes));
  std::vector<AccessGrant> grants;
  for (const TeamDevice* each : team) grants.push_back({each->gpu().location()});
  mapping.grant(grants);
  return mapping;
}

void require(abi::CUresult result, const Driver& driver) {
  if (result == abi::CUDA_SUCCESS) return;
  raise(driver::describe_failure(driver.interface(), driver::EntryPoint::cuCtxSynchronize, result, "", {}));
}

}  // namespace

std::size_t multicast_unit(const Device& device, std::size_t bytes) {
  return std::lcm(MulticastObject::granularity(device.driver(), {.devices = 2, .bytes = bytes}), device.granularity());
}

MappedRange memory_of(const TeamDevice& device, std::size_t bytes, HandleTypes types) {
  device.gpu().make_current();
  auto range = MappedRange::create(device.device().driver(),
                                   {.capacity = bytes,
                                    .memory = {.location = device.gpu().location(), .handle_types = types},
                                    .chunks = ChunkPolicy::exact()});
  range.append(bytes);
  return range;
}

MulticastAddresses::MulticastAddresses(MulticastObject& object, std::span<TeamDevice* const> team)
    : mapping_(map_for(object, team)) {}

TeamMemory::TeamMemory(const TeamDevices& devices, const Options& options)
    : options_(options),
      team_(first_of(devices, options.ranks)),
      host_((devices.root().gpu().make_current(), devices.root().device().driver()), bytes()) {
  for (const TeamDevice* each : team_)
    for (std::size_t part = 0; part < options.parts; ++part)
      parts_.push_back(memory_of(*each, options.part_bytes, options.handle_types));
}

TeamMemory::~TeamMemory() {
  for (const TeamDevice* each : team_) each->gpu().finish_work();
}

void TeamMemory::bind(MulticastObject& object, std::size_t rank) {
  for (std::size_t index = 0; index < options_.parts; ++index)
    object.bind(index * options_.part_bytes, part(rank, index).memory_at(0), 0, options_.part_bytes);
}

template <class Act>
void TeamMemory::for_each_part(std::size_t rank, std::size_t offset, std::size_t bytes, Act act) const {
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t at = offset + done;
    const std::size_t within = at % options_.part_bytes;
    const std::size_t some = std::min(bytes - done, options_.part_bytes - within);
    act((part(rank, at / options_.part_bytes).address() + within).value, some, done);
    done += some;
  }
}

void TeamMemory::broadcast(std::size_t root, std::size_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  for (std::size_t rank = 0; rank < ranks(); ++rank)
    for_each_part(rank, offset, bytes.size(), [&](abi::CUdeviceptr address, std::size_t some, std::size_t) {
      require(device(rank).gpu().try_fill(address, some, rank), device(rank).device().driver());
    });
  std::copy(bytes.begin(), bytes.end(), host_.bytes().begin());
  const std::uint64_t words = words_of(bytes.size());
  device(root).run(MultimemStore{addresses().at(offset), host_.address(), words}, words);
}

std::uint64_t TeamMemory::checksum(std::size_t rank, std::size_t offset, std::size_t bytes,
                                   std::uint64_t first_word) const {
  std::uint64_t sum = 0;
  for_each_part(rank, offset, bytes, [&](abi::CUdeviceptr address, std::size_t some, std::size_t before) {
    sum += device(rank).gpu().checksum(address, some, first_word + before / gpu::checksum_word_bytes);
  });
  return sum;
}

}  // namespace cuvmm::tour
