#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "cuvmm/device.hpp"
#include "refusal.hpp"
#include "sharing/attached_range_impl.hpp"

namespace cuvmm::sharing {

namespace {

constexpr std::string_view attaching = "AttachedRange::attach";
constexpr auto pause_between_tries = std::chrono::milliseconds(10);

std::optional<Failure> wrong_with(std::string_view name, const AttachOptions& options) {
  if (name.empty() || name.size() > most_name_bytes)
    return invalid_use(attaching, fmt::format("name of {} bytes", name.size()),
                       fmt::format("A name has 1 to {} bytes", most_name_bytes), "Pass the name that was published");
  if (options.rights != AccessRights::read && options.rights != AccessRights::read_write)
    return invalid_use(attaching, fmt::format("rights = {}", to_string(options.rights)),
                       "Rights to ask for are read, or read and write", "Ask for one of them");
  return std::nullopt;
}

Result<Terms> terms_in(const Result<Message>& answer, const DescriptorSocket& publisher, AccessRights rights) {
  if (!answer) return answer.failure();
  const auto terms = answer->kind == terms_message ? decode_terms(answer->bytes) : std::nullopt;
  if (!terms || terms->rights != rights || terms->standing.chunks == 0)
    return wrong_answer(publisher, "the terms cannot be read, or are others than were asked for");
  return *terms;
}

// Reserves, once, exactly what is needed; nobody may access it yet.
Result<MappedRange> reserve(const Driver& driver, const Terms& terms, const ImportedChunk& first,
                            const Location& granted, const AttachOptions& options) {
  MappedRangeOptions made;
  made.capacity = std::max<std::size_t>(options.capacity, terms.standing.extent);
  made.memory.location = first.memory.properties().location;
  made.grants = {{granted, AccessRights::none}};
  made.device_wait = options.device_wait;
  return MappedRange::try_create(driver, made);
}

bool is_worth_another_try(const Failure& failure) {
  return failure.kind == ErrorKind::peer_gone || failure.rule == nothing_published || failure.rule == withdrawn_rule;
}

}  // namespace

Result<std::unique_ptr<AttachedRange::Impl>> AttachedRange::Impl::attach(const Driver& driver,
                                                                         DescriptorSocket publisher,
                                                                         std::string_view name, const Locality& place,
                                                                         const AttachOptions& options,
                                                                         const Deadline& deadline) try {
  publisher.take_limits(range_message_limits);
  // The first chunks are asked for with the terms, before the publisher has welcomed this process: waiting for replies
  // one after the other costs more than those that turn out to be of no use.
  const auto attach = encode(AttachRequest{std::string(name), options.rights, place});
  const auto fetch = encode(FetchRequest{0});
  const MessageView requests[] = {{.kind = attach_message, .bytes = attach}, {.kind = fetch_message, .bytes = fetch}};
  const auto sent = publisher.send_requests(requests, deadline);
  ChunkImporter importer(driver);  // while the publisher answers
  auto answers = publisher.receive_replies(sent, deadline);
  const auto offered = terms_in(answers.front(), publisher, options.rights);
  if (!offered) return offered.failure();
  if (!answers.back()) return answers.back().failure();
  const Terms& terms = *offered;
  const Standing& standing = terms.standing;
  const auto chunks = importer.import_from(
      publisher, {.publication = standing.publication, .until = standing.chunks, .extent = standing.extent}, deadline,
      std::move(answers.back()).value());
  if (!chunks) return chunks.failure();
  const Location granted =
      options.device ? Location::device(*options.device) : chunks->front().memory.properties().location;
  auto range = reserve(driver, terms, chunks->front(), granted, options);
  if (!range) return range.failure();
  if (auto mapped = map_all(*range, *chunks); !mapped) return mapped.failure();
  const AccessGrant grant{granted, terms.rights};
  if (auto given = range->try_grant(std::span(&grant, 1)); !given) return given.failure();
  auto attached = std::make_unique<Impl>(std::string(name), std::move(publisher), std::move(importer), terms,
                                         std::move(range).value());
  attached->tell_mapped(deadline);
  return attached;
} catch (const Error& error) {  // of a descriptor that could not be taken in, or the questions for devices
  return error.failure();
}

Result<AttachedRange> AttachedRange::try_attach(const Driver& driver, DescriptorSocket connection,
                                                std::string_view name, const AttachOptions& options,
                                                const Deadline& deadline) {
  if (auto wrong = wrong_with(name, options)) return *wrong;
  auto attached = Impl::attach(driver, std::move(connection), name, Locality::of(driver), options, deadline);
  if (!attached) return told_as(attaching, name, attached.failure());
  return AttachedRange(std::move(attached).value());
}

Result<AttachedRange> AttachedRange::try_attach(const Driver& driver, const SocketAddress& address,
                                                std::string_view name, const AttachOptions& options,
                                                const Deadline& deadline) {
  if (auto wrong = wrong_with(name, options)) return *wrong;
  const Locality place = Locality::of(driver);
  ConnectionOptions connection = options.connection;
  connection.wait_for_listener |= options.wait_for_publisher;
  if (!connection.locality) connection.locality = place;
  const auto attach_once = [&]() -> Result<AttachedRange> {
    auto socket = DescriptorSocket::try_begin_to_connect(address, connection, deadline);
    if (!socket) return socket.failure();
    auto attached = Impl::attach(driver, std::move(socket).value(), name, place, options, deadline);
    if (!attached) return attached.failure();
    return AttachedRange(std::move(attached).value());
  };
  for (;;) {
    auto attached = attach_once();
    if (attached) return attached;
    const bool again = options.wait_for_publisher && is_worth_another_try(attached.failure());
    if (!again || deadline.passed()) {
      Failure failure = told_as(attaching, name, attached.failure());
      if (again) failure.kind = ErrorKind::timed_out;
      return failure;
    }
    std::this_thread::sleep_until(deadline.earlier(Deadline::in(pause_between_tries)).time());
  }
}

AttachedRange AttachedRange::attach(const Driver& driver, DescriptorSocket connection, std::string_view name,
                                    const AttachOptions& options, const Deadline& deadline) {
  return try_attach(driver, std::move(connection), name, options, deadline).value();
}

AttachedRange AttachedRange::attach(const Driver& driver, const SocketAddress& address, std::string_view name,
                                    const AttachOptions& options, const Deadline& deadline) {
  return try_attach(driver, address, name, options, deadline).value();
}

}  // namespace cuvmm::sharing
