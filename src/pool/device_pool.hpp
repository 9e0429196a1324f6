// The pool at one device.
#pragma once

#include <atomic>
#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cuvmm/address_reservation.hpp"
#include "cuvmm/device.hpp"
#include "cuvmm/pool/pool_options.hpp"
#include "cuvmm/pool/pool_statistics.hpp"
#include "driver/abi.hpp"
#include "pool/packed_space.hpp"
#include "pool/pool_stream.hpp"
#include "pool/span_space.hpp"

namespace cuvmm::pool {

// What the pools that share it may have of a device, all together. Taken before memory is made. Thread-safe.
class Budget {
 public:
  explicit Budget(std::size_t limit) noexcept : limit_(limit) {}

  [[nodiscard]] bool charge(std::size_t bytes) noexcept;
  void discharge(std::size_t bytes) noexcept { used_ -= bytes; }
  [[nodiscard]] std::size_t limit() const noexcept { return limit_; }

 private:
  std::size_t limit_;  // 0: none
  std::atomic<std::size_t> used_ = 0;
};

// What all devices of a pool have in common.
struct PoolSetting {
  Driver driver;
  PoolOptions options;
  std::shared_ptr<PhysicalSource> source;
  bool for_capture = false;  // whether graphs may use what was freed
};

// Thread-safe. The lock guards what is written down, and is not held while the driver is called: a thread that changes
// mappings takes what it needs out of the books first, so that no other sees it, and puts it back afterwards.
class DevicePool {
 public:
  // The lender, if any, is the pool that has free memory for this one, and the same budget.
  [[nodiscard]] static Result<std::shared_ptr<DevicePool>> create(const PoolSetting& setting, DeviceOrdinal ordinal,
                                                                  std::shared_ptr<Budget> budget,
                                                                  const std::shared_ptr<DevicePool>& lender = {});
  DevicePool(const PoolSetting& setting, const Device& device, std::shared_ptr<Budget> budget,
             const std::shared_ptr<DevicePool>& lender, AddressReservation reservation);
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;
  DevicePool(DevicePool&&) = delete;
  DevicePool& operator=(DevicePool&&) = delete;
  ~DevicePool();

  [[nodiscard]] Result<DeviceAddress> allocate(std::size_t bytes, CUstream_st* handle);
  [[nodiscard]] Result<void> used_on(DeviceAddress address, CUstream_st* handle);
  [[nodiscard]] Result<void> free(DeviceAddress address, CUstream_st* handle);
  [[nodiscard]] Result<void> forget(CUstream_st* handle);
  std::size_t trim(std::size_t keep_bytes, std::size_t step_bytes);
  // Waits until the device is done with all that was freed, and lets go of captures. Whether nothing is left in use.
  [[nodiscard]] bool drain(std::chrono::steady_clock::time_point deadline);
  // All that is free, when it has been drained. Without a lender nothing happens.
  void give_back_to_lender();
  // It is never destroyed: what is live in it stays mapped. Allocates nothing.
  static void keep_for_ever(std::shared_ptr<DevicePool> pool) noexcept;

