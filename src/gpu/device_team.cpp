#include "gpu/device_team.hpp"

#include <map>
#include <utility>

#include "clean_up.hpp"
#include "cuvmm/copy.hpp"
#include "driver/call.hpp"
#include "refusal.hpp"

namespace cuvmm::gpu {

using driver::call;
using driver::EntryPoint;

namespace {

// Where things lie in a rank's memory, in bytes.
struct Layout {
  Layout(const DeviceTeamOptions& options, std::uint32_t ranks)
      : states(options.blocks * sizeof(Arrivals)),
        lines(states + (options.blocks * sizeof(BlockState) + 127) / 128 * 128),
        staging(lines + line_count(ranks, options.blocks, options.lines_per_block) * sizeof(Line)),
        staging_packs(options.staging_bytes / sizeof(Pack)),
        end(staging + staging_count(ranks, staging_packs) * sizeof(Pack)) {}

  std::size_t states;
  std::size_t lines;
  std::size_t staging;
  std::size_t staging_packs;
  std::size_t end;
};

MappedRange shared_range(const Device& owner, std::span<const DeviceOrdinal> devices, std::size_t bytes) {
  std::vector<AccessGrant> grants;
  for (const DeviceOrdinal each : devices) grants.push_back({Location::device(each)});
  auto range = MappedRange::create(owner.driver(), {.capacity = bytes,
                                                    .memory = {.location = owner.location()},
                                                    .grants = std::move(grants),
                                                    .chunks = ChunkPolicy::exact()});
  range.append(bytes);
  return range;
}

}  // namespace

struct DeviceTeam::Member {
  Member(const Driver& driver, std::span<const DeviceOrdinal> devices, std::size_t rank, std::size_t bytes)
      : device(driver.device(devices[rank])), context(device), memory(shared_range(device, devices, bytes)) {
    driver::Interface& api = driver.interface();
    call<EntryPoint::cuStreamCreate>(api, &stream, abi::CU_STREAM_NON_BLOCKING);
    call<EntryPoint::cuModuleLoadData>(api, &module, collective_image().data());
    call<EntryPoint::cuMemsetD8>(api, memory.address().value, static_cast<unsigned char>(0), bytes);
    context.synchronize();  // a memset may return before it is done
  }
  ~Member() {
    driver::Interface& api = device.driver().interface();
    const CurrentContext own(device);
    if (stream != nullptr) {
      clean_up<EntryPoint::cuStreamSynchronize>(api, stream);
      clean_up<EntryPoint::cuStreamDestroy>(api, stream);
    }
    if (module != nullptr) clean_up<EntryPoint::cuModuleUnload>(api, module);
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  Member(Member&&) = delete;
  Member& operator=(Member&&) = delete;

  abi::CUfunction function(std::string_view kernel) {
    const auto [place, is_new] = functions.try_emplace(std::string(kernel), nullptr);
    if (is_new)
      call<EntryPoint::cuModuleGetFunction>(device.driver().interface(), &place->second, module, place->first.c_str());
    return place->second;
  }

  Device device;
  CurrentContext context;
  MappedRange memory;
  abi::CUstream stream = nullptr;
  abi::CUmodule module = nullptr;
  std::map<std::string, abi::CUfunction, std::less<>> functions;
};

DeviceTeam::DeviceTeam(const Driver& driver, std::span<const DeviceOrdinal> devices, const DeviceTeamOptions& options)
    : driver_(driver), options_(options) {
  if (devices.empty() || devices.size() > max_ranks)
    raise(invalid_use("DeviceTeam", "devices: " + std::to_string(devices.size()),
                      "A team has 1 to " + std::to_string(max_ranks) + " ranks", "Name that many devices"));
  const Layout layout(options, static_cast<std::uint32_t>(devices.size()));
  for (std::size_t rank = 0; rank < devices.size(); ++rank)
    members_.push_back(std::make_unique<Member>(driver, devices, rank, layout.end));
}
DeviceTeam::~DeviceTeam() {
  // Contexts are left in the reverse order in which they were entered; no rank's memory goes while another may use it.
  for (const auto& member : members_) {
    const CurrentContext own(member->device);
    clean_up<EntryPoint::cuStreamSynchronize>(driver_.interface(), member->stream);
  }
  while (!members_.empty()) members_.pop_back();
}

std::uint32_t DeviceTeam::ranks() const noexcept {
  return static_cast<std::uint32_t>(members_.size());
}
const DeviceTeamOptions& DeviceTeam::options() const noexcept {
  return options_;
}
const Device& DeviceTeam::device(std::uint32_t rank) const {
  return members_.at(rank)->device;
}
abi::CUstream DeviceTeam::stream(std::uint32_t rank) const {
  return members_.at(rank)->stream;
}

Team DeviceTeam::team(std::uint32_t rank) const {
  const Layout layout(options_, ranks());
  const auto at = [&](std::uint32_t of, std::size_t offset) { return (members_[of]->memory.address() + offset).value; };
  Team team{};
  team.rank = rank;
  team.ranks = ranks();
  team.time_limit = static_cast<std::uint64_t>(options_.time_limit.count());
  team.states = reinterpret_cast<BlockState*>(at(rank, layout.states));
  team.blocks = options_.blocks;
  team.lines_per_block = options_.lines_per_block;
  team.staging_packs = layout.staging_packs;
  for (std::uint32_t of = 0; of < ranks(); ++of) {
    team.arrivals[of] = reinterpret_cast<Arrivals*>(at(of, 0));
    team.lines[of] = reinterpret_cast<Line*>(at(of, layout.lines));
    team.staging[of] = reinterpret_cast<Pack*>(at(of, layout.staging));
  }
  return team;
}

std::vector<MappedRange> DeviceTeam::allocate(std::size_t bytes) const {
  std::vector<DeviceOrdinal> devices;
  for (const auto& member : members_) devices.push_back(member->device.ordinal());
  std::vector<MappedRange> ranges;
  for (const auto& member : members_) {
    const CurrentContext own(member->device);
    ranges.push_back(shared_range(member->device, devices, bytes));
  }
  return ranges;
}

void DeviceTeam::launch_bytes(std::uint32_t rank, std::string_view kernel, void* arguments, unsigned blocks,
                              unsigned threads) const {
  Member& member = *members_.at(rank);
  if (blocks == 0 || blocks > options_.blocks || threads == 0 || threads > most_collective_threads)
    raise(invalid_use("DeviceTeam::launch",
                      std::to_string(blocks) + " blocks of " + std::to_string(threads) + " threads",
                      "A call has 1 to " + std::to_string(options_.blocks) + " blocks of 1 to " +
                          std::to_string(most_collective_threads) + " threads",
                      "Give another shape, or make the team for more blocks"));
  const CurrentContext own(member.device);
  void* parameters[] = {arguments};
  call<EntryPoint::cuLaunchKernel>(driver_.interface(), member.function(kernel), blocks, 1U, 1U, threads, 1U, 1U, 0U,
                                   member.stream, parameters, nullptr);
}

void DeviceTeam::synchronize() const {
  for (const auto& member : members_) {
    const CurrentContext own(member->device);
    call<EntryPoint::cuStreamSynchronize>(driver_.interface(), member->stream);
  }
}

std::uint32_t DeviceTeam::missing(std::uint32_t rank) const {
  Member& member = *members_.at(rank);
  const CurrentContext own(member.device);
  call<EntryPoint::cuStreamSynchronize>(driver_.interface(), member.stream);
  std::vector<BlockState> states(options_.blocks);
  copy_from_device(states, member.memory, Layout(options_, ranks()).states);
  std::uint32_t all = 0;
  for (const BlockState& each : states) all |= each.missing;
  return all;
}

}  // namespace cuvmm::gpu
