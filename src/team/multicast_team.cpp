#include "cuvmm/team/multicast_team.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "driver/abi.hpp"
#include "driver/multicast_switch.hpp"
#include "keep_for_ever.hpp"
#include "refusal.hpp"
#include "report_exception.hpp"
#include "sharing/wire.hpp"
#include "team/multicast_member.hpp"
#include "team/node_connections.hpp"
#include "team/watched_call.hpp"

namespace cuvmm::team {

using namespace sharing;

namespace {

constexpr std::string_view create_call = "MulticastTeam::create";
constexpr std::string_view bind_call = "MulticastTeam::bind";
constexpr std::string_view close_call = "MulticastTeam::close";
constexpr std::string_view owner_name = "multicast team";
constexpr int root = 0;  // creates the object, and lets go of it last of all who have not imported it: see share()

// The rest of the time is for undoing, and for going on without multicast.
Deadline watched_until(const Deadline& deadline) {
  return Deadline::in(deadline.left() / 2);
}

Failure no_multicast(std::string reason, std::string way_out) {
  Failure failure;
  failure.kind = ErrorKind::not_supported;
  failure.call = create_call;
  failure.feature = "multicast";
  failure.reason = std::move(reason);
  failure.way_out = std::move(way_out);
  return failure;
}

// Before any call of the driver for the switches, and before any of multicast for the attribute.
Result<void> require_multicast(const Device& device) {
  if (std::string why = driver::why_multicast_is_off(); !why.empty())
    return no_multicast(std::move(why), "Remove the switch where multicast is wanted, or go on without");
  if (!device.supports_multicast())
    return no_multicast(fmt::format("device {} announces none", device.ordinal().value),
                        "Ask Device::supports_multicast, or go on without: only multicast algorithms need it");
  return {};
}

// A device joins an object once. All know of all devices.
Result<void> require_own_devices(const std::vector<Member>& members) {
  for (std::size_t rank = 1; rank < members.size(); ++rank)
    for (std::size_t other = 0; other < rank; ++other)
      if (members[rank].device == members[other].device)
        return invalid_use(create_call, fmt::format("ranks {} and {}", other, rank),
                           "Each rank of a multicast team has a device of its own", "Give each rank another device",
                           "MULTICAST-JOIN-ONCE");
  return {};
}

// What each rank says of the object that it was asked for.
struct ObjectRequest {
  std::uint64_t bytes = 0;
  std::uint64_t granularity = 0;
  std::uint32_t bind_attempts = 0;
  std::string name{};  // of the object, should this be the root
};

Bytes encode(const ObjectRequest& request) {
  return Writer()
      .number(request.bytes)
      .number(request.granularity)
      .number(request.bind_attempts)
      .text(request.name)
      .take();
}

ObjectRequest decode_object_request(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  ObjectRequest request;
  request.bytes = reader.number<std::uint64_t>();
  request.granularity = reader.number<std::uint64_t>();
  request.bind_attempts = reader.number<std::uint32_t>();
  request.name = reader.text(most_step_bytes);
  return reader.complete() ? request : ObjectRequest{};
}

Bytes encode(const MulticastPart& part) {
  return Writer().number(std::uint64_t{part.offset}).number(std::uint64_t{part.bytes}).take();
}

// The bytes of all ranks are compared as they are: all write them alike.
Result<void> require_equal(std::string_view call, std::string_view numbers, const Contributions& all) {
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      return invalid_use(call, fmt::format("rank {} passes another {} than rank 0", rank, numbers),
                         "A multicast object is the same on all ranks", "Pass the same numbers on all ranks");
  return {};
}

// Whether it passes by itself. All ranks come to the same answer, of the same votes.
bool only_not_ready(const Votes& votes) {
  return std::all_of(votes.of_rank.begin(), votes.of_rank.end(), [](const Votes::Vote& each) {
    return each.said || each.said.failure().code == abi::CUDA_ERROR_SYSTEM_NOT_READY;
  });
}

}  // namespace

class MulticastTeam::Impl {
 public:
  Impl(std::shared_ptr<Team> team, const MulticastTeamOptions& options)
      : team_(std::move(team)), options_(options), uses_(team_->device().driver()) {
    options_.memory.location = team_->device().location();
    properties_.devices = static_cast<unsigned>(team_->size());
    properties_.handle_types = team_->is_on_one_node() ? HandleTypes(HandleType::posix_file_descriptor)
                                                       : HandleType::posix_file_descriptor | HandleType::fabric;
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  Impl(Impl&&) = delete;
  Impl& operator=(Impl&&) = delete;

  // What a thread is blocked in shares the member, and gives it back when it returns.
  ~Impl() {
    if (!member_) return;
    try {
      const auto waited = wait_for_device();
      if (waited) return;
      report_cleanup_failure(waited.failure());
    } catch (...) {
      report_current_exception("MulticastTeam::~MulticastTeam");
    }
    keep_for_ever(std::move(member_));
  }

  Result<void> create(std::size_t bytes, const Deadline& deadline) {
    const auto said = team_->try_agree("multicast: request", make_request(bytes), deadline);
    if (!said) return said.failure();
    const auto name = agree_on_properties(*said);
    if (!name) return name.failure();
    if (auto shared = share(*name, deadline); !shared) return shared;
    // Whoever binds or maps before all have come this far would wait in the driver.
    return team_->try_vote("multicast: add device", member_->add_device(), deadline);
  }

  Result<void> bind(const MulticastPart& part, const Deadline& deadline) {
    const auto said = team_->try_agree("multicast: bind request", make_bind_request(part), deadline);
    if (!said) return said.failure();
    if (auto equal = require_equal(bind_call, "offset or size", *said); !equal) return equal;
    if (auto bound = bind_in_step(part, deadline); !bound) return undo(bound, deadline);
    if (!is_mapped_)
      if (auto mapped = map(deadline); !mapped) return undo(mapped, deadline);
    member_->keep_what_is_bound();
    is_mapped_ = true;
    return {};
  }

  // Each step only once all have done the one before: work of one rank reaches the memory of all, and a process unmaps
  // before it unbinds.
  Result<void> close(const Deadline& deadline) {
    if (auto all = team_->try_vote("multicast: quiet", make_quiet(deadline), deadline); !all) return all;
    is_mapped_ = false;
    is_closing_ = true;
    if (auto all = team_->try_vote("multicast: unmap", member_->unmap(), deadline); !all) return all;
    if (auto all = team_->try_vote("multicast: unbind", member_->unbind_all(), deadline); !all) return all;
    member_.reset();
    return {};
  }

  [[nodiscard]] const std::shared_ptr<Team>& team() const noexcept { return team_; }
  [[nodiscard]] std::size_t size() const noexcept { return properties_.bytes; }
  [[nodiscard]] std::size_t granularity() const noexcept { return granularity_; }
  [[nodiscard]] bool is_mapped() const noexcept { return is_mapped_; }
  [[nodiscard]] StreamUses& uses() noexcept { return uses_; }
  void heed(StreamUses& uses) { heeded_.push_back(&uses); }

  [[nodiscard]] DeviceAddress address(std::size_t offset) const {
    constexpr std::string_view call = "MulticastTeam::address";
    if (!is_mapped_)
      raise(invalid_use(call, fmt::format("offset = {}", offset),
                        "The object has no address before memory was bound, and none once close() has begun",
                        "Have all ranks bind their memory first"));
    if (offset > properties_.bytes)
      raise(invalid_use(call, fmt::format("offset = {} of {}", offset, properties_.bytes),
                        "An address is of a byte of the object", "Pass an offset up to size()"));
    return address_ + offset;
  }

 private:
  Result<Bytes> make_request(std::size_t bytes) try {
    if (bytes == 0)
      return invalid_use(create_call, "bytes = 0", "An object has one byte at least", "Pass the size of all buffers");
    if (options_.bind_attempts < 1)
      return invalid_use(create_call, fmt::format("bind_attempts = {}", options_.bind_attempts),
                         "Who does not try cannot bind", "Let it be 1 at least");
    if (auto has = require_multicast(team_->device()); !has) return has.failure();
    MulticastProperties wanted = properties_;
    wanted.bytes = bytes;
    const GranularFit fit =
        MulticastObject::fitted(team_->device().driver(), wanted, options_.memory, options_.granularity);
    return encode(ObjectRequest{bytes, fit.granularity, static_cast<std::uint32_t>(options_.bind_attempts),
                                team_->rank() == root ? new_meeting_name() : std::string()});
  } catch (const Error& error) {
    return error.failure();
  }

  // All compute it from the same facts, and come to the same; answers the object's name.
  Result<std::string> agree_on_properties(const Contributions& said) try {
    if (auto own = require_own_devices(team_->members()); !own) return own.failure();
    const ObjectRequest first = decode_object_request(said[root]);
    std::vector<std::size_t> granularities;
    for (std::size_t rank = 0; rank < said.size(); ++rank) {
      const ObjectRequest request = decode_object_request(said[rank]);
      if (request.bytes != first.bytes)
        return invalid_use(
            create_call,
            fmt::format("rank {}: bytes = {}; rank {}: bytes = {}", root, first.bytes, rank, request.bytes),
            "A multicast object is the same on all ranks", "Pass the same size on all ranks");
      granularities.push_back(static_cast<std::size_t>(request.granularity));
      options_.bind_attempts = std::min(options_.bind_attempts, static_cast<int>(request.bind_attempts));
    }
    const GranularFit fit = cuvmm::fitted(static_cast<std::size_t>(first.bytes), granularities);
    properties_.bytes = fit.bytes;
    granularity_ = fit.granularity;
    alignment_ = fit.alignment;
    return first.name;
  } catch (const Error& error) {
    return error.failure();
  }

  // The root's reference lives until all have said that they have imported: a fabric handle keeps nothing, and who
  // imports it later gets an empty object.
  Result<void> share(const std::string& name, const Deadline& deadline) {
    Result<SharedPhysicalMemory> mine = SharedPhysicalMemory();
    if (team_->rank() == root) {
      if (auto created = MulticastObject::try_create(team_->device().driver(), properties_)) {
        join(std::move(created).value(), name);
        mine = member_->shareable();
      } else {
        mine = created.failure();
      }
    }
    const auto handle = team_->try_broadcast_handle("multicast", root, mine, deadline);
    if (!handle) return handle.failure();
    const auto imported = *handle ? import(**handle, name) : Result<void>();
    return team_->try_vote("multicast: import", imported, deadline);
  }

  Result<void> import(const HandleOfMemory& handle, const std::string& name) {
    // The driver has no properties of a multicast object to be asked for.
    auto imported = handle.handle.try_import_into(team_->device().driver(),
                                                  {.bytes = handle.bytes, .properties = MemoryProperties{}});
    if (!imported) return imported.failure();
    auto adopted = MulticastObject::try_adopt(std::move(imported).value(), properties_);
    if (!adopted) return adopted.failure();
    join(std::move(adopted).value(), name);
    return {};
  }

  void join(MulticastObject object, const std::string& name) {
    member_ = std::make_shared<MulticastMember>(std::move(object), team_->device(), name);
  }

  Result<Bytes> make_bind_request(const MulticastPart& part) {
    if (is_closing_)
      return invalid_use(bind_call, fmt::format("offset = {}", part.offset), "Nothing is bound once close() has begun",
                         "Call close() until it has been done, and make another team's object");
    if (auto free = settle(Deadline::in(std::chrono::seconds(0))); !free) return free.failure();
    if (auto fine = member_->check_bind(part); !fine) return fine.failure();
    return encode(part);
  }

  // In rounds: those that are done wait for those that are told to try again.
  Result<void> bind_in_step(const MulticastPart& part, const Deadline& deadline) {
    for (int attempt = 1;; ++attempt) {
      const auto mine = watch("cuMulticastBindMem", deadline, [member = member_, part] { return member->bind(part); });
      const auto votes = collect_votes("multicast: bind", mine, deadline);
      if (!votes) return votes.failure();
      if (votes->unanimous()) return {};
      if (!only_not_ready(*votes) || attempt == options_.bind_attempts) return votes->verdict();
      std::this_thread::sleep_for(std::min(options_.bind_pause, deadline.left() / 4));
    }
  }

  Result<void> map(const Deadline& deadline) {
    const auto mine =
        watch("cuMemMap", deadline, [member = member_, alignment = alignment_] { return member->map(alignment); });
    if (mine) address_ = member_->address();
    const auto votes = collect_votes("multicast: map", mine, deadline);
    if (!votes) return votes.failure();
    return votes->unanimous() ? Result<void>() : Result<void>(votes->verdict());
  }

  // Who misses other ranks says so, and whether it is blocked itself.
  Result<Votes> collect_votes(std::string_view step, const Result<void>& mine, const Deadline& deadline) {
    auto votes =
        team_->try_collect_votes(step, mine ? Result<Bytes>(Bytes()) : Result<Bytes>(mine.failure()), deadline);
    if (votes || !blocked_) return votes;
    Failure failure = votes.failure();
    failure.reason += fmt::format("; on this rank {}", blocked_->blocked().reason);
    return failure;
  }

  // On a thread of its own, which shares the member.
  Result<void> watch(const std::string& call, const Deadline& deadline, std::function<Result<void>()> work) {
    auto started = WatchedCall::start(call, std::move(work));
    if (!started) return started.failure();
    if (started->wait(watched_until(deadline))) return started->result();
    blocked_.emplace(std::move(started).value());
    return blocked_->blocked();
  }

  // While a thread is blocked with the member, nobody else may touch it.
  Result<void> settle(const Deadline& deadline) {
    if (blocked_ && !blocked_->wait(deadline)) return blocked_->blocked();
    blocked_.reset();
    return {};
  }

  // Of the first bind, all of it; later what was bound stays, for a mapped object is not unbound from. Answers
  // why. If something cannot be undone it is reported, and done before anything else is bound.
  Result<void> undo(const Result<void>& why, const Deadline& deadline) {
    if (is_mapped_) return why;
    auto undone = settle(Deadline::in(std::chrono::seconds(0)));
    if (undone) undone = member_->unmap();
    // No rank unbinds while another one of its process may have the object mapped.
    if (team_->try_vote("multicast: undo", undone, deadline)) undone = member_->unbind_the_rest();
    if (!undone && undone.failure().kind != ErrorKind::timed_out) report_cleanup_failure(undone.failure());
    return why;
  }

  Result<void> wait_for_device() {
    PendingWork work = uses_.so_far();
    for (StreamUses* const each : heeded_) work.merge(each->so_far());
    return work.wait_for(options_.device_wait);
  }

  Result<void> make_quiet(const Deadline& deadline) try {
    if (auto waited = wait_for_device(); !waited) return waited;
    return settle(watched_until(deadline));
  } catch (const Error& error) {
    return error.failure();
  }

  std::shared_ptr<Team> team_;
  MulticastTeamOptions options_;
  MulticastProperties properties_;
  std::size_t granularity_ = 1;
  std::size_t alignment_ = 0;
  std::shared_ptr<MulticastMember> member_;
  std::optional<WatchedCall> blocked_;
  bool is_mapped_ = false;   // on all ranks
  bool is_closing_ = false;  // on all ranks: they may have unmapped it, and unbound
  DeviceAddress address_;
  StreamUses uses_;
  std::vector<StreamUses*> heeded_;
};

MulticastTeam::MulticastTeam(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
MulticastTeam::MulticastTeam(MulticastTeam&&) noexcept = default;
MulticastTeam& MulticastTeam::operator=(MulticastTeam&&) noexcept = default;
MulticastTeam::~MulticastTeam() = default;

Result<MulticastTeam> MulticastTeam::try_create(std::shared_ptr<Team> team, std::size_t bytes,
                                                const MulticastTeamOptions& options, const Deadline& deadline) {
  if (!team) return owns_nothing(create_call, "team");
  auto impl = std::make_unique<Impl>(std::move(team), options);
  if (auto created = impl->create(bytes, deadline); !created) return created.failure();
  return MulticastTeam(std::move(impl));
}

Result<void> MulticastTeam::try_bind(std::size_t offset, const SharedPhysicalMemory& memory, std::size_t memory_offset,
                                     std::size_t bytes, const Deadline& deadline) {
  if (!impl_) return owns_nothing(bind_call, owner_name);
  return impl_->bind({offset, memory, memory_offset, bytes}, deadline);
}

Result<void> MulticastTeam::try_close(const Deadline& deadline) {
  if (!impl_) return owns_nothing(close_call, owner_name);
  auto closed = impl_->close(deadline);
  if (closed) impl_.reset();
  return closed;
}

const std::shared_ptr<Team>& MulticastTeam::team() const noexcept {
  static const std::shared_ptr<Team> none;
  return impl_ ? impl_->team() : none;
}
std::size_t MulticastTeam::size() const noexcept {
  return impl_ ? impl_->size() : 0;
}
std::size_t MulticastTeam::granularity() const noexcept {
  return impl_ ? impl_->granularity() : 0;
}
bool MulticastTeam::is_mapped() const noexcept {
  return impl_ && impl_->is_mapped();
}

DeviceAddress MulticastTeam::address(std::size_t offset) const {
  return owned(impl_, "MulticastTeam::address", owner_name).address(offset);
}
StreamUses& MulticastTeam::uses() {
  return owned(impl_, "MulticastTeam::uses", owner_name).uses();
}
std::optional<CaptureId> MulticastTeam::used_on(CUstream_st* stream) {
  return owned(impl_, "MulticastTeam::used_on", owner_name).uses().used_on(stream);
}
void MulticastTeam::no_longer_used_on(CUstream_st* stream) {
  owned(impl_, "MulticastTeam::no_longer_used_on", owner_name).uses().no_longer_used_on(stream);
}
void MulticastTeam::heed(StreamUses& uses) {
  owned(impl_, "MulticastTeam::heed", owner_name).heed(uses);
}

}  // namespace cuvmm::team
