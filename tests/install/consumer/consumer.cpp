// Sends bytes through emulated device memory, and breaks a rule: enough to need everything that is installed.
#include <cuvmm/cuvmm.hpp>
#include <cuvmm/emulator/configuration.hpp>
#include <iostream>
#include <numeric>
#include <vector>
#ifdef CONSUMER_HAS_A_POOL
#include <cuvmm/pool/c_tags.h>
#include <cuvmm/pool/torch_api.h>

#include <cuvmm/pool/pmr_resource.hpp>
#include <cuvmm/pool/synchronous_allocations.hpp>
#include <cuvmm/pool/tagged_allocations.hpp>
#endif
#ifdef CONSUMER_SHARES
#include <cuvmm/sharing/sharing.hpp>
#endif
#ifdef CONSUMER_IS_A_TEAM
#include <cuvmm/team/teams.hpp>
#endif
#ifdef CONSUMER_HAS_MPI
#include <cuvmm/team/mpi_bootstrap.hpp>
#endif

namespace {

bool bytes_come_back(const cuvmm::Driver& driver) {
  const auto device = driver.device(cuvmm::DeviceOrdinal{0});
  const cuvmm::CurrentContext context(device);
  const cuvmm::MemoryProperties properties{.location = device.location()};
  const auto memory = cuvmm::PhysicalMemory::create(driver, properties, device.granularity());
  const auto addresses = cuvmm::AddressReservation::create(driver, memory.size());
  const auto mapping = cuvmm::Mapping::create(addresses, 0, memory);
  cuvmm::grant(mapping, device.location(), cuvmm::AccessRights::read_write);

  std::vector<int> sent(1000);
  std::iota(sent.begin(), sent.end(), 1);
  std::vector<int> received(sent.size());
  cuvmm::copy_to_device(mapping, 0, sent);
  cuvmm::copy_from_device(received, mapping, 0);
  return received == sent;
}

bool broken_rule_is_named(const cuvmm::Driver& driver) {
  try {
    static_cast<void>(driver.device(cuvmm::DeviceOrdinal{99}));
  } catch (const cuvmm::InvalidUse& error) {
    return !error.rule().empty() && !error.way_out().empty();
  }
  return false;
}

bool machines_can_be_configured() {
  cuvmm::emulator::Configuration two;
  two.devices = 2;
  return cuvmm::Driver::emulated(two).device_count() == 2;
}

#ifdef CONSUMER_HAS_A_POOL
bool the_pool_serves_everybody(const cuvmm::Driver& driver) {
  auto pool = cuvmm::Pool::create(driver);
  auto synchronous = cuvmm::SynchronousAllocations::create(pool);
  synchronous.free(synchronous.allocate(1000));
  auto tagged = cuvmm::TaggedAllocations::create(pool);
  tagged.set_budget("weights", 1);
  cuvmm::HostMemoryResource resource(driver);
  const std::pmr::vector<int> values(1000, 1, &resource);
  cuvmm_pool* in_c = nullptr;
  if (cuvmm_pool_create(0, 0, &in_c) != CUVMM_SUCCESS) return false;
  cuvmm_tagged* tags = nullptr;
  const bool made = cuvmm_tagged_create(in_c, &tags) == CUVMM_SUCCESS;
  cuvmm_tagged_destroy(tags);
  cuvmm_pool_destroy(in_c);
  return made && cuvmm_pool_torch_pool(0) != nullptr && values.back() == 1;
}
#else
bool the_pool_serves_everybody(const cuvmm::Driver&) {
  return true;  // not asked for
}
#endif

#ifdef CONSUMER_SHARES
bool handles_are_handed_over(const cuvmm::Driver& driver) {
  namespace sharing = cuvmm::sharing;
  const auto soon = sharing::Deadline::in(std::chrono::seconds(60));
  constexpr auto type = cuvmm::HandleType::posix_file_descriptor;
  const auto device = driver.device(cuvmm::DeviceOrdinal{0});
  const auto memory = cuvmm::PhysicalMemory::create(driver, {.handle_types = type}, device.granularity());
  auto [one, other] = sharing::DescriptorSocket::pair();
  std::vector<sharing::HandleOfMemory> handles;
  handles.push_back({sharing::ShareableHandle::export_from(memory, type), memory.size()});
  sharing::send_handles(one, handles, soon);
  const auto received = sharing::receive_handles(other, soon);
  return received.at(0).handle.import_into(driver, {.bytes = received[0].bytes}).size() == memory.size();
}
#else
bool handles_are_handed_over(const cuvmm::Driver&) {
  return true;  // not asked for
}
#endif

#ifdef CONSUMER_IS_A_TEAM
// A team of one, which no other process is needed for.
bool memory_is_symmetric(const cuvmm::Driver& driver) {
  namespace team = cuvmm::team;
  const auto soon = team::Deadline::in(std::chrono::seconds(60));
  const auto device = driver.device(cuvmm::DeviceOrdinal{0});
  const auto one = team::Team::assemble(team::SocketBootstrap::join({}, soon), device, soon);
  auto memory = team::SymmetricMemory::create(one, 1000, {}, soon);
  const bool has_address = memory.address(0).value != 0;
  memory.close(soon);
  return has_address;
}
#else
bool memory_is_symmetric(const cuvmm::Driver&) {
  return true;  // not asked for
}
#endif

#ifdef CONSUMER_HAS_MPI
bool mpi_has_to_be_initialised() {
  try {
    static_cast<void>(cuvmm::team::MpiBootstrap::world(cuvmm::team::Deadline::in(std::chrono::seconds(1))));
  } catch (const cuvmm::InvalidUse&) {
    return true;
  }
  return false;
}
#else
bool mpi_has_to_be_initialised() {
  return true;  // not asked for
}
#endif

}  // namespace

int main() {
  const auto driver = cuvmm::Driver::open();
  if (!driver.is_emulated()) {
    std::cerr << "not the emulated driver, which CUVMM_DRIVER=emulated has to choose\n";
    return 1;
  }
  if (!bytes_come_back(driver)) {
    std::cerr << "the bytes came back changed\n";
    return 1;
  }
  if (!machines_can_be_configured()) {
    std::cerr << "an emulated machine of two devices has not two\n";
    return 1;
  }
  if (!the_pool_serves_everybody(driver)) {
    std::cerr << "a pool has no memory for those who ask in other ways\n";
    return 1;
  }
  if (!handles_are_handed_over(driver)) {
    std::cerr << "memory did not come back through its handle\n";
    return 1;
  }
  if (!memory_is_symmetric(driver)) {
    std::cerr << "a team of one has no memory\n";
    return 1;
  }
  if (!mpi_has_to_be_initialised()) {
    std::cerr << "MPI was used before it was initialised\n";
    return 1;
  }
  if (!broken_rule_is_named(driver)) {
    std::cerr << "device 99 was not refused, or not with a rule and a way out\n";
    return 1;
  }
}
