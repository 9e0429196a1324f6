#include "cuvmm/team/symmetric_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "refusal.hpp"
#include "report_exception.hpp"
#include "sharing/wire.hpp"

namespace cuvmm::team {

using namespace sharing;

namespace {

constexpr std::string_view creating = "SymmetricMemory::create";
constexpr std::string_view growing = "SymmetricMemory::grow";
constexpr std::string_view closing = "SymmetricMemory::close";

Failure does_not_fit(std::string_view call, std::size_t bytes) {
  return invalid_use(call, fmt::format("bytes = {}", bytes), "The parts of all ranks have to fit into addresses",
                     "Ask for less");
}

// What each rank says that it was asked for.
struct Request {
  std::uint64_t bytes = 0;
  std::uint64_t capacity = 0;
  std::uint64_t granularity = 0;
  std::uint8_t multicast = 0;
};

Bytes encode(const Request& request) {
  return Writer()
      .number(request.bytes)
      .number(request.capacity)
      .number(request.granularity)
      .number(request.multicast)
      .take();
}

Request decode_request(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Request request;
  request.bytes = reader.number<std::uint64_t>();
  request.capacity = reader.number<std::uint64_t>();
  request.granularity = reader.number<std::uint64_t>();
  request.multicast = reader.number<std::uint8_t>();
  return reader.complete() ? request : Request{};
}

std::string text_of(std::size_t rank, const Request& request) {
  constexpr std::string_view wishes[] = {"never", "if possible", "required"};
  return fmt::format("rank {}: bytes = {}, capacity = {}, multicast {}", rank, request.bytes, request.capacity,
                     wishes[std::min<std::size_t>(request.multicast, 2)]);
}

// All compute it from the same facts, and come to the same.
Result<void> require_equal(std::string_view call, const std::vector<Request>& all) {
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank].bytes != all[0].bytes || all[rank].capacity != all[0].capacity ||
        all[rank].multicast != all[0].multicast)
      return invalid_use(call, text_of(0, all[0]) + "; " + text_of(rank, all[rank]),
                         "Symmetric memory is the same on all ranks", "Pass the same numbers on all ranks");
  return {};
}

}  // namespace

class SymmetricMemory::Impl {
 public:
  Impl(std::shared_ptr<Team> team, const SymmetricMemoryOptions& options)
      : team_(std::move(team)), options_(options), source_(options.source) {
    properties_.location = team_->device().location();
    properties_.compression = options.compression;
    properties_.handle_types = options.handle_types;
    if (properties_.handle_types.empty())
      properties_.handle_types = team_->is_on_one_node() ? HandleTypes(HandleType::posix_file_descriptor)
                                                         : HandleType::posix_file_descriptor | HandleType::fabric;
  }

  Result<void> create(std::size_t bytes, const Deadline& deadline) {
    const auto all = agree_on_request(creating, "symmetric memory: request", bytes, options_.capacity, deadline);
    if (!all) return all.failure();
    if (auto laid_out = lay_out(*all, deadline); !laid_out) return laid_out;
    const auto reserved = reserve();
    return add_part(bytes, reserved, deadline);
  }

  Result<std::size_t> grow(std::size_t bytes, const Deadline& deadline) {
    const auto all = agree_on_request(growing, "symmetric memory: grow", bytes, capacity_, deadline);
    if (!all) return all.failure();
    if (bytes > capacity_ - size_)
      return invalid_use(growing, fmt::format("bytes = {}, size = {}, capacity = {}", bytes, size_, capacity_),
                         "A part grows up to its capacity, since its addresses stay",
                         "Create it with a larger SymmetricMemoryOptions::capacity, on all ranks");
    const std::size_t begin = size_;
    if (auto added = add_part(bytes, {}, deadline); !added) return added.failure();
    return begin;
  }

  Result<void> close(const Deadline& deadline) {
    // Others may still have work for this rank's memory before they come here.
    if (auto all = team_->try_vote("symmetric memory: leave", {}, deadline); !all) return all;
    if (multicast_)
      if (auto closed = multicast_->try_close(deadline); !closed) return closed;
    multicast_.reset();
    multicast_bytes_ = 0;
    spare_ = {};
    const auto closed = close_range();
    return team_->try_vote("symmetric memory: unmap and release", closed, deadline);
  }

