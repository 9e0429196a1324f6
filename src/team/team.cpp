#include "cuvmm/team/team.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "refusal.hpp"
#include "sharing/locality_fields.hpp"
#include "sharing/locality_refusal.hpp"
#include "sharing/wire.hpp"
#include "team/node_connections.hpp"

namespace cuvmm::team {

using namespace sharing;

namespace {

constexpr std::string_view exchanging = "Team::exchange_handles";

// What waits between two votes ends before the deadline, so that the vote can tell who is missing.
Deadline leaving_time_to_vote(const Deadline& deadline) {
  return Deadline::in(deadline.left() * 7 / 8);
}

struct Introduction {
  Member member;
  std::string meeting_name;  // of the node, should this be its first rank
};

Bytes encode(const Introduction& introduction) {
  Writer writer;
  write(writer, introduction.member.place);
  return writer.number(introduction.member.process)
      .raw(introduction.member.device)
      .text(introduction.meeting_name)
      .take();
}

std::optional<Introduction> decode_introduction(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Introduction introduction;
  introduction.member.place = read_locality(reader);
  introduction.member.process = reader.number<std::uint32_t>();
  const auto device = reader.raw(introduction.member.device.size());
  std::copy(device.begin(), device.end(), introduction.member.device.begin());
  introduction.meeting_name = reader.text(most_step_bytes);
  if (!reader.complete()) return std::nullopt;
  return introduction;
}

Failure not_understood(std::string_view step, std::size_t rank) {
  Failure failure;
  failure.kind = ErrorKind::protocol_violation;
  failure.call = "cuvmm::team::Team";
  failure.arguments = fmt::format("step = '{}'", step);
  failure.reason = fmt::format("what rank {} said cannot be read", rank);
  failure.way_out = "Have all ranks call the same functions, with one version of cuvmm";
  return failure;
}

// What a rank has for the others: handles that were exported once, however many take them.
struct Offer {
  std::size_t bytes = 0;
  std::optional<HandleOfMemory> descriptor{};
  std::optional<FabricBytes> fabric{};
};

// The same as others are told it.
struct OfferFacts {
  std::uint64_t bytes = 0;
  bool has_descriptor = false;
  std::optional<FabricBytes> fabric{};
};

Bytes encode(const Offer& offer) {
  Writer writer;
  writer.number(std::uint64_t{offer.bytes}).number(std::uint8_t{offer.descriptor.has_value()});
  if (offer.fabric) writer.raw(*offer.fabric);
  return writer.take();
}

std::optional<OfferFacts> decode_offer(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  OfferFacts facts;
  facts.bytes = reader.number<std::uint64_t>();
  facts.has_descriptor = reader.number<std::uint8_t>() != 0;
  if (reader.left() != 0) {
    FabricBytes fabric{};
    const auto raw = reader.raw(fabric.size());
    std::copy(raw.begin(), raw.end(), fabric.begin());
    facts.fabric = fabric;
  }
  if (!reader.complete()) return std::nullopt;
  return facts;
}

}  // namespace

class Team::Impl {
 public:
  Impl(std::unique_ptr<Bootstrap> bootstrap, const Device& device)
      : bootstrap_(std::move(bootstrap)), device_(device), place_(Locality::of(device.driver())) {}

  Result<void> assemble(const Deadline& deadline) {
    Introduction mine;
    mine.meeting_name = new_meeting_name();
    const auto said = introduce(mine);
    const auto all = agree("who is where", said, deadline);
    if (!all) return all.failure();
    std::vector<std::string> names;
    for (std::size_t rank = 0; rank < all->size(); ++rank) {
      auto introduction = decode_introduction((*all)[rank]);
      if (!introduction) return not_understood("who is where", rank);
      members_.push_back(std::move(introduction->member));
      names.push_back(std::move(introduction->meeting_name));
    }
    return vote("connect the ranks of each node", connect(names, leaving_time_to_vote(deadline)), deadline);
  }

  Result<void> vote(std::string_view step, const Result<void>& mine, const Deadline& deadline) {
    return team::try_vote(*bootstrap_, step, mine, deadline, place_);
  }
  Result<Contributions> agree(std::string_view step, const Result<Bytes>& mine, const Deadline& deadline) {
    return team::try_agree(*bootstrap_, step, mine, deadline, place_);
  }
  Result<Votes> collect_votes(std::string_view step, const Result<Bytes>& mine, const Deadline& deadline) {
    return team::try_collect_votes(*bootstrap_, step, mine, deadline, place_);
  }

