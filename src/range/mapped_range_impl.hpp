// What a MappedRange is inside. Growth, release and rights are implemented in a file each (src/range/*.cpp).
#pragma once

#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "cuvmm/mapped_range.hpp"
#include "range/chunk_map.hpp"
#include "range/range_addresses.hpp"

namespace cuvmm {

namespace range {
std::vector<abi::CUmemAccessDesc> descriptors_of(std::span<const AccessGrant> grants);

// Why something is none that the range could give or take.
struct Flaw {
  std::string rule;
  const char* way_out;
  std::string_view rule_id = {};
};
std::optional<Flaw> flaw_in(const AccessGrant& grant);
}  // namespace range

class MappedRange::Impl {
 public:
  using ChunkMap = range::ChunkMap;
  using Extent = range::Extent;

  Impl(std::shared_ptr<range::RangeAddresses> addresses, MappedRangeOptions options, std::size_t granularity);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  Impl(Impl&&) = delete;
  Impl& operator=(Impl&&) = delete;
  ~Impl() { end(); }

  // Gives everything back as the destructor does; nothing may be asked of it afterwards but to be destroyed.
  void end() noexcept;

  // New chunks of the range in [offset, end): undone by the destructor unless committed.
  class Growth {
   public:
    Growth(Impl& range, const Extent& extent, std::size_t new_size) noexcept
        : range_(&range), extent_(extent), new_size_(new_size) {}
    Growth(Growth&& other) noexcept
        : range_(std::exchange(other.range_, nullptr)), extent_(other.extent_), new_size_(other.new_size_) {}
    Growth(const Growth&) = delete;
    Growth& operator=(const Growth&) = delete;
    Growth& operator=(Growth&&) = delete;
    ~Growth() {
      if (range_ != nullptr && extent_.bytes != 0) range_->undo(extent_);
    }
    void commit() noexcept;

   private:
    Impl* range_;
    Extent extent_;
    std::size_t new_size_;
  };

  // Runs a change, one at a time: hooks and observers that it calls may ask the range, not change it.
  template <class Change>
  static auto change(const std::unique_ptr<Impl>& range, std::string_view call, Change&& work)
      -> decltype(work(*range)) {
    if (!range) return nothing_left(call);
    if (range->changing_) return range->already_changing(call);
    Changing changing(*range);
    auto result = work(*range);
    if (result) changing.succeeded();
    return result;
  }
  // Unless it succeeds, addresses that were reserved meanwhile are given back at the end.
  class Changing {
   public:
    explicit Changing(Impl& range) noexcept : range_(&range), capacity_(range.addresses_->size()) {
      range.changing_ = true;
    }
    Changing(Changing&& other) noexcept : range_(std::exchange(other.range_, nullptr)), capacity_(other.capacity_) {}
    Changing(const Changing&) = delete;
    Changing& operator=(const Changing&) = delete;
    Changing& operator=(Changing&&) = delete;
    ~Changing() {
      if (range_ == nullptr) return;
      range_->addresses_->give_back_behind(capacity_);
      range_->changing_ = false;
    }
    void succeeded() noexcept { capacity_ = SIZE_MAX; }

   private:
    Impl* range_;
    std::size_t capacity_;  // to be kept
  };
  [[nodiscard, gnu::cold]] static Failure nothing_left(std::string_view call);
  [[nodiscard, gnu::cold]] Failure already_changing(std::string_view call) const;

  // Growing: src/range/growth.cpp.
  Result<std::size_t> append(std::size_t bytes, const Location* location);
  Result<std::size_t> append(std::span<const SharedPhysicalMemory> memories);
  Result<void> map(std::size_t offset, std::size_t bytes);
  Result<void> map(std::string_view call, std::size_t offset, std::span<const SharedPhysicalMemory> memories);
  Result<void> map(std::span<const MemoryAt> places);
  Result<Growth> prepare_append(std::size_t bytes, const Location* location, std::size_t* begin);

  // Exchanging and giving back: src/range/release.cpp.
  Result<SharedPhysicalMemory> replace(std::size_t offset, const SharedPhysicalMemory& memory);
  enum class Pins : bool { heeded, overruled };
  Result<void> unmap(std::string_view call, std::size_t offset, std::size_t bytes, Pins pins = Pins::heeded);
  Result<void> unmap_unused(std::string_view call, const Extent& extent);
  Result<void> truncate(std::size_t bytes);
  void close();

  // Rights: src/range/rights.cpp.
  Result<void> grant(std::span<const AccessGrant> asked, std::string_view call = "MappedRange::grant");
  Result<void> revoke(const Location& location);
  std::vector<DeviceOrdinal> grant_where_reachable(std::span<const DeviceOrdinal> devices, AccessRights rights);

  RangePin pin(std::string reason);
  std::vector<std::string> pins() const;
  RangeObservation observe(RangeObserver observer);

  const Driver& driver() const noexcept { return addresses_->driver(); }

