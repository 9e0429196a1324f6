// Random sequences of calls, against a reference that is as simple as it can be: vectors, searched from end to end.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <vector>

#include "emulator_model_machine.hpp"

namespace cuvmm::emulator::model {
namespace {

using namespace test;

struct Memory {
  std::uint64_t bytes;
  int users;  // handles that are held or mapped
};

struct KnownHandle {
  CUmemGenericAllocationHandle value;
  std::size_t memory;
  int references;
  int mappings;
};

struct Range {
  CUdeviceptr address;
  std::uint64_t bytes;
  [[nodiscard]] bool holds(CUdeviceptr where) const { return where >= address && where - address < bytes; }
  [[nodiscard]] bool meets(CUdeviceptr where, std::uint64_t count) const {
    return address < where + count && where < address + bytes;
  }
};

struct KnownMapping : Range {
  std::size_t handle;
  int rights[2];
};

class Reference {
 public:
  explicit Reference(Mode mode) : mode_(mode) {}

  void step(ModelMachine& machine) {
    switch (*rc::gen::inRange(0, 10)) {
      case 0:
        return create(machine);
      case 1:
        return reserve(machine);
      case 2:
        return release(machine);
      case 3:
        return retain(machine);
      case 4:
        return free(machine);
      case 5:
        return import(machine);
      case 6:
        return unmap(machine);
      case 7:
        return grant(machine);
      default:
        return map(machine);
    }
  }

  void compare(const ModelMachine& machine) const {
    const auto held =
        std::count_if(handles_.begin(), handles_.end(), [](const KnownHandle& handle) { return in_use(handle); });
    RC_ASSERT(machine.memory.live_handles() == static_cast<std::size_t>(held));
    RC_ASSERT(machine.memory.live_mappings() == mappings_.size());
    RC_ASSERT(machine.memory.live_reservations() == reservations_.size());
    RC_ASSERT(machine.store.ledger().used(Place::on_device(0)) == used());
    for (const KnownMapping& mapping : mappings_)
      for (int device = 0; device < 2; ++device)
        RC_ASSERT(machine.access(mapping.address + mapping.bytes - 1, {CU_MEM_LOCATION_TYPE_DEVICE, device}) ==
                  static_cast<unsigned long long>(mapping.rights[device]));
  }

  void give_everything_back(ModelMachine& machine) {
    for (const KnownMapping& mapping : mappings_) RC_ASSERT(machine.memory.unmap(mapping.address, mapping.bytes).ok());
    for (const Range& range : reservations_) RC_ASSERT(machine.memory.free(range.address, range.bytes).ok());
    for (const KnownHandle& handle : handles_)
      for (int count = 0; count < handle.references; ++count) RC_ASSERT(machine.memory.release(handle.value).ok());
  }

 private:
  static bool in_use(const KnownHandle& handle) { return handle.references > 0 || handle.mappings > 0; }
  static std::uint64_t granules(int most) {
    return granule * *rc::gen::inRange<std::uint64_t>(1, static_cast<std::uint64_t>(most) + 1);
  }
  static void same(const Answer& answer, bool accepted, CUresult refusal = CUDA_ERROR_INVALID_VALUE) {
    RC_ASSERT(answer.code == (accepted ? CUDA_SUCCESS : refusal));
  }

  [[nodiscard]] std::uint64_t used() const {
    std::uint64_t bytes = 0;
    for (const Memory& memory : memories_)
      if (memory.users > 0) bytes += memory.bytes;
    return bytes;
  }
  // An address near what is known: inside or at an end of a reservation.
  [[nodiscard]] CUdeviceptr somewhere() const {
    if (reservations_.empty()) return granule * *rc::gen::inRange<std::uint64_t>(0, 70);
    const Range range = *rc::gen::elementOf(reservations_);
    return range.address + granule * *rc::gen::inRange<std::uint64_t>(0, range.bytes / granule + 1);
  }
  [[nodiscard]] const Range* reservation_at(CUdeviceptr address) const {
    for (const Range& range : reservations_)
      if (range.holds(address)) return &range;
    return nullptr;
  }
  [[nodiscard]] const KnownMapping* mapping_at(CUdeviceptr address) const {
    for (const KnownMapping& mapping : mappings_)
      if (mapping.holds(address)) return &mapping;
    return nullptr;
  }
  [[nodiscard]] bool cuts(CUdeviceptr edge) const {
    const KnownMapping* mapping = mapping_at(edge);
    return mapping != nullptr && mapping->address != edge;
  }
  void drop_if_unused(std::size_t handle) {
    if (!in_use(handles_[handle])) --memories_[handles_[handle].memory].users;
  }

