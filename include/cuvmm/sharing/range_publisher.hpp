// Where ranges are published for other processes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "cuvmm/sharing/descriptor_listener.hpp"
#include "cuvmm/sharing/published_range.hpp"

namespace cuvmm::sharing {

struct RangePublisherOptions {
  // Who may connect, with which token. The limits of messages are the publisher's own.
  ListenerOptions listener{};
  // How many processes may be connected at a time; more are turned away.
  std::size_t most_attached = 1024;
  // How long one that has connected may take to say what it wants; who does not is told so and turned away.
  std::chrono::milliseconds first_request{10'000};
};

struct PublishOptions {
  std::size_t offset = 0;  // bytes; where a chunk begins
  // Bytes to the end of a chunk, or of the range. 0: all from the offset on, and what update() finds appended later.
  std::size_t bytes = 0;
  AccessRights rights = AccessRights::read;  // the most that others are granted
};

// Publishes ranges under names and serves those who attach, by one thread of its own, which never waits for any of them
// and makes no driver call. A connection is a lease: it stands for one attached range, and when it ends, whichever way,
// the lease has ended. docs/sharing.md tells the protocol.
//
// When it is destroyed, all connections end: those who are attached learn that the publisher is gone, and keep their
// mappings. Forked children that do not call exec keep connections open beyond that.
//
// Thread-safe. A moved-from one may only be assigned to or destroyed.
class RangePublisher {
 public:
  // Listens at an address, as DescriptorListener::listen; throws what that throws.
  [[nodiscard]] static RangePublisher listen(const SocketAddress& address, const RangePublisherOptions& options,
                                             const Deadline& deadline);
  // Listens nowhere: serves those whom it is given by serve().
  [[nodiscard]] static RangePublisher unconnected(const RangePublisherOptions& options = {});

  RangePublisher(RangePublisher&& other) noexcept;
  RangePublisher& operator=(RangePublisher&& other) noexcept;
  RangePublisher(const RangePublisher&) = delete;
  RangePublisher& operator=(const RangePublisher&) = delete;
  ~RangePublisher();

  // Offers the range, or whole chunks of it, under a name of 1 to 255 bytes. The range may be appended to; its
  // destruction withdraws the publication. Throws InvalidUse for a name that is taken, for bytes that begin or end
  // inside a chunk, for no chunk at all, and as ShareableHandle::export_from for memory that was not made to be
  // exported. Those on this node get descriptors where the memory has them, else fabric handles; those on another node
  // of an emulated machine get fabric handles, or NotSupported where some of the memory has none.
  [[nodiscard]] PublishedRange publish(std::string_view name, MappedRange& range, const PublishOptions& options = {});
  [[nodiscard]] Result<PublishedRange> try_publish(std::string_view name, MappedRange& range,
                                                   const PublishOptions& options = {});

  // Takes over one more connection: one end of DescriptorSocket::pair, whose other end a child process inherits. Its
  // limits are the publisher's from then on.
  void serve(DescriptorSocket connection);

  [[nodiscard]] std::size_t connected() const;  // processes that are, attached or not

 private:
  class Impl;
  explicit RangePublisher(std::unique_ptr<Impl> impl) noexcept;

  std::unique_ptr<Impl> impl_;
};

}  // namespace cuvmm::sharing