  // From all ranks to all, or from one.
  Result<HandlesOfRanks> exchange(std::string_view step, std::optional<int> root,
                                  const Result<SharedPhysicalMemory>& mine, const Deadline& deadline) {
    const bool offers = !root || *root == rank();
    ++exchanges_;
    Offer offer;
    const auto said = offers ? make_offer(mine, offer) : Result<Bytes>(Bytes());
    const auto all = agree(fmt::format("{}: offer handles", step), said, deadline);
    if (!all) return all.failure();
    auto handles = hand_over(step, root, offer, *all, leaving_time_to_vote(deadline));
    const auto taken = handles ? Result<void>() : Result<void>(handles.failure());
    const auto voted = vote(fmt::format("{}: take handles", step), taken, deadline);
    // A connection tells that a rank has ended also where the bootstrap cannot.
    const bool knows_more = !taken && taken.failure().kind == ErrorKind::peer_gone;
    if (!voted) return knows_more && voted.failure().kind == ErrorKind::timed_out ? taken.failure() : voted.failure();
    return handles;
  }

  Result<SharedPhysicalMemory> import(int rank, const HandleOfMemory& handle) const {
    ImportedMemory memory{.bytes = handle.bytes};
    const auto& ordinal = members_[static_cast<std::size_t>(rank)].ordinal;
    if (ordinal) memory.properties = MemoryProperties{.location = Location::device(*ordinal)};
    // Else the driver is asked what it makes of the memory of a device that this process does not see.
    auto imported = handle.handle.try_import_into(device_.driver(), memory);
    if (!imported) return imported.failure();
    return SharedPhysicalMemory(std::move(imported).value());
  }

  [[nodiscard]] int rank() const noexcept { return bootstrap_->rank(); }
  [[nodiscard]] const Device& device() const noexcept { return device_; }
  [[nodiscard]] Bootstrap& bootstrap() const noexcept { return *bootstrap_; }
  [[nodiscard]] const std::vector<Member>& members() const noexcept { return members_; }
  [[nodiscard]] bool is_on_one_node() const noexcept {
    return std::all_of(members_.begin(), members_.end(),
                       [&](const Member& each) { return same_node(members_.front().place, each.place); });
  }

 private:
  [[nodiscard]] const Locality& place_of(int rank) const { return members_[static_cast<std::size_t>(rank)].place; }
  [[nodiscard]] bool is_mate(int rank) const { return same_node(place_, place_of(rank)); }
  [[nodiscard]] int count() const { return static_cast<int>(members_.size()); }

  Result<Bytes> introduce(Introduction& mine) const try {
    mine.member = {.place = place_, .process = own_process(), .device = device_.uuid()};
    return encode(mine);
  } catch (const Error& error) {
    return error.failure();
  }

  Result<void> connect(const std::vector<std::string>& names, const Deadline& deadline) try {
    find_devices();
    std::vector<int> mates;
    for (int rank = 0; rank < count(); ++rank)
      if (is_mate(rank)) mates.push_back(rank);
    auto connections = NodeConnections::meet(names[static_cast<std::size_t>(mates.front())], mates, rank(), deadline);
    if (!connections) return connections.failure();
    connections_ = std::move(connections).value();
    return {};
  } catch (const Error& error) {
    return error.failure();
  }

  void find_devices() {
    for (const Device& here : device_.driver().devices()) {
      const auto identity = here.uuid();
      for (Member& each : members_)
        if (each.device == identity) each.ordinal = here.ordinal();
    }
  }

  Result<Bytes> make_offer(const Result<SharedPhysicalMemory>& mine, Offer& offer) {
    if (!mine) return mine.failure();
    if (!*mine) return owns_nothing(exchanging, "memory");
    if (connections_.ended()) return *connections_.ended();
    const PhysicalMemory& memory = mine->memory();
    const bool has_descriptors = memory.properties().handle_types.contains(HandleType::posix_file_descriptor);
    bool needs_descriptor = false;
    bool needs_fabric = false;
    for (int other = 0; other < count(); ++other) {
      if (other == rank()) continue;
      const bool by_descriptor = is_mate(other) && has_descriptors;
      if (auto reached = require_reach(other, memory); !reached) return reached.failure();
      (by_descriptor ? needs_descriptor : needs_fabric) = true;
    }
    return export_handles(memory, needs_descriptor, needs_fabric, offer);
  }

  Result<void> require_reach(int other, const PhysicalMemory& memory) const {
    const HandleTypes types = memory.properties().handle_types;
    const bool fabric = types.contains(HandleType::fabric) && same_machine(place_, place_of(other));
    if (fabric || is_mate(other)) return {};  // without any handle type, exporting tells what is wrong
    return different_hosts(exchanging, fmt::format("Rank {}", rank()), place_, fmt::format("rank {}", other),
                           place_of(other));
  }

