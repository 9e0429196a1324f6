// A store of physical memory without bytes, for tests.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "emulator/model/physical_store.hpp"

namespace cuvmm::emulator::model::test {

// Counts what is taken, and notes what comes back.
class LedgerSupply final : public PhysicalSupply {
 public:
  explicit LedgerSupply(Ledger ledger) : ledger_(std::move(ledger)) {}

  std::optional<std::uint64_t> take(Place place, std::uint64_t bytes, const abi::CUmemAllocationProp&) override {
    given_back_.reserve(static_cast<std::size_t>(next_id_));  // giving back needs no memory
    if (!ledger_.take(place, bytes)) return std::nullopt;
    return next_id_++;
  }
  void give_back(const Allocation& allocation) noexcept override {
    if (allocation.is_multicast()) {
      teams.remove(allocation.id, [](const MulticastBinding&) {});
      return;
    }
    ledger_.give_back(allocation.place, allocation.bytes);
    given_back_.push_back(allocation.bytes);
  }
  std::uint64_t free(Place place) override { return ledger_.free(place); }
  std::uint64_t total(Place place) const override { return ledger_.total(place); }
  bool has_imex_channel() override { return imex_channel; }
  std::uint64_t take_multicast(std::uint32_t devices, std::uint64_t, const abi::CUmemAllocationProp&) override {
    given_back_.reserve(static_cast<std::size_t>(next_id_));
    teams.add(next_id_, devices);
    return next_id_++;
  }
  MulticastState multicast_state(const Allocation& object) override {
    return {teams.team(object.id), teams.missing(object.id), others, devices_in_reach};
  }
  JoinOutcome join_multicast(const Allocation& object, int device) override {
    return teams.join(object.id, {0, device});
  }
  BindOutcome bind_multicast(const Allocation& object, int device, std::uint64_t offset, std::uint64_t bytes,
                             Allocation& memory, std::uint64_t memory_offset) override {
    return teams.bind(object.id, {{0, device}, offset, bytes, memory.id, memory_offset});
  }
  bool unbind_multicast(const Allocation& object, int device, std::uint64_t offset, std::uint64_t bytes,
                        std::uint64_t* memory) override {
    const auto gone = teams.unbind(object.id, {0, device}, offset, bytes);
    if (gone) *memory = gone->memory;
    return gone.has_value();
  }
  bool is_bound(const Allocation& memory) override { return teams.is_bound(memory.id); }

  [[nodiscard]] const Ledger& ledger() const { return ledger_; }
  [[nodiscard]] const std::vector<std::uint64_t>& given_back() const { return given_back_; }

  bool imex_channel = true;
  MulticastTeams teams{2};
  bool others = false;       // processes that may add devices to multicast objects
  int devices_in_reach = 2;  // of multicast objects

 private:
  Ledger ledger_;
  std::vector<std::uint64_t> given_back_;  // bytes of each
  std::uint64_t next_id_ = 1;
};

struct HoldsLedgerSupply {
  LedgerSupply supply;
};

// A store with its supply.
class LedgerStore : private HoldsLedgerSupply, public PhysicalStore {
 public:
  explicit LedgerStore(Ledger ledger)
      : HoldsLedgerSupply{LedgerSupply(std::move(ledger))}, PhysicalStore(HoldsLedgerSupply::supply) {}

  using HoldsLedgerSupply::supply;
  [[nodiscard]] const Ledger& ledger() const { return supply.ledger(); }
};

}  // namespace cuvmm::emulator::model::test
