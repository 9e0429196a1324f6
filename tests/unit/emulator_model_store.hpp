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
    ledger_.give_back(allocation.place, allocation.bytes);
    given_back_.push_back(allocation.bytes);
  }
  std::uint64_t free(Place place) override { return ledger_.free(place); }
  std::uint64_t total(Place place) const override { return ledger_.total(place); }
  bool has_imex_channel() override { return imex_channel; }

  [[nodiscard]] const Ledger& ledger() const { return ledger_; }
  [[nodiscard]] const std::vector<std::uint64_t>& given_back() const { return given_back_; }

  bool imex_channel = true;

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