  [[nodiscard]] bool holds(DeviceAddress address) const noexcept;
  [[nodiscard]] std::optional<PoolAllocation> describe(DeviceAddress address) const;
  [[nodiscard]] PoolStatistics statistics() const;
  [[nodiscard]] DeviceOrdinal device() const noexcept { return device_.ordinal(); }
  [[nodiscard]] const std::shared_ptr<Budget>& budget() const noexcept { return budget_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;
  using Streams = std::vector<std::shared_ptr<PoolStream>>;
  enum class Where : unsigned char { loose, packed, spans };

  // Free physical memory, and where it is.
  struct Candidate {
    std::size_t bytes = 0;
    Where where = Where::loose;
    std::size_t offset = 0;  // in its space
  };
  // The same, taken out of the books.
  struct Taken {
    SharedPhysicalMemory memory;
    std::optional<Chunk> chunk{};  // unless it is mapped nowhere
    Where where = Where::loose;
    std::size_t offset = 0;
  };
  // How some bytes of memory are to be come by.
  struct Plan {
    std::vector<Taken> reused;
    std::vector<Taken> released;
    std::size_t created = 0;  // bytes
  };
  struct Deferred {
    PendingWork work;
    std::size_t offset = 0;  // from the beginning of the reservation
  };
  // An allocation on its way.
  struct Request {
    std::size_t asked = 0;
    std::size_t rounded = 0;
    std::shared_ptr<PoolStream> stream;
    [[nodiscard]] Tenant tenant() const noexcept { return {stream->number, asked}; }
  };

  // Counts the thread among those that have memory out of the books.
  class InFlight {
   public:
    explicit InFlight(DevicePool& pool) : pool_(pool) {
      const Lock lock(pool_.mutex_);
      ++pool_.in_flight_;
    }
    ~InFlight() {
      const Lock lock(pool_.mutex_);
      --pool_.in_flight_;
    }
    InFlight(const InFlight&) = delete;
    InFlight& operator=(const InFlight&) = delete;
    InFlight(InFlight&&) = delete;
    InFlight& operator=(InFlight&&) = delete;

   private:
    DevicePool& pool_;
  };

  // --- device_pool.cpp: what needs no driver.
  [[nodiscard]] std::shared_ptr<PoolStream> known_stream(CUstream_st* handle) const;
  [[nodiscard]] Result<std::shared_ptr<PoolStream>> stream_of(std::string_view call, CUstream_st* handle);
  [[nodiscard]] bool is_large(std::size_t rounded) const noexcept { return rounded >= setting_.options.large_from; }
  [[nodiscard]] std::optional<std::size_t> take(const Request& request);  // with the lock
  [[nodiscard]] bool few_splinters() const noexcept;                      // with the lock
  void count_allocation(const Request& request, bool warm);
  [[nodiscard]] std::optional<Tenant> tenant_at(std::size_t offset) const;
  void detain(std::size_t offset);
  void give(std::size_t offset, const Claim& claim);
  [[nodiscard]] Failure not_a_stream_of(DeviceAddress address, CUstream_st* handle, CUstream_st* own) const;
  [[nodiscard]] Failure not_live(std::string_view call, DeviceAddress address) const;
  [[nodiscard]] Result<void> free_behind_all(std::size_t offset, const Tenant& tenant, Streams users);

  // --- device_pool_work.cpp: asking what the device has done.
  void poll();
  void ask(PoolStream& stream);
  void ripen(const PoolStream& stream);  // with the lock
  [[nodiscard]] PendingWork work_of(PoolStream& stream) const;
  void ask_deferred();
  void look_for_destroyed_streams();
  [[nodiscard]] bool anything_awaited() const;                       // with the lock
  [[nodiscard]] bool waiting_may_help() const;                       // with the lock
  [[nodiscard]] bool wait_for_progress(Clock::time_point deadline);  // whether there was any

  // --- device_pool_growth.cpp: mapping.
  [[nodiscard]] Result<std::size_t> allocate_cold(const Request& request);
  [[nodiscard]] Result<std::size_t> grow(const Request& request, bool sparing);
  [[nodiscard]] std::optional<PackedSpace::Window> open_window(const Request& request, bool sparing);
  [[nodiscard]] Result<std::size_t> grow_packed(const Request& request, bool sparing);
  [[nodiscard]] Result<std::size_t> grow_spans(const Request& request, bool sparing);
  [[nodiscard]] Result<std::vector<Chunk>> back(const Place& place, std::size_t largest, bool sparing);
  [[nodiscard]] Result<std::vector<Chunk>> map(const Place& place, std::vector<SharedPhysicalMemory>&& pieces);
  void unmap_again(std::vector<Chunk>& chunks);
  void give_addresses_outside_quarantine(const Place& place);  // with the lock
  [[nodiscard]] std::size_t packed_chunk() const;
  [[nodiscard]] std::string tell_destroyed_streams() const;
  [[nodiscard]] Failure out_of_memory(const Request& request, const Failure& cause) const;
  [[nodiscard]] Failure larger_than_the_device(std::size_t bytes, std::optional<std::size_t> rounded) const;
  [[nodiscard]] Failure out_of_addresses(const Request& request) const;

  // --- device_pool_memory.cpp: physical memory that is free, or is made.
  [[nodiscard]] std::vector<Candidate> candidates() const;  // the largest first
  [[nodiscard]] static Candidate take_for(std::size_t bytes, std::vector<Candidate>& candidates);
  [[nodiscard]] std::size_t idle_bytes() const;
  [[nodiscard]] Taken take_out(const Candidate& candidate);
  [[nodiscard]] Plan plan(std::size_t bytes, std::size_t largest, bool sparing);
  [[nodiscard]] Result<std::vector<SharedPhysicalMemory>> gather(std::size_t bytes, std::size_t largest, bool sparing);
  [[nodiscard]] Result<std::size_t> recycle(std::size_t bytes, std::size_t largest, bool sparing,
                                            std::vector<SharedPhysicalMemory>& pieces);
  [[nodiscard]] Result<void> create(std::size_t bytes, std::size_t largest, std::vector<SharedPhysicalMemory>& pieces);
  [[nodiscard]] Result<void> unmap(std::vector<Taken>& taken);
  void put_back(std::vector<Taken>& taken);
  void release(std::vector<Taken>& taken);
  void keep_loose(std::vector<SharedPhysicalMemory>& pieces);
  void loosen();

  // --- device_pool_lending.cpp
  [[nodiscard]] Result<std::size_t> borrow(std::size_t bytes, std::size_t largest, bool sparing,
                                           std::vector<SharedPhysicalMemory>& pieces);
  [[nodiscard]] Result<std::size_t> lend(std::size_t bytes, std::size_t largest, bool sparing,
                                         std::vector<SharedPhysicalMemory>& lent);
  void account_for(const std::vector<SharedPhysicalMemory>& pieces, bool comes);
  [[nodiscard]] bool lender_progresses(Clock::time_point deadline);  // waits for it

  // What is charged at the end, until all memory has gone.
  struct LastCharge {
    std::shared_ptr<Budget> budget;
    std::size_t bytes = 0;
    explicit LastCharge(std::shared_ptr<Budget> charged) noexcept : budget(std::move(charged)) {}
    ~LastCharge() { budget->discharge(bytes); }
    LastCharge(const LastCharge&) = delete;
    LastCharge& operator=(const LastCharge&) = delete;
    LastCharge(LastCharge&&) = delete;
    LastCharge& operator=(LastCharge&&) = delete;
  };

  LastCharge last_charge_;  // destroyed last
  const PoolSetting setting_;
  const Device device_;
  const std::shared_ptr<Budget> budget_;
  const std::weak_ptr<DevicePool> lender_;
  const MemoryProperties properties_;
  const std::size_t granularity_;
  const std::size_t device_bytes_;  // that the device has
  std::vector<abi::CUmemAccessDesc> grants_;
  const AddressReservation reservation_;  // one half is packed, the other for spans
  const std::size_t border_;

  mutable std::mutex mutex_;
  PackedSpace packed_;
  SpanSpace spans_;
  std::multimap<std::size_t, SharedPhysicalMemory> loose_;  // mapped nowhere
  std::map<std::size_t, Chunk> quarantine_;                 // by offset: could not be unmapped, and is kept out of use
  std::unordered_map<StreamKey, std::shared_ptr<PoolStream>, StreamKeyHash> by_key_;
  Streams streams_;                                 // by number - 1; also those that were forgotten
  std::unordered_map<std::size_t, Streams> users_;  // streams that use an allocation beside its own
  std::list<Deferred> deferred_;                    // freed, behind several streams
  std::size_t asking_deferred_ = 0;                 // threads that have these out of the books
  std::size_t in_flight_ = 0;                       // threads that have memory out of the books
  std::uint64_t progress_ = 0;                      // grows when memory becomes free for everybody
  PoolStatistics numbers_;                          // those that are counted as they change
  std::shared_ptr<DevicePool> itself_;              // kept for ever
  DevicePool* kept_before_ = nullptr;               // the one that was kept before it
};

}  // namespace cuvmm::pool
