#include "sharing/range_service.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "refusal.hpp"
#include "sharing/descriptor_facts.hpp"
#include "sharing/locality_refusal.hpp"
#include "system_failure.hpp"

namespace cuvmm::sharing {

namespace {

constexpr std::string_view publishing = "RangePublisher::publish";
constexpr std::string_view serving = "RangePublisher";
constexpr auto rest_of_listener = std::chrono::milliseconds(50);
constexpr auto rest_of_fetch = std::chrono::milliseconds(5);
constexpr auto look_at_the_silent = std::chrono::milliseconds(500);

Deadline now() {
  return Deadline::at(Deadline::Clock::now());
}

Failure violation(std::string reason) {
  Failure failure;
  failure.kind = ErrorKind::protocol_violation;
  failure.call = serving;
  failure.reason = std::move(reason);
  return failure;
}

Failure not_published(const std::string& name) {
  return invalid_use(serving, fmt::format("name = '{}'", name), std::string(nothing_published),
                     "Publish it first, or attach with AttachOptions::wait_for_publisher");
}

Failure not_permitted(std::string arguments, std::string reason, std::string way_out) {
  Failure failure;
  failure.kind = ErrorKind::not_permitted;
  failure.call = serving;
  failure.arguments = std::move(arguments);
  failure.feature = "attaching to a published range";
  failure.reason = std::move(reason);
  failure.way_out = std::move(way_out);
  return failure;
}

// Why none of the handles that there are would mean anything where the request comes from.
std::optional<Failure> unreachable_for(const AttachRequest& request, const Publication& publication) {
  if (same_node(publication.locality, request.locality)) return std::nullopt;
  Failure failure = different_hosts(serving, "The publisher", publication.locality, "the attacher", request.locality);
  failure.arguments = fmt::format("name = '{}'", request.name);
  if (!same_machine(publication.locality, request.locality)) return failure;
  const auto& chunks = publication.content.chunks;
  const auto without =
      std::find_if(chunks.begin(), chunks.end(), [](const OfferedChunk& each) { return !each.fabric; });
  if (without == chunks.end()) return std::nullopt;
  if (!without->why_no_fabric.empty()) failure.reason += "; a fabric handle cannot be had: " + without->why_no_fabric;
  return failure;
}

Failure no_fabric_handle(const Publication& publication) {
  Failure failure;
  failure.kind = ErrorKind::not_supported;
  failure.call = serving;
  failure.arguments = fmt::format("name = '{}'", publication.name);
  failure.feature = "sharing with another node";
  failure.reason = "some of what was appended has no fabric handle";
  failure.way_out = "Append memory that was created with HandleType::fabric, or detach";
  return failure;
}

Failure not_served(const std::exception& error) {
  Failure failure;
  failure.call = serving;
  failure.reason = fmt::format("the publisher could not serve this process: {}", error.what());
  failure.way_out = "Attach again when the publisher has memory";
  return failure;
}

// Signals are for the program's own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  SignalsBlocked(SignalsBlocked&&) = delete;
  SignalsBlocked& operator=(SignalsBlocked&&) = delete;
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

UniqueDescriptor new_event() {
  UniqueDescriptor event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) raise(system_failure("eventfd", "", errno));
  return made_safe(std::move(event)).value();
}

}  // namespace

RangeService::RangeService(const RangePublisherOptions& options, std::optional<DescriptorListener> listener)
    : options_(options), wake_(new_event()), process_(::getpid()), listener_(std::move(listener)) {
  const SignalsBlocked blocked;
  thread_ = std::make_unique<std::thread>([this] { run(); });
}

void RangeService::stop() noexcept {
  if (!thread_) return;
  if (process_ != ::getpid()) return forget_thread_of_parent();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_->join();
  thread_.reset();
  const std::lock_guard lock(mutex_);
  listener_.reset();
  leases_.clear();
  open_.clear();
  ended_.notify_all();
}

// In a forked child there is no such thread to wait for.
void RangeService::forget_thread_of_parent() noexcept {
  static_cast<void>(thread_.release());
}

