#include "cuvmm/sharing/range_publisher.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>

#include "refusal.hpp"
#include "sharing/descriptor_facts.hpp"
#include "sharing/range_service.hpp"
#include "system_failure.hpp"

namespace cuvmm::sharing {

namespace {

constexpr std::string_view publishing = "RangePublisher::publish";

std::uint64_t random_number() {
  std::uint64_t number = 0;
  while (::getrandom(&number, sizeof number, 0) != sizeof number)
    if (errno != EINTR) raise(system_failure("getrandom", "", errno));
  return number;
}

std::optional<Failure> wrong_with(std::string_view name, const PublishOptions& options, std::size_t size) {
  const auto refuse = [](std::string arguments, std::string rule, std::string way_out) {
    return invalid_use(publishing, std::move(arguments), std::move(rule), std::move(way_out));
  };
  if (name.empty() || name.size() > most_name_bytes)
    return refuse(fmt::format("name of {} bytes", name.size()),
                  fmt::format("A name has 1 to {} bytes", most_name_bytes), "Choose such a name");
  if (options.rights != AccessRights::read && options.rights != AccessRights::read_write)
    return refuse(fmt::format("rights = {}", to_string(options.rights)), "Rights to share are read, or read and write",
                  "Withdraw a range that nobody may access");
  if (size == 0)
    return refuse("range of 0 bytes", "There is nothing to publish: the range is empty, or was moved from or closed",
                  "Append memory first");
  if (options.offset >= size || options.bytes > size - options.offset)
    return refuse(fmt::format("offset = {}, bytes = {}, range of {} bytes", options.offset, options.bytes, size),
                  "What is published lies within the content of the range", "See MappedRange::size()");
  return std::nullopt;
}

// Pins keep the range as it is, but a sleep that was told to pass over them does not heed them, nor does the range's
// destructor.
RangeObserver withdraws_when_unmapped(const std::weak_ptr<RangeService>& service,
                                      const std::weak_ptr<Publication>& watched) {
  return {.after_unmap = [service, watched](std::size_t offset, std::size_t bytes) {
    const auto serving = service.lock();
    const auto publication = watched.lock();
    if (!serving || !publication) return;
    const std::size_t begin = publication->part.offset;
    if (offset + bytes > begin && offset < begin + serving->standing(*publication).extent)
      serving->close(*publication, Withdrawal::ended);
  }};
}

}  // namespace

class PublishedRange::Impl {
 public:
  Impl(std::shared_ptr<RangeService> service, std::shared_ptr<Publication> publication) noexcept
      : service_(std::move(service)), publication_(std::move(publication)) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  Impl(Impl&&) = delete;
  Impl& operator=(Impl&&) = delete;
  ~Impl() {
    service_->close(*publication_, Withdrawal::ended);
    give_back();
  }

  Result<void> update(const MappedRange& range);
  Result<void> withdraw(const Deadline& deadline, Withdrawal why) {
    service_->close(*publication_, why);
    if (auto detached = service_->wait_for_detached(*publication_, deadline); !detached) return detached;
    give_back();
    return {};
  }

  [[nodiscard]] RangeService& service() const noexcept { return *service_; }
  [[nodiscard]] const Publication& publication() const noexcept { return *publication_; }

 private:
  // Handles and shares of memory go here, in the caller's thread, since that may take driver calls.
  void give_back() noexcept { static_cast<void>(service_->take_content(*publication_)); }

