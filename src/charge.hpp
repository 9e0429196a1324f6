// What a source has let exist, and the limits of it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "cuvmm/physical_source.hpp"

namespace cuvmm {

// The bytes that exist at each location. Outlives the source while memory of it exists. Thread-safe.
class Ledger {
 public:
  explicit Ledger(const std::vector<LocationBudget>& budgets);

  // Adds the bytes, unless that broke the budget.
  [[nodiscard]] bool charge(const Location& location, std::size_t bytes);
  void discharge(const Location& location, std::size_t bytes, bool created) noexcept;
  // The bytes were created, too: they count for the peak.
  void confirm(std::size_t bytes) noexcept;

  [[nodiscard]] std::size_t existing(const Location& location) const;
  [[nodiscard]] std::size_t existing() const;
  [[nodiscard]] std::size_t peak() const;
  [[nodiscard]] std::optional<std::size_t> budget(const Location& location) const;

 private:
  struct Account {
    std::size_t existing = 0;
    std::optional<std::size_t> budget;
  };
  using Key = std::pair<LocationKind, int>;
  // The host at large has no number.
  static Key key(const Location& location) noexcept {
    return {location.kind, location.kind == LocationKind::host ? 0 : location.id};
  }

  mutable std::mutex mutex_;
  std::map<Key, Account> accounts_;  // none is ever taken out: giving back does not allocate
  std::size_t total_ = 0;
  std::size_t created_ = 0;  // of the total
  std::size_t peak_ = 0;
};

// Bytes in a ledger, for as long as they exist.
class Charge {
 public:
  // Nothing if the budget does not allow it.
  [[nodiscard]] static std::shared_ptr<Charge> make(const std::shared_ptr<Ledger>& ledger, const Location& location,
                                                    std::size_t bytes);
  Charge(std::shared_ptr<Ledger> ledger, const Location& location) noexcept
      : ledger_(std::move(ledger)), location_(location) {}
  ~Charge() { ledger_->discharge(location_, bytes_, created_); }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  Charge(Charge&&) = delete;
  Charge& operator=(Charge&&) = delete;

  // The memory was created.
  void confirm() noexcept {
    created_ = true;
    ledger_->confirm(bytes_);
  }

 private:
  std::shared_ptr<Ledger> ledger_;
  Location location_;
  std::size_t bytes_ = 0;
  bool created_ = false;
};

}  // namespace cuvmm
