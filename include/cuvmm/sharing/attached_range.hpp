// A range of another process, mapped in this one.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cuvmm/mapped_range.hpp"
#include "cuvmm/sharing/descriptor_socket.hpp"
#include "cuvmm/sharing/withdrawal.hpp"

namespace cuvmm::sharing {

struct AttachOptions {
  // Which device of this process may access the range. None: where its first chunk lies.
  std::optional<DeviceOrdinal> device{};
  AccessRights rights = AccessRights::read;  // at most what is offered
  // Bytes of addresses to reserve, for growth that is followed at the same pointer. 0: what is there and no more.
  std::size_t capacity = 0;
  // Of the connection that attach() makes: token, users. Limits are its own.
  ConnectionOptions connection{};
  // That nobody listens yet, or the name is not published yet, is no error before the deadline.
  bool wait_for_publisher = false;
  // How long any wait for the device may last, the destructor's included.
  std::chrono::milliseconds device_wait{60'000};
};

// What has become of a range that is attached.
struct RangeNews {
  bool grown = false;                     // there is more than is mapped, appended or in what was a hole: follow()
  bool shortened = false;                 // the content ends earlier than size() says: follow()
  std::optional<Withdrawal> withdrawn{};  // the publisher waits for detach(), and offers nothing more
  bool publisher_gone = false;            // it has ended, or the connection has; the mapping stays usable

  explicit operator bool() const noexcept { return grown || shortened || withdrawn || publisher_gone; }
  friend bool operator==(const RangeNews&, const RangeNews&) noexcept = default;
};

// Memory that another process has published (RangePublisher), at an address of this one; a MappedRange of imported
// memory (guide 4.16.3.2). The bytes are the publisher's own, no copies; they stay as long as they are attached here,
// whatever becomes of the publisher. Whether it is still there, poll() tells.
//
// Nothing is unmapped under running work if the range is told what uses it: used_on(). The destructor does as detach(),
// and never throws.
//
// uses() and used_on() may be called by any thread at any time; all else by one thread at a time. A moved-from or
// detached one may be assigned to or destroyed, and asked for what it is (name to publisher), which is empty and 0, and
// for its descriptor, which is -1; all else is refused (InvalidUse).
class AttachedRange {
 public:
  // Connects to a publisher and maps what it offers under that name: addresses are reserved once, each chunk is
  // imported, mapped and granted; or nothing is left. Throws PeerGone, TimedOut, InvalidUse for a name that is not
  // published, NotPermitted for more rights than are offered and for another token or user, NotSupported for another
  // host, for another node or machine that no handle of the memory reaches, and for a device that cannot reach the
  // memory, ProtocolViolation, OutOfDescriptors, OutOfAddressSpace, and Error as the driver fails.
  [[nodiscard]] static AttachedRange attach(const Driver& driver, const SocketAddress& address, std::string_view name,
                                            const AttachOptions& options, const Deadline& deadline);
  [[nodiscard]] static Result<AttachedRange> try_attach(const Driver& driver, const SocketAddress& address,
                                                        std::string_view name, const AttachOptions& options,
                                                        const Deadline& deadline);

  // The same over a connection that there is already, which it takes over (RangePublisher::serve), with limits of its
  // own.
  [[nodiscard]] static AttachedRange attach(const Driver& driver, DescriptorSocket connection, std::string_view name,
                                            const AttachOptions& options, const Deadline& deadline);
  [[nodiscard]] static Result<AttachedRange> try_attach(const Driver& driver, DescriptorSocket connection,
                                                        std::string_view name, const AttachOptions& options,
                                                        const Deadline& deadline);

  AttachedRange(AttachedRange&&) noexcept;
  AttachedRange& operator=(AttachedRange&& other) noexcept;
  AttachedRange(const AttachedRange&) = delete;
  AttachedRange& operator=(const AttachedRange&) = delete;
  ~AttachedRange();

  [[nodiscard]] const std::string& name() const noexcept;
  [[nodiscard]] DeviceAddress address() const noexcept;
  [[nodiscard]] std::size_t size() const noexcept;      // bytes of content, holes included
  [[nodiscard]] std::size_t capacity() const noexcept;  // bytes of addresses
  [[nodiscard]] AccessRights rights() const noexcept;
  [[nodiscard]] std::uint64_t generation() const noexcept;  // PublishedRange::generation()
  [[nodiscard]] const PeerCredentials& publisher() const noexcept;

  // For copying and asking: chunks, grants. Belongs to this object, so that nobody grants more than was offered; its
  // size() counts whole chunks.
  [[nodiscard]] const MappedRange& range() const;
  [[nodiscard]] StreamUses& uses();
  std::optional<CaptureId> used_on(CUstream_st* stream);
  void no_longer_used_on(CUstream_st* stream);

  // What has become of the range, as far as the publisher has told. Never waits. What was told stays told: another
  // extent until it is followed, the rest for good.
  [[nodiscard]] RangeNews poll();
  // The same, but waits until there is something. Throws TimedOut.
  [[nodiscard]] RangeNews wait(const Deadline& deadline);
  // For poll(2): readable when there may be news. -1 once poll() or wait() has told that the publisher is gone.
  [[nodiscard]] int descriptor() const noexcept;

  // Maps what the range has grown by, at the same address, and takes over where the content ends; returns size(). All
  // of it or nothing: what is mapped already stays in any case. Throws OutOfAddressSpace, which tells the capacity that
  // is needed, InvalidUse once the range is withdrawn and PeerGone once the publisher is gone, also where there was
  // nothing to follow, TimedOut, and as attach().
  std::size_t follow(const Deadline& deadline) { return try_follow(deadline).value(); }
  Result<std::size_t> try_follow(const Deadline& deadline);

  // Waits for the device, unmaps everything, gives back the addresses and ends the lease; afterwards it is as moved
  // from. Throws as MappedRange::close, and then keeps what could not be given back, and the lease.
  void detach();

 private:
  class Impl;
  explicit AttachedRange(std::unique_ptr<Impl> impl) noexcept;

  std::unique_ptr<Impl> impl_;
};

}  // namespace cuvmm::sharing