  std::shared_ptr<RangeService> service_;
  std::shared_ptr<Publication> publication_;
};

Result<void> PublishedRange::Impl::update(const MappedRange& range) {
  constexpr std::string_view call = "PublishedRange::update";
  const PublishedPart& part = publication_->part;
  if (service_->standing(*publication_).withdrawn)
    return invalid_use(call, fmt::format("name = '{}'", publication_->name), "It is withdrawn",
                       "Publish the range again");
  if (range.address() != part.address || !part.to_the_end)
    return invalid_use(call, fmt::format("name = '{}'", publication_->name),
                       "It follows the range that was published to its end",
                       "Pass the range that was published, and publish it without PublishOptions::bytes");
  // The pin keeps what is published: at its offsets there is nothing new.
  const std::size_t end = std::max(part.offset, range.size());
  auto added = export_chunks(call, range, part.offset, end, service_->offered_offsets(*publication_));
  if (!added) return added.failure();
  return service_->extend(*publication_, std::move(added).value(), end - part.offset);
}

PublishedRange::PublishedRange(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
PublishedRange::PublishedRange(PublishedRange&&) noexcept = default;
PublishedRange& PublishedRange::operator=(PublishedRange&&) noexcept = default;
PublishedRange::~PublishedRange() = default;

const std::string& PublishedRange::name() const noexcept {
  static const std::string none;
  return impl_ ? impl_->publication().name : none;
}
std::uint64_t PublishedRange::generation() const noexcept {
  return impl_ ? impl_->publication().generation : 0;
}
std::size_t PublishedRange::size() const {
  return impl_ ? impl_->service().standing(impl_->publication()).bytes : 0;
}
std::size_t PublishedRange::chunks() const {
  return impl_ ? impl_->service().standing(impl_->publication()).chunks : 0;
}
std::vector<Attached> PublishedRange::attached() const {
  return impl_ ? impl_->service().attached_to(impl_->publication()) : std::vector<Attached>();
}
Result<void> PublishedRange::try_update(const MappedRange& range) {
  if (!impl_) return owns_nothing("PublishedRange::update", "published range");
  return impl_->update(range);
}
Result<void> PublishedRange::try_withdraw(const Deadline& deadline, Withdrawal why) {
  if (!impl_) return owns_nothing("PublishedRange::withdraw", "published range");
  return impl_->withdraw(deadline, why);
}

class RangePublisher::Impl {
 public:
  Impl(const RangePublisherOptions& options, std::optional<DescriptorListener> listener)
      : service_(std::make_shared<RangeService>(options, std::move(listener))) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  Impl(Impl&&) = delete;
  Impl& operator=(Impl&&) = delete;
  ~Impl() { service_->stop(); }

  [[nodiscard]] const std::shared_ptr<RangeService>& service() const noexcept { return service_; }

 private:
  std::shared_ptr<RangeService> service_;  // published ranges have it, too
};

RangePublisher::RangePublisher(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
RangePublisher::RangePublisher(RangePublisher&&) noexcept = default;
RangePublisher& RangePublisher::operator=(RangePublisher&&) noexcept = default;
RangePublisher::~RangePublisher() = default;

RangePublisher RangePublisher::listen(const SocketAddress& address, const RangePublisherOptions& options,
                                      const Deadline& deadline) {
  ListenerOptions listener = options.listener;
  listener.connection.limits = range_message_limits;
  return RangePublisher(std::make_unique<Impl>(options, DescriptorListener::listen(address, listener, deadline)));
}

RangePublisher RangePublisher::unconnected(const RangePublisherOptions& options) {
  return RangePublisher(std::make_unique<Impl>(options, std::nullopt));
}

Result<PublishedRange> RangePublisher::try_publish(std::string_view name, MappedRange& range,
                                                   const PublishOptions& options) {
  if (!impl_) return owns_nothing(publishing, "publisher");
  if (range.granularity() == 0) return owns_nothing(publishing, fmt::format("name = '{}', range", name));
  if (auto wrong = wrong_with(name, options, range.size())) return *wrong;
  const std::size_t end = options.bytes == 0 ? range.size() : options.offset + options.bytes;
  auto publication = std::make_shared<Publication>();
  publication->name = name;
  publication->rights = options.rights;
  publication->part = {range.address(), options.offset, options.bytes == 0};
  publication->number = random_number();
  publication->locality = Locality::of(range.driver());
  publication->pin = range.pin(fmt::format("it is published as '{}'", name));
  auto chunks = export_chunks(publishing, range, options.offset, end);
  if (!chunks) return chunks.failure();
  if (chunks->empty())
    return invalid_use(publishing, fmt::format("offset = {}, bytes = {}", options.offset, end - options.offset),
                       "There is no chunk to publish", "Append or map memory there first");
  publication->content.bytes = end - options.offset;
  publication->content.add(std::move(chunks).value());
  publication->watch = range.observe(withdraws_when_unmapped(impl_->service(), publication));
  if (auto opened = impl_->service()->open(publication); !opened) return opened.failure();
  return PublishedRange(std::make_unique<PublishedRange::Impl>(impl_->service(), std::move(publication)));
}

PublishedRange RangePublisher::publish(std::string_view name, MappedRange& range, const PublishOptions& options) {
  return try_publish(name, range, options).value();
}

void RangePublisher::serve(DescriptorSocket connection) {
  if (!impl_) raise(owns_nothing("RangePublisher::serve", "publisher"));
  impl_->service()->serve(std::move(connection));
}

std::size_t RangePublisher::connected() const {
  return impl_ ? impl_->service()->connected() : 0;
}

}  // namespace cuvmm::sharing
