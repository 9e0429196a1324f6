#include "cuvmm/sharing/attached_range.hpp"

#include <fmt/format.h>

#include "refusal.hpp"
#include "sharing/attached_range_impl.hpp"
#include "sharing/packet.hpp"

namespace cuvmm::sharing {

namespace {

constexpr std::string_view receiving = "AttachedRange::poll";
constexpr std::string_view waiting = "AttachedRange::wait";
constexpr std::string_view following = "AttachedRange::follow";
constexpr int most_messages_at_once = 1024;

Deadline now() {
  return Deadline::at(Deadline::Clock::now());
}

}  // namespace

Failure told_as(std::string_view call, std::string_view name, Failure failure) {
  if (failure.code != 0 || failure.call == call) return failure;
  const bool of_library = failure.call.find("::") != std::string::npos || failure.call == "RangePublisher" ||
                          failure.call == "AttachedRange";
  if (!of_library) failure.arguments = fmt::format("{}({})", failure.call, failure.arguments);
  if (!failure.arguments.starts_with("name = "))
    failure.arguments = fmt::format("name = '{}'{}{}", name, failure.arguments.empty() ? "" : ", ", failure.arguments);
  failure.call = call;
  return failure;
}

AttachedRange::Impl::Impl(std::string name, DescriptorSocket publisher, ChunkImporter importer, const Terms& terms,
                          MappedRange range)
    : name_(std::move(name)),
      socket_(std::move(publisher)),
      importer_(std::move(importer)),
      rights_(terms.rights),
      mapped_(terms.standing),
      told_(terms.standing),
      range_(std::move(range)) {}

// Whether it can come after what was told before. Nothing that is published is taken back but as a whole.
bool AttachedRange::Impl::follows(const Standing& standing) const noexcept {
  return standing.publication == told_.publication && standing.chunks >= told_.chunks &&
         (standing.withdrawn || !told_.withdrawn);
}

// What has come so far. A publisher that sends anything else is as good as gone, and one that sends a failure has gone.
void AttachedRange::Impl::take(const Result<Message>& message) {
  if (!message) {
    if (message.failure().kind != ErrorKind::timed_out || socket_.descriptor() < 0) end(message.failure());
    return;
  }
  const auto standing = message->kind == standing_message ? decode_standing(message->bytes) : std::nullopt;
  if (standing && follows(*standing)) {
    told_ = *standing;
  } else {
    const bool last_word = message->kind == failure_kind && !message->is_reply;
    end(last_word ? socket_.refusal_of(*message, receiving)
                  : wrong_answer(socket_, "what it announces cannot be, or is no news"));
  }
}

// It has nothing to say any more that could be believed.
void AttachedRange::Impl::end(const Failure& why) {
  gone_ = true;
  if (socket_.descriptor() >= 0) static_cast<void>(socket_.give_up(why));
}

// The socket holds fewer messages than are taken at once: what else comes, the publisher sent meanwhile.
RangeNews AttachedRange::Impl::poll() {
  bool more = true;
  for (int taken = 0; more && !gone_ && taken < most_messages_at_once; ++taken) {
    const auto message = socket_.receive_next(now());
    more = message.has_value();
    take(message);
  }
  return news();
}

RangeNews AttachedRange::Impl::news() const noexcept {
  return {.grown = told_.chunks > mapped_.chunks || told_.bytes > mapped_.bytes,
          .shortened = told_.bytes < mapped_.bytes,
          .withdrawn = told_.withdrawn,
          .publisher_gone = gone_};
}

Failure AttachedRange::Impl::no_news() const {
  Failure failure;
  failure.kind = ErrorKind::timed_out;
  failure.call = waiting;
  failure.arguments = fmt::format("name = '{}'", name_);
  failure.reason = "the publisher goes on sending what is no news, and no news came before the deadline";
  failure.way_out = "Wait again, or have the process that published the range looked at";
  return failure;
}

RangeNews AttachedRange::Impl::wait(const Deadline& deadline) {
  RangeNews found = poll();
  while (!found) {
    const auto message = socket_.receive_next(deadline);
    if (!message && message.failure().kind == ErrorKind::timed_out) raise(told_as(waiting, name_, message.failure()));
    take(message);
    found = news();
    if (!found && deadline.passed()) raise(no_news());
  }
  return found;
}

// All or none. Undoing does not wait for the device, which knows nothing of these chunks yet.
Result<void> AttachedRange::Impl::map_all(MappedRange& range, const std::vector<ImportedChunk>& chunks) {
  std::vector<MemoryAt> memories;
  memories.reserve(chunks.size());
  for (const ImportedChunk& each : chunks) memories.push_back({each.offset, each.memory});
  return range.try_map(memories);
}

// Why there is nothing to follow any more.
std::optional<Failure> AttachedRange::Impl::nothing_comes() {
  if (told_.withdrawn) return withdrawn_failure(following, name_, *told_.withdrawn);
  if (!gone_) return std::nullopt;
  Failure failure = socket_.receive_any(following, now()).failure();  // tells why the connection has ended
  failure.way_out = "What is attached stays usable; attach again where the range is published anew";
  return failure;
}

Result<std::vector<ImportedChunk>> AttachedRange::Impl::import_up_to(const Standing& wanted, const Deadline& deadline) {
  WantedChunks chunks{
      .publication = wanted.publication, .first = mapped_.chunks, .until = wanted.chunks, .extent = wanted.extent};
  for (const ChunkInfo& each : range_.chunks()) static_cast<void>(chunks.taken.take(each.offset, each.bytes));
  auto imported = importer_.import_from(socket_, std::move(chunks), deadline);
  if (!imported && imported.failure().kind == ErrorKind::protocol_violation) end(imported.failure());
  return imported;
}

Result<std::size_t> AttachedRange::Impl::follow(const Deadline& deadline) {
  static_cast<void>(poll());
  if (auto nothing = nothing_comes()) return std::move(*nothing);
  const Standing wanted = told_;
  if (wanted == mapped_) return size();
  const auto chunks = import_up_to(wanted, deadline);
  if (!chunks) return chunks.failure();
  if (auto mapped = map_all(range_, *chunks); !mapped) {
    Failure failure = mapped.failure();
    // New addresses may lie behind those that there are, where a chunk that begins in these has no place.
    if (failure.kind == ErrorKind::out_of_address_space || failure.rule_ids == "MAP-INSIDE-ONE-RESERVATION") {
      failure.kind = ErrorKind::out_of_address_space;
      failure.way_out =
          fmt::format("Detach, and attach again with AttachOptions::capacity of at least {}", wanted.extent);
    }
    return failure;
  }
  mapped_ = wanted;
  tell_mapped(deadline);
  return size();
}

// If it cannot be told, the end of the connection will be found by poll().
void AttachedRange::Impl::tell_mapped(const Deadline& deadline) {
  const auto bytes = encode_mapped(mapped_.chunks);
  static_cast<void>(socket_.try_send({.kind = mapped_message, .bytes = bytes}, deadline));
  static_cast<void>(poll());  // what came meanwhile would not make the descriptor readable again
}

AttachedRange::AttachedRange(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
AttachedRange::AttachedRange(AttachedRange&&) noexcept = default;
AttachedRange& AttachedRange::operator=(AttachedRange&&) noexcept = default;
AttachedRange::~AttachedRange() = default;

const std::string& AttachedRange::name() const noexcept {
  static const std::string none;
  return impl_ ? impl_->name() : none;
}
DeviceAddress AttachedRange::address() const noexcept {
  return impl_ ? impl_->range().address() : DeviceAddress();
}
std::size_t AttachedRange::size() const noexcept {
  return impl_ ? impl_->size() : 0;
}
std::size_t AttachedRange::capacity() const noexcept {
  return impl_ ? impl_->range().capacity() : 0;
}
AccessRights AttachedRange::rights() const noexcept {
  return impl_ ? impl_->rights() : AccessRights::none;
}
std::uint64_t AttachedRange::generation() const noexcept {
  return impl_ ? impl_->generation() : 0;
}
const PeerCredentials& AttachedRange::publisher() const noexcept {
  static const PeerCredentials none;
  return impl_ ? impl_->socket().peer() : none;
}
const MappedRange& AttachedRange::range() const {
  return owned(impl_, "AttachedRange::range", "attached range").range();
}
StreamUses& AttachedRange::uses() {
  return owned(impl_, "AttachedRange::uses", "attached range").range().uses();
}
std::optional<CaptureId> AttachedRange::used_on(CUstream_st* stream) {
  return owned(impl_, "AttachedRange::used_on", "attached range").range().used_on(stream);
}
void AttachedRange::no_longer_used_on(CUstream_st* stream) {
  owned(impl_, "AttachedRange::no_longer_used_on", "attached range").range().no_longer_used_on(stream);
}
RangeNews AttachedRange::poll() {
  return owned(impl_, receiving, "attached range").poll();
}
RangeNews AttachedRange::wait(const Deadline& deadline) {
  return owned(impl_, waiting, "attached range").wait(deadline);
}
int AttachedRange::descriptor() const noexcept {
  return impl_ ? impl_->socket().descriptor() : -1;
}
Result<std::size_t> AttachedRange::try_follow(const Deadline& deadline) {
  if (!impl_) return owns_nothing(following, "attached range");
  auto followed = impl_->follow(deadline);
  if (!followed) return told_as(following, impl_->name(), followed.failure());
  return followed;
}
void AttachedRange::detach() {
  owned(impl_, "AttachedRange::detach", "attached range").range().close();
  impl_.reset();
}

}  // namespace cuvmm::sharing