  static Result<Bytes> export_handles(const PhysicalMemory& memory, bool descriptor, bool fabric, Offer& offer) {
    offer.bytes = memory.size();
    if (descriptor) {
      auto exported = ShareableHandle::try_export_from(memory, HandleType::posix_file_descriptor);
      if (!exported) return exported.failure();
      offer.descriptor = HandleOfMemory{std::move(exported).value(), memory.size()};
    }
    if (fabric) {
      const auto exported = ShareableHandle::try_export_from(memory, HandleType::fabric);
      if (!exported) return exported.failure();
      offer.fabric = exported->fabric_bytes();
    }
    return encode(offer);
  }

  // First everything is sent, then everything is taken: nobody waits for one who waits.
  Result<HandlesOfRanks> hand_over(std::string_view step, std::optional<int> root, const Offer& mine,
                                   const Contributions& offers, const Deadline& deadline) {
    HandlesOfRanks handles(members_.size());
    if (mine.descriptor)
      for (int other = 0; other < count(); ++other)
        if (other != rank() && is_mate(other))
          if (auto sent = connections_.send(other, exchanges_, *mine.descriptor, deadline); !sent)
            return sent.failure();
    for (int other = 0; other < count(); ++other) {
      if (other == rank() || (root && other != *root)) continue;
      const auto place = static_cast<std::size_t>(other);
      const auto facts = decode_offer(offers[place]);
      if (!facts) return not_understood(step, place);
      auto handle = take_from(other, *facts, deadline);
      if (!handle) return handle.failure();
      handles[place] = std::move(handle).value();
    }
    return handles;
  }

  Result<HandleOfMemory> take_from(int other, const OfferFacts& facts, const Deadline& deadline) {
    if (facts.has_descriptor && is_mate(other)) return connections_.receive(other, exchanges_, deadline);
    if (!facts.fabric) return not_understood("offer handles", static_cast<std::size_t>(other));
    return HandleOfMemory{ShareableHandle::from_bytes(*facts.fabric), static_cast<std::size_t>(facts.bytes)};
  }

  std::unique_ptr<Bootstrap> bootstrap_;
  Device device_;
  Locality place_;
  std::vector<Member> members_;
  NodeConnections connections_;
  std::uint64_t exchanges_ = 0;
};

Team::Team(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Team::~Team() = default;

Result<std::shared_ptr<Team>> Team::try_assemble(std::unique_ptr<Bootstrap> bootstrap, const Device& device,
                                                 const Deadline& deadline) {
  if (!bootstrap) return owns_nothing("Team::assemble", "bootstrap");
  auto impl = std::make_unique<Impl>(std::move(bootstrap), device);
  if (auto assembled = impl->assemble(deadline); !assembled) return assembled.failure();
  return std::shared_ptr<Team>(new Team(std::move(impl)));
}

int Team::rank() const noexcept {
  return impl_->rank();
}
int Team::size() const noexcept {
  return impl_->bootstrap().size();
}
const Device& Team::device() const noexcept {
  return impl_->device();
}
const std::vector<Member>& Team::members() const noexcept {
  return impl_->members();
}
bool Team::is_on_one_node() const noexcept {
  return impl_->is_on_one_node();
}
Bootstrap& Team::bootstrap() const noexcept {
  return impl_->bootstrap();
}

Result<void> Team::try_vote(std::string_view step, const Result<void>& mine, const Deadline& deadline) {
  return impl_->vote(step, mine, deadline);
}
Result<Contributions> Team::try_agree(std::string_view step, const Result<Bytes>& mine, const Deadline& deadline) {
  return impl_->agree(step, mine, deadline);
}
Result<Votes> Team::try_collect_votes(std::string_view step, const Result<Bytes>& mine, const Deadline& deadline) {
  return impl_->collect_votes(step, mine, deadline);
}

Result<HandlesOfRanks> Team::try_exchange_handles(std::string_view step, const Result<SharedPhysicalMemory>& mine,
                                                  const Deadline& deadline) {
  return impl_->exchange(step, std::nullopt, mine, deadline);
}

Result<std::optional<HandleOfMemory>> Team::try_broadcast_handle(std::string_view step, int root,
                                                                 const Result<SharedPhysicalMemory>& mine,
                                                                 const Deadline& deadline) {
  if (root < 0 || root >= size())
    return invalid_use("Team::broadcast_handle", fmt::format("root = {}", root), "The root is one of the ranks",
                       "Pass the same one on all ranks");
  auto handles = impl_->exchange(step, root, mine, deadline);
  if (!handles) return handles.failure();
  return std::move((*handles)[static_cast<std::size_t>(root)]);
}

Result<SharedPhysicalMemory> Team::try_import(int rank, const HandleOfMemory& handle) const {
  if (rank < 0 || rank >= size())
    return invalid_use("Team::import", fmt::format("rank = {}", rank), "There is no such rank", "Pass one of the team");
  return impl_->import(rank, handle);
}

}  // namespace cuvmm::team