  [[nodiscard]] const std::shared_ptr<Team>& team() const noexcept { return team_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::size_t stride() const noexcept { return stride_; }
  [[nodiscard]] std::size_t multicast_size() const noexcept {
    return multicast_ && multicast_->is_mapped() ? std::min(multicast_bytes_, size_) : 0;
  }
  [[nodiscard]] const std::optional<Failure>& why_no_multicast() const noexcept { return why_no_multicast_; }
  [[nodiscard]] std::optional<DeviceAddress> multicast_address(std::string_view call, std::size_t offset) const {
    static_cast<void>(offset_of(call, 0, offset));
    if (multicast_size() == 0 || offset > multicast_size()) return std::nullopt;
    return multicast_->address(offset);
  }
  // None once this rank has given it back, while others still have theirs.
  [[nodiscard]] MappedRange& range(std::string_view call) {
    if (!range_) raise(owns_nothing(call, "symmetric memory"));
    return *range_;
  }

  [[nodiscard]] std::size_t offset_of(std::string_view call, int rank, std::size_t offset) const {
    if (rank < 0 || rank >= team_->size() || offset > size_)
      raise(invalid_use(call, fmt::format("rank = {} of {}, offset = {} of {}", rank, team_->size(), offset, size_),
                        "An address is of a rank of the team and a byte of its part",
                        "Pass a rank below Team::size(), and an offset up to size()"));
    return static_cast<std::size_t>(rank) * stride_ + offset;
  }

 private:
  // A rank that cannot take part says so, and all have the same refusal; else all know what all want.
  Result<std::vector<Request>> agree_on_request(std::string_view call, std::string_view step, std::size_t bytes,
                                                std::size_t capacity, const Deadline& deadline) {
    const auto said = team_->try_agree(step, make_request(call, bytes, capacity), deadline);
    if (!said) return said.failure();
    std::vector<Request> all;
    for (const Bytes& each : *said) all.push_back(decode_request(each));
    if (auto equal = require_equal(call, all); !equal) return equal.failure();
    return all;
  }

  Result<Bytes> make_request(std::string_view call, std::size_t bytes, std::size_t capacity) try {
    if (bytes == 0)
      return invalid_use(call, "bytes = 0", "A part has one byte at least", "Pass the size of each rank's part");
    if (stride_ != 0 && !range_) return owns_nothing(call, "symmetric memory");
    if (has_leftovers_)
      if (auto clean = remove_what_is_behind(mapped_); !clean) return clean.failure();
    if (!source_) source_ = PhysicalSource::create(team_->device().driver());
    if (spare_ && spare_.size() != chunk_bytes(bytes)) return must_grow_alike(bytes);
    const std::size_t granularity = PhysicalMemory::granularity(team_->device().driver(), properties_);
    return encode(Request{bytes, capacity, granularity, static_cast<std::uint8_t>(options_.multicast)});
  } catch (const Error& error) {
    return error.failure();
  }

  // A growth that was refused for want of multicast has left memory bound, which has to be the next.
  [[nodiscard]] Failure must_grow_alike(std::size_t bytes) const {
    return invalid_use(growing, fmt::format("bytes = {}, which takes {} more", bytes, format_bytes(chunk_bytes(bytes))),
                       fmt::format("The growth before, of {}, was refused since not all ranks could bind it, and what "
                                   "some have bound stays where it is",
                                   format_bytes(spare_.size())),
                       "Grow by the same again, or close it and create another");
  }

  Result<void> lay_out(const std::vector<Request>& all, const Deadline& deadline) try {
    std::vector<std::size_t> granularities;
    granularities.reserve(all.size() + 1);
    for (const Request& each : all) granularities.push_back(static_cast<std::size_t>(each.granularity));
    const std::size_t wanted = static_cast<std::size_t>(std::max(all[0].bytes, all[0].capacity));
    if (auto made = make_multicast(wanted, deadline); !made) return made;
    if (multicast_) granularities.push_back(multicast_->granularity());
    granularity_ = combined_granularity(granularities);
    if (wanted > SIZE_MAX / all.size() - granularity_) return does_not_fit(creating, wanted);
    stride_ = rounded_up(wanted);
    capacity_ = wanted;
    return {};
  } catch (const Error& error) {
    return error.failure();
  }

  // One object for all that the parts can grow to, since objects are scarce and their addresses stay.
  Result<void> make_multicast(std::size_t bytes, const Deadline& deadline) {
    if (options_.multicast == Multicast::never) return {};
    auto made =
        MulticastTeam::try_create(team_, bytes, {.memory = properties_, .device_wait = options_.device_wait}, deadline);
    if (made)
      multicast_.emplace(std::move(made).value());
    else if (options_.multicast == Multicast::required)
      return made.failure();
    else
      why_no_multicast_ = made.failure();
    return {};
  }

  [[nodiscard]] std::size_t rounded_up(std::size_t bytes) const {
    return (bytes + granularity_ - 1) / granularity_ * granularity_;
  }

  Result<void> reserve() {
    MappedRangeOptions made;
    made.capacity = stride_ * team_->members().size();
    made.memory = properties_;
    made.grants = {{team_->device().location(), AccessRights::read_write}};
    made.source = source_;
    made.alignment = granularity_;
    made.device_wait = options_.device_wait;
    if ((granularity_ & (granularity_ - 1)) != 0) made.alignment = 0;
    auto range = MappedRange::try_create(team_->device().driver(), made);
    if (!range) return range.failure();
    range_.emplace(std::move(range).value());
    if (multicast_) multicast_->heed(range_->uses());
    return {};
  }

  // How much memory is to be behind the last.
  [[nodiscard]] std::size_t chunk_bytes(std::size_t bytes) const { return rounded_up(size_ + bytes) - mapped_; }

  // `before`: what this rank had to do before; if it failed, all are told.
  Result<void> add_part(std::size_t bytes, const Result<void>& before, const Deadline& deadline) {
    const std::size_t new_bytes = chunk_bytes(bytes);
    if (new_bytes > 0)
      if (auto added = add_chunk(new_bytes, before, deadline); !added) return added;
    mapped_ += new_bytes;
    size_ += bytes;
    return {};
  }

  Result<void> add_chunk(std::size_t bytes, const Result<void>& before, const Deadline& deadline) {
    const auto mine = before ? acquire(bytes) : Result<SharedPhysicalMemory>(before.failure());
    const auto handles = team_->try_exchange_handles("symmetric memory", mine, deadline);
    if (!handles) return handles.failure();
    const auto mapped = map(*mine, *handles);
    auto all = team_->try_vote("symmetric memory: map", mapped, deadline);
    if (all && multicast_ && !why_no_multicast_) all = bind(*mine, deadline);
    if (!all && mapped) undo();
    return all;
  }

  Result<SharedPhysicalMemory> acquire(std::size_t bytes) {
    return spare_ ? Result<SharedPhysicalMemory>(spare_) : source_->try_acquire(properties_, bytes);
  }

  // The part's multicast address is as far into the object as its bytes are into the part.
  Result<void> bind(const SharedPhysicalMemory& mine, const Deadline& deadline) {
    auto bound = multicast_->try_bind(mapped_, mine, 0, mine.size(), deadline);
    if (bound) {
      multicast_bytes_ += mine.size();
      spare_ = {};
      return bound;
    }
    if (options_.multicast == Multicast::required) {
      spare_ = mine;
      return bound;
    }
    // Whether all know is what is asked here: the reason may be that the team is at an end.
    if (auto all = team_->try_vote("symmetric memory: go on without multicast", {}, deadline); !all) return bound;
    why_no_multicast_ = bound.failure();
    if (multicast_bytes_ == 0) multicast_.reset();
    return {};
  }

  Result<void> map(const SharedPhysicalMemory& mine, const HandlesOfRanks& handles) {
    std::vector<MemoryAt> parts;
    for (int rank = 0; rank < team_->size(); ++rank) {
      const auto& handle = handles[static_cast<std::size_t>(rank)];
      MemoryAt part{static_cast<std::size_t>(rank) * stride_ + mapped_, mine};
      if (handle) {
        auto imported = team_->try_import(rank, *handle);
        if (!imported) return imported.failure();
        part.memory = std::move(imported).value();
      }
      parts.push_back(std::move(part));
    }
    return range_->try_map(parts);
  }

  // Of this rank's addresses, in each part.
  Result<void> remove_what_is_behind(std::size_t begin) {
    for (std::size_t rank = 0; rank < team_->members().size(); ++rank)
      if (auto removed = range_->try_unmap(rank * stride_ + begin, stride_ - begin); !removed) return removed;
    has_leftovers_ = false;
    return {};
  }

  // What was mapped for nothing, since others could not. If that fails it is tried again before anything is mapped.
  void undo() {
    has_leftovers_ = true;
    if (auto removed = remove_what_is_behind(mapped_); !removed) report_cleanup_failure(removed.failure());
  }

  // Once; those that have done it wait for those that have not.
  Result<void> close_range() try {
    if (range_) range_->close();
    range_.reset();
    return {};
  } catch (const Error& error) {
    return error.failure();
  }

  std::shared_ptr<Team> team_;
  SymmetricMemoryOptions options_;
  MemoryProperties properties_;
  std::shared_ptr<PhysicalSource> source_;
  std::optional<MappedRange> range_;
  std::size_t granularity_ = 1;
  std::size_t stride_ = 0;
  std::size_t capacity_ = 0;
  std::size_t mapped_ = 0;  // bytes of each part that have memory
  std::size_t size_ = 0;
  bool has_leftovers_ = false;  // behind them, from an attempt that could not be undone
  SharedPhysicalMemory spare_;  // of a growth that could not be bound; some ranks have it bound
  std::optional<MulticastTeam> multicast_;
  std::size_t multicast_bytes_ = 0;  // of each part that are bound to it, on all ranks
  std::optional<Failure> why_no_multicast_;
};

SymmetricMemory::SymmetricMemory(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
SymmetricMemory::SymmetricMemory(SymmetricMemory&&) noexcept = default;
SymmetricMemory& SymmetricMemory::operator=(SymmetricMemory&&) noexcept = default;
SymmetricMemory::~SymmetricMemory() = default;

Result<SymmetricMemory> SymmetricMemory::try_create(std::shared_ptr<Team> team, std::size_t bytes,
                                                    const SymmetricMemoryOptions& options, const Deadline& deadline) {
  if (!team) return owns_nothing(creating, "team");
  auto impl = std::make_unique<Impl>(std::move(team), options);
  if (auto created = impl->create(bytes, deadline); !created) return created.failure();
  return SymmetricMemory(std::move(impl));
}

Result<std::size_t> SymmetricMemory::try_grow(std::size_t bytes, const Deadline& deadline) {
  if (!impl_) return owns_nothing(growing, "symmetric memory");
  return impl_->grow(bytes, deadline);
}

Result<void> SymmetricMemory::try_close(const Deadline& deadline) {
  if (!impl_) return owns_nothing(closing, "symmetric memory");
  auto closed = impl_->close(deadline);
  if (closed) impl_.reset();
  return closed;
}

const std::shared_ptr<Team>& SymmetricMemory::team() const noexcept {
  static const std::shared_ptr<Team> none;
  return impl_ ? impl_->team() : none;
}
std::size_t SymmetricMemory::size() const noexcept {
  return impl_ ? impl_->size() : 0;
}
std::size_t SymmetricMemory::capacity() const noexcept {
  return impl_ ? impl_->capacity() : 0;
}
std::size_t SymmetricMemory::stride() const noexcept {
  return impl_ ? impl_->stride() : 0;
}

DeviceAddress SymmetricMemory::address(int rank, std::size_t offset) const {
  constexpr std::string_view call = "SymmetricMemory::address";
  auto& impl = owned(impl_, call, "symmetric memory");
  return impl.range(call).address() + impl.offset_of(call, rank, offset);
}
std::size_t SymmetricMemory::offset_in_range(int rank, std::size_t offset) const {
  constexpr std::string_view call = "SymmetricMemory::offset_in_range";
  return owned(impl_, call, "symmetric memory").offset_of(call, rank, offset);
}
const MappedRange& SymmetricMemory::range() const {
  constexpr std::string_view call = "SymmetricMemory::range";
  return owned(impl_, call, "symmetric memory").range(call);
}
std::size_t SymmetricMemory::multicast_size() const noexcept {
  return impl_ ? impl_->multicast_size() : 0;
}
std::optional<DeviceAddress> SymmetricMemory::multicast_address(std::size_t offset) const {
  constexpr std::string_view call = "SymmetricMemory::multicast_address";
  return owned(impl_, call, "symmetric memory").multicast_address(call, offset);
}
const std::optional<Failure>& SymmetricMemory::why_no_multicast() const {
  return owned(impl_, "SymmetricMemory::why_no_multicast", "symmetric memory").why_no_multicast();
}
std::optional<CaptureId> SymmetricMemory::used_on(CUstream_st* stream) {
  constexpr std::string_view call = "SymmetricMemory::used_on";
  return owned(impl_, call, "symmetric memory").range(call).used_on(stream);
}
void SymmetricMemory::no_longer_used_on(CUstream_st* stream) {
  constexpr std::string_view call = "SymmetricMemory::no_longer_used_on";
  owned(impl_, call, "symmetric memory").range(call).no_longer_used_on(stream);
}

}  // namespace cuvmm::team