void RangeService::wake() noexcept {
  const std::uint64_t one = 1;
  while (::write(wake_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
}

// --- What the publisher's own threads ask for.

Result<void> RangeService::open(const std::shared_ptr<Publication>& publication) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return owns_nothing(publishing, "publisher");
  if (open_.contains(publication->name))
    return invalid_use(publishing, fmt::format("name = '{}'", publication->name), "The name is published already",
                       "Withdraw the other one first, or choose another name");
  open_.emplace(publication->name, publication);
  publication->generation = ++generations_[publication->name];
  return {};
}

Result<void> RangeService::extend(Publication& publication, std::vector<OfferedChunk> chunks, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (publication.withdrawn)
    return invalid_use("PublishedRange::update", fmt::format("name = '{}'", publication.name), "It is withdrawn",
                       "Publish the range again");
  if (chunks.empty() && bytes == publication.content.bytes) return {};
  publication.content.add(std::move(chunks));
  publication.content.bytes = bytes;
  for (Lease& each : leases_) each.news |= each.publication.get() == &publication;
  wake();
  return {};
}

std::set<std::uint64_t> RangeService::offered_offsets(const Publication& publication) const {
  const std::lock_guard lock(mutex_);
  std::set<std::uint64_t> offsets;
  for (const OfferedChunk& each : publication.content.chunks) offsets.insert(each.facts.offset);
  return offsets;
}

void RangeService::close(Publication& publication, Withdrawal why) noexcept {
  const std::lock_guard lock(mutex_);
  if (publication.withdrawn) return;
  publication.withdrawn = why;
  const auto named = open_.find(publication.name);
  if (named != open_.end() && named->second.get() == &publication) open_.erase(named);
  for (Lease& each : leases_) each.news |= each.publication.get() == &publication;
  wake();
}

std::vector<const Lease*> RangeService::leases_of(const Publication& publication) const {
  std::vector<const Lease*> found;
  for (const Lease& each : leases_)
    if (each.publication.get() == &publication) found.push_back(&each);
  return found;
}

Result<void> RangeService::wait_for_detached(const Publication& publication, const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  const auto detached = [&] { return leases_of(publication).empty(); };
  if (ended_.wait_until(lock, deadline.time(), detached)) return {};
  std::vector<int> processes;
  for (const Lease* each : leases_of(publication)) processes.push_back(each->socket.peer().process);
  Failure failure;
  failure.kind = ErrorKind::timed_out;
  failure.call = "PublishedRange::withdraw";
  failure.arguments = fmt::format("name = '{}'", publication.name);
  failure.reason = fmt::format("still attached before the deadline: process{} {}", processes.size() == 1 ? "" : "es",
                               fmt::join(processes, ", "));
  failure.way_out = "Have them call AttachedRange::detach(), or end them, and withdraw again";
  return failure;
}

RangeService::Remains RangeService::take_content(Publication& publication) noexcept {
  const std::lock_guard lock(mutex_);
  return {std::exchange(publication.content.chunks, {}), std::exchange(publication.pin, {}),
          std::exchange(publication.watch, {})};
}

void RangeService::serve(DescriptorSocket connection) {
  const std::lock_guard lock(mutex_);
  if (stopping_) raise(owns_nothing("RangePublisher::serve", "publisher"));
  connection.take_limits(range_message_limits);
  leases_.emplace_back(std::move(connection), Deadline::in(options_.first_request));
  wake();
}

Standing RangeService::standing(const Publication& publication) const {
  const std::lock_guard lock(mutex_);
  return publication.standing();
}

std::vector<Attached> RangeService::attached_to(const Publication& publication) const {
  const std::lock_guard lock(mutex_);
  std::vector<Attached> attached;
  for (const Lease* each : leases_of(publication))
    attached.push_back(
        {each->socket.peer().process, each->socket.peer().user, each->rights, each->mapped, each->chunks});
  return attached;
}

std::size_t RangeService::connected() const {
  const std::lock_guard lock(mutex_);
  return leases_.size();
}

// --- The thread.

void RangeService::run() noexcept {
  for (;;) {
    try {
      wait_for_something();
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      round();
    } catch (const std::exception& error) {  // no memory: the others are served on
      Failure failure;
      failure.call = serving;
      failure.reason = error.what();
      report_cleanup_failure(failure);
      std::this_thread::sleep_for(rest_of_listener);
    }
  }
}

void RangeService::wait_for_something() {
  std::vector<pollfd> sockets{{wake_.get(), POLLIN, 0}};
  std::optional<std::chrono::milliseconds> longest;
  const auto at_most = [&](std::chrono::milliseconds duration) {
    longest = longest ? std::min(*longest, duration) : duration;
  };
  {
    const std::lock_guard lock(mutex_);
    if (listener_ && listener_rests_until_.passed()) {
      for (const int each : listener_->descriptors()) sockets.push_back({each, POLLIN, 0});
      if (sockets.size() > 2) at_most(look_at_the_silent);
    } else if (listener_) {
      at_most(listener_rests_until_.left());
    }
    for (const Lease& each : leases_) {
      const int events = each.unserved ? 0 : POLLIN;
      sockets.push_back({each.socket.descriptor(), static_cast<short>(each.news ? events | POLLOUT : events), 0});
      if (each.unserved) at_most(rest_of_fetch);
      if (!each.publication) at_most(look_at_the_silent);
    }
  }
  ::poll(sockets.data(), sockets.size(), longest ? static_cast<int>(longest->count()) : -1);
  std::uint64_t count = 0;
  while (::read(wake_.get(), &count, sizeof count) < 0 && errno == EINTR) {
  }
}

void RangeService::round() {
  accept_newcomers();
  for (auto lease = leases_.begin(); lease != leases_.end();) {
    if (serve_lease(*lease)) {
      ++lease;
    } else {
      lease->socket.close();
      lease = leases_.erase(lease);
      ended_.notify_all();
    }
  }
}

void RangeService::accept_newcomers() {
  while (listener_ && listener_rests_until_.passed()) {
    auto accepted = listener_->try_accept(now());
    if (accepted) {
      leases_.emplace_back(std::move(accepted).value(), Deadline::in(options_.first_request));
    } else {
      if (accepted.failure().kind == ErrorKind::timed_out) return;
      listener_rests_until_ = Deadline::in(rest_of_listener);  // out of descriptors, which others may give back
    }
  }
}

bool RangeService::serve_lease(Lease& lease) try {
  constexpr int most_in_a_row = 16;  // of one, before the others have their turn
  for (int count = 0; count < most_in_a_row; ++count) {
    if (lease.unserved) {
      const Message request = *std::exchange(lease.unserved, std::nullopt);
      if (!take_fetch(lease, request)) return false;
      if (lease.unserved) break;
    }
    const auto message = lease.socket.receive_next(now());
    if (message) {
      if (!take_message(lease, *message)) return false;
    } else if (message.failure().kind == ErrorKind::timed_out && lease.socket.descriptor() >= 0) {
      break;
    } else {
      return false;
    }
  }
  if (!lease.publication && lease.first_request.passed()) return end(lease, said_nothing());
  return !lease.news || tell_news(lease);
} catch (const std::exception& error) {  // no memory for it
  return end_unserved(lease, error);
}

bool RangeService::end_unserved(Lease& lease, const std::exception& why) noexcept try {
  return end(lease, not_served(why));
} catch (const std::bad_alloc&) {  // not even for saying so
  return false;
}

Failure RangeService::said_nothing() const {
  Failure failure;
  failure.kind = ErrorKind::timed_out;
  failure.call = serving;
  failure.reason = fmt::format("nothing was asked for within {} ms", options_.first_request.count());
  failure.way_out = "Attach as soon as the connection is made, or raise RangePublisherOptions::first_request";
  return failure;
}

// Says why, if it can be said now, and ends the connection.
bool RangeService::end(Lease& lease, const Failure& why) {
  static_cast<void>(lease.socket.give_up(why));
  return false;
}

// Whether the connection goes on after it was answered like this.
bool RangeService::answered(Lease& lease, const Result<void>& sent) {
  return sent || end(lease, sent.failure());
}

bool RangeService::take_message(Lease& lease, const Message& message) {
  if (!message.descriptors.empty()) return refuse(lease, message, violation("descriptors came with a request"));
  switch (message.kind) {
    case attach_message:
      return take_attach(lease, message);
    case fetch_message:
      return take_fetch(lease, message);
    case mapped_message:
      return take_mapped(lease, message);
    default:
      return refuse(lease, message, violation(fmt::format("there is no message of kind {}", message.kind)));
  }
}

// Tells why, and ends the connection.
bool RangeService::refuse(Lease& lease, const Message& request, const Failure& failure) {
  static_cast<void>(lease.socket.try_reply(request, failure, now()));
  return false;
}

std::size_t RangeService::leases_of_publications() const noexcept {
  return static_cast<std::size_t>(
      std::count_if(leases_.begin(), leases_.end(), [](const Lease& each) { return each.publication != nullptr; }));
}

std::optional<Failure> RangeService::wrong_with(const AttachRequest& request, const Publication& publication) const {
  const auto name = fmt::format("name = '{}', rights = {}", request.name, to_string(request.rights));
  if (request.rights > publication.rights)
    return not_permitted(name, fmt::format("{} is offered", to_string(publication.rights)),
                         "Ask for less, or publish with PublishOptions::rights");
  if (leases_of_publications() >= options_.most_attached)
    return not_permitted(name, fmt::format("{} are attached already", options_.most_attached),
                         "Raise RangePublisherOptions::most_attached");
  return unreachable_for(request, publication);
}

bool RangeService::take_attach(Lease& lease, const Message& message) {
  const auto request = decode_attach_request(message.bytes);
  if (!request || lease.publication)
    return refuse(lease, message, violation("it is no request to attach, or a second"));
  const auto found = open_.find(request->name);
  if (found == open_.end()) return refuse(lease, message, not_published(request->name));
  const std::shared_ptr<Publication>& publication = found->second;
  if (const auto wrong = wrong_with(*request, *publication)) return refuse(lease, message, *wrong);
  lease.publication = publication;
  lease.rights = request->rights;
  lease.of_another_node = !same_node(publication->locality, request->locality);
  const Terms terms{publication->standing(), request->rights};
  return answered(lease, lease.socket.try_reply(message, {.kind = terms_message, .bytes = encode(terms)}, now()));
}

bool RangeService::take_fetch(Lease& lease, const Message& message) {
  const auto request = decode_fetch_request(message.bytes);
  if (!request || !lease.publication)
    return refuse(lease, message, violation("it is no request for chunks, or too early"));
  const Publication& publication = *lease.publication;
  // The lease goes on: what is mapped already is still attached.
  if (publication.withdrawn)
    return answered(lease, lease.socket.try_reply(
                               message, withdrawn_failure(serving, publication.name, *publication.withdrawn), now()));
  const auto& chunks = publication.content.chunks;
  const std::size_t first = std::min<std::size_t>(request->first, chunks.size());
  ChunkTable table{.publication = publication.number, .first = request->first};
  std::vector<int> descriptors;
  for (std::size_t index = first; index < chunks.size() && index - first < most_chunks_at_once; ++index) {
    ChunkFacts& told = table.chunks.emplace_back(chunks[index].facts);
    if (lease.of_another_node) {
      // What was appended since has none, perhaps.
      if (!chunks[index].fabric)
        return answered(lease, lease.socket.try_reply(message, no_fabric_handle(publication), now()));
      told.type = HandleType::fabric;
      told.fabric = *chunks[index].fabric;
    } else if (told.type == HandleType::posix_file_descriptor) {
      descriptors.push_back(chunks[index].handle.descriptor());
    }
  }
  const auto sent = lease.socket.try_reply(
      message, {.kind = chunks_message, .bytes = encode(table), .descriptors = descriptors}, now());
  if (sent) return true;
  // Others have many on their way; it is tried again until the peer gives up.
  if (sent.failure().kind != ErrorKind::out_of_descriptors || lease.socket.descriptor() < 0)
    return answered(lease, sent);
  lease.unserved.emplace();
  lease.unserved->kind = message.kind;
  lease.unserved->number = message.number;
  lease.unserved->bytes = message.bytes;
  return true;
}

bool RangeService::take_mapped(Lease& lease, const Message& message) {
  const auto chunks = decode_mapped(message.bytes);
  if (!chunks || !lease.publication) return refuse(lease, message, violation("it tells nothing of what is mapped"));
  lease.mapped = true;
  lease.chunks = *chunks;
  return true;
}

// Only how it stands now; what the peer has not taken in the meantime it need not know.
bool RangeService::tell_news(Lease& lease) {
  const auto sent =
      lease.socket.try_send({.kind = standing_message, .bytes = encode(lease.publication->standing())}, now());
  if (!sent) return sent.failure().kind == ErrorKind::timed_out || end(lease, sent.failure());
  lease.news = false;
  return true;
}

}  // namespace cuvmm::sharing