  void create(ModelMachine& machine) {
    const std::uint64_t bytes = granules(3);
    const CUmemAllocationProp properties = at(CU_MEM_LOCATION_TYPE_DEVICE);
    CUmemGenericAllocationHandle handle = 0;
    const bool fits = used() + bytes <= 16 * granule;
    same(machine.memory.create(&handle, bytes, &properties, 0), fits, CUDA_ERROR_OUT_OF_MEMORY);
    if (!fits) return;
    memories_.push_back({bytes, 1});
    handles_.push_back({handle, memories_.size() - 1, 1, 0});
  }

  void import(ModelMachine& machine) {
    if (mappings_.empty()) return;
    const std::size_t memory = handles_[(*rc::gen::elementOf(mappings_)).handle].memory;
    for (const KnownMapping& mapping : mappings_)
      if (handles_[mapping.handle].memory == memory) {
        const auto value = machine.memory.import(*machine.memory.find_mapping(mapping.address)->handle->allocation);
        handles_.push_back({value, memory, 1, 0});
        ++memories_[memory].users;
        return;
      }
  }

  void reserve(ModelMachine& machine) {
    const std::uint64_t bytes = granules(12);
    const bool fits = machine.addresses.largest_free_piece() >= bytes;
    CUdeviceptr address = 0;
    same(machine.memory.reserve(&address, bytes, 0, 0, 0), fits, CUDA_ERROR_OUT_OF_MEMORY);
    if (!fits) return;
    for (const Range& range : reservations_) RC_ASSERT(!range.meets(address, bytes));
    reservations_.push_back({address, bytes});
  }