  // What every change touches comes first, and lies together.
  std::shared_ptr<range::RangeAddresses> addresses_;
  std::size_t granularity_;
  std::vector<abi::CUmemAccessDesc> descriptors_;  // of the grants, as the driver takes them
  ChunkMap chunks_;
  std::size_t size_ = 0;
  std::size_t mapped_bytes_ = 0;
  std::uint64_t generation_ = 0;
  std::vector<std::weak_ptr<const std::string>> pins_;
  std::vector<std::weak_ptr<const RangeObserver>> observers_;
  std::shared_ptr<StreamUses> uses_;
  MemoryProperties properties_;
  bool changing_ = false;
  bool several_locations_ = false;  // there is or was a chunk of another one than the range's own
  bool features_known_ = false;     // what was asked for has been compared with what was got
  bool rights_certain_ = true;      // the driver's rights are those of grants_
  std::vector<AccessGrant> grants_;
  MappedRangeOptions options_;

 private:
  // `rule_id`: where the rule is one of the rule book.
  [[nodiscard, gnu::cold]] Failure refusal(std::string_view call, std::string arguments, std::string rule,
                                           std::string way_out, std::string_view rule_id = {}) const;
  // The refusal of a device that there is not; throws if the driver cannot be asked.
  [[nodiscard, gnu::cold]] std::optional<Failure> missing_device(std::string_view call, const Location& location,
                                                                 std::string_view rule_id) const;
  [[nodiscard, gnu::cold]] Failure with_missing_device_told(Failure failure, std::string_view call,
                                                            const Location& location) const;
  [[nodiscard]] std::string name() const;  // "range at 0x... (6 MiB mapped, 64 GiB reserved)"

  // Growing.
  Result<void> make_room(std::string_view call, const Extent& extent);
  Result<Growth> grow(std::string_view call, const Extent& extent, std::span<const std::size_t> sizes,
                      const Location& location, std::size_t new_size);
  Result<Growth> place(const Extent& extent, std::span<const SharedPhysicalMemory> memories, std::size_t new_size);
  std::optional<range::Flaw> flaw_in_place(const Extent& extent, const Location& location) const;
  Result<std::size_t> end_of_memories(std::string_view call, std::size_t offset,
                                      std::span<const SharedPhysicalMemory> memories) const;
  Result<void> check_free(std::string_view call, const Extent& extent) const;
  Result<void> check_borders(std::string_view call, std::size_t offset,
                             std::span<const SharedPhysicalMemory> memories) const;
  void insert(const Extent& extent, std::span<const SharedPhysicalMemory> memories);
  Result<void> map_and_grant(const Extent& extent);
  // Whether asking again without a feature is allowed and may help; takes the feature out of the properties.
  bool do_without_feature(const Failure& failure);
  Result<void> learn_handle_types(const MemoryProperties& asked, const SharedPhysicalMemory& memory);
  Result<void> learn_what_was_got(const MemoryProperties& asked, const SharedPhysicalMemory& memory);
  MemoryProperties properties_at(const Location& location) const;
  std::size_t mapped_from(std::size_t offset) const;
  std::vector<std::size_t> chunk_sizes(const ChunkPolicy& policy, const Extent& extent, const Location& location) const;
  void undo(const Extent& extent) noexcept;
  void quarantine_what_stays(ChunkMap chunks) noexcept;

  // Whether the location has no rights that this could take away.
  [[nodiscard]] bool takes_nothing(const AccessGrant& change, std::span<const AccessGrant> changes) const;
  [[nodiscard]] std::vector<Location> places() const;
  void take_rights_back(std::size_t end, std::span<const abi::CUmemAccessDesc> previous);

  // Giving back.
  Result<void> allow_unmap(std::string_view call, const Extent& extent, Pins pins = Pins::heeded) const;
  Result<void> wait_for_device(std::string_view call);
  Result<void> wait_for_retired(std::string_view call, const Extent& extent);
  [[gnu::cold]] Failure wait_failure(std::string_view call, Failure failure) const;
  Result<void> unmap_now(const Extent& extent);
  Extent chunks_in(const Extent& extent) const;
  Result<void> retire(const Extent& extent);
  void take_out(ChunkMap& released, const Extent& extent);
  void put_back(ChunkMap&& chunks) noexcept;
  bool give_all_back(const Extent& whole) noexcept;
  void abandon() noexcept;
  Result<void> remap(ChunkMap& chunk);
  ChunkMap* remap_one_of(std::initializer_list<ChunkMap*> chunks, Result<void>& result, std::exception_ptr& thrown);

  using Observers = std::vector<std::shared_ptr<const RangeObserver>>;
  Observers observers() const;
  std::vector<Extent> tell_before_unmap(const Extent& extent) const;
  template <class Change>
  Result<void> tell_and_change(std::string_view call, const Extent& chunks, Pins pins, bool retires, Change&& change);
  std::vector<Extent> runs_in(const Extent& extent) const;
  void tell_outcome(std::span<const Extent> told) const noexcept;
  std::vector<Extent> tell_of_end(const Extent& extent) const;  // as before unmapping, which nothing stops
  void tell_after_map(const Extent& extent) const noexcept;
  using Callback = std::function<void(std::size_t offset, std::size_t bytes)> RangeObserver::*;
  void tell_each(std::span<const std::shared_ptr<const RangeObserver>> observers, Callback callback,
                 const Extent& extent) const noexcept;
  void report_observer(std::string_view callback, const Extent& extent) const noexcept;

  friend class MappedRange;
};

}  // namespace cuvmm
