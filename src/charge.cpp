#include "charge.hpp"

#include <algorithm>

namespace cuvmm {

Ledger::Ledger(const std::vector<LocationBudget>& budgets) {
  for (const LocationBudget& each : budgets) accounts_[key(each.location)].budget = each.bytes;
}

bool Ledger::charge(const Location& location, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  Account& account = accounts_[key(location)];
  if (account.budget && (bytes > *account.budget || account.existing > *account.budget - bytes)) return false;
  account.existing += bytes;
  total_ += bytes;
  return true;
}

void Ledger::confirm(std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  created_ += bytes;
  peak_ = std::max(peak_, created_);
}

void Ledger::discharge(const Location& location, std::size_t bytes, bool created) noexcept {
  const std::lock_guard lock(mutex_);
  if (created) created_ -= bytes;
  if (const auto found = accounts_.find(key(location)); found != accounts_.end()) found->second.existing -= bytes;
  total_ -= bytes;
}

std::size_t Ledger::existing(const Location& location) const {
  const std::lock_guard lock(mutex_);
  const auto found = accounts_.find(key(location));
  return found == accounts_.end() ? 0 : found->second.existing;
}

std::size_t Ledger::existing() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

std::size_t Ledger::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

std::optional<std::size_t> Ledger::budget(const Location& location) const {
  const std::lock_guard lock(mutex_);
  const auto found = accounts_.find(key(location));
  return found == accounts_.end() ? std::nullopt : found->second.budget;
}

std::shared_ptr<Charge> Charge::make(const std::shared_ptr<Ledger>& ledger, const Location& location,
                                     std::size_t bytes) {
  auto charge = std::make_shared<Charge>(ledger, location);  // first: nothing may fail once the bytes are counted
  if (!ledger->charge(location, bytes)) return nullptr;
  charge->bytes_ = bytes;
  return charge;
}

}  // namespace cuvmm