  void free(ModelMachine& machine) {
    if (reservations_.empty()) return;
    const std::size_t index = *rc::gen::inRange<std::size_t>(0, reservations_.size());
    const Range range = reservations_[index];
    const std::uint64_t bytes =
        *rc::gen::elementOf(std::vector<std::uint64_t>{range.bytes, range.bytes, range.bytes + granule});
    const bool empty = std::none_of(mappings_.begin(), mappings_.end(), [&](const KnownMapping& mapping) {
      return mapping.meets(range.address, range.bytes);
    });
    const bool accepted = bytes == range.bytes && empty;
    same(machine.memory.free(range.address, bytes), accepted);
    if (accepted) reservations_.erase(reservations_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void release(ModelMachine& machine) {
    if (handles_.empty()) return;
    const std::size_t index = *rc::gen::inRange<std::size_t>(0, handles_.size());
    KnownHandle& handle = handles_[index];
    const bool live = handle.references > 0;
    same(machine.memory.release(handle.value), live);
    if (!live) return;
    --handle.references;
    drop_if_unused(index);
  }

  void retain(ModelMachine& machine) {
    const CUdeviceptr address = somewhere() + *rc::gen::element<CUdeviceptr>(0, 4096);
    const KnownMapping* mapping = mapping_at(address);
    CUmemGenericAllocationHandle value = 0;
    // As recorded: the part of a mapping that lies behind its reservation, where nothing is reserved, has no handle.
    const bool accepted = mapping != nullptr && reservation_at(address) != nullptr;
    same(machine.memory.retain(&value, address), accepted);
    if (!accepted) return;
    RC_ASSERT(value == handles_[mapping->handle].value);
    ++handles_[mapping->handle].references;
  }

  void map(ModelMachine& machine) {
    if (handles_.empty()) return;
    const std::size_t index = *rc::gen::inRange<std::size_t>(0, handles_.size());
    KnownHandle& handle = handles_[index];
    const std::uint64_t whole = memories_[handle.memory].bytes;
    const std::uint64_t bytes = *rc::gen::elementOf(std::vector<std::uint64_t>{whole, whole, whole, whole + granule});
    const CUdeviceptr address = somewhere();
    const Range* range = reservation_at(address);
    CUresult expected = CUDA_SUCCESS;
    const bool taken = std::any_of(mappings_.begin(), mappings_.end(),
                                   [&](const KnownMapping& mapping) { return mapping.meets(address, bytes); });
    // As recorded: a wrong size is found before the address is looked at, unless that is null or the handle dead.
    if (address == 0 || handle.references == 0)
      expected = CUDA_ERROR_INVALID_VALUE;
    else if (bytes != whole)
      expected = CUDA_ERROR_NOT_SUPPORTED;
    else if (range == nullptr || taken || (mode_ == Mode::strict && address + bytes > range->address + range->bytes))
      expected = CUDA_ERROR_INVALID_VALUE;
    RC_ASSERT(machine.memory.map(address, bytes, 0, handle.value, 0).code == expected);
    if (expected != CUDA_SUCCESS) return;
    ++handle.mappings;
    mappings_.push_back({{address, bytes}, index, {0, 0}});
  }

  void unmap(ModelMachine& machine) {
    const CUdeviceptr address = somewhere();
    const std::uint64_t bytes = granules(6);
    const bool accepted = reservation_at(address) != nullptr && !cuts(address) && !cuts(address + bytes);
    same(machine.memory.unmap(address, bytes), accepted);
    if (!accepted) return;
    for (std::size_t index = mappings_.size(); index-- > 0;) {
      if (!mappings_[index].meets(address, bytes)) continue;
      const std::size_t handle = mappings_[index].handle;
      --handles_[handle].mappings;
      drop_if_unused(handle);
      mappings_.erase(mappings_.begin() + static_cast<std::ptrdiff_t>(index));
    }
  }

  void grant(ModelMachine& machine) {
    const CUdeviceptr address = somewhere();
    const std::uint64_t bytes = granules(6);
    const int device = *rc::gen::inRange(0, 3);
    const int flags = *rc::gen::inRange(0, 4);
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device}, static_cast<CUmemAccess_flags>(flags)};
    const bool accepted = !cuts(address) && !cuts(address + bytes) && mapping_at(address) != nullptr &&
                          mapping_at(address + bytes - 1) != nullptr && device < 2 && flags != 2;
    CUdeviceptr hole = address;
    while (hole < address + bytes && mapping_at(hole) != nullptr) hole += granule;
    const bool whole = hole == address + bytes;
    same(machine.memory.set_access(address, bytes, &access, 1), accepted && (whole || mode_ == Mode::faithful));
    if (!accepted || (!whole && mode_ == Mode::strict)) return;
    for (KnownMapping& mapping : mappings_)
      if (mapping.meets(address, hole - address)) mapping.rights[device] = flags;
  }

  Mode mode_;
  std::vector<Memory> memories_;
  std::vector<KnownHandle> handles_;
  std::vector<Range> reservations_;
  std::vector<KnownMapping> mappings_;
};

void run(Mode mode) {
  ModelMachine machine(model_configuration(mode));
  Reference reference(mode);
  const bool thorough = std::getenv("CUVMM_TEST_LONG") != nullptr;
  const int steps = *rc::gen::inRange(0, thorough ? 2000 : 200);
  for (int step = 0; step < steps; ++step) {
    reference.step(machine);
    reference.compare(machine);
  }
  reference.give_everything_back(machine);
  RC_ASSERT(machine.memory.live_handles() == 0U);
  RC_ASSERT(machine.store.live_allocations() == 0U);
  RC_ASSERT(machine.store.ledger().free(Place::on_device(0)) == 16 * granule);
  RC_ASSERT(machine.addresses.largest_free_piece() == machine.addresses.total_bytes());
}

RC_GTEST_PROP(VirtualMemoryProperty, AgreesWithTheReferenceInStrictMode, ()) {
  run(Mode::strict);
}
RC_GTEST_PROP(VirtualMemoryProperty, AgreesWithTheReferenceInFaithfulMode, ()) {
  run(Mode::faithful);
}

}  // namespace
}  // namespace cuvmm::emulator::model
